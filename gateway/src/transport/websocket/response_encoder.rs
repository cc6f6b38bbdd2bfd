//! Encoder of one response's audio over a websocket: resampling, then PCM, G.711, or frames for Opus.

use repartee_engine_api::ResponseId;
use repartee_media::opus::{FRAME, RATES};
use repartee_media::pcm;
use repartee_media::resample::Resampler;
use repartee_protocol::session::AudioFormat;

use crate::call::{OpusFrame, TransportError};

/// Encoding rate for models whose output rate Opus does not support, in Hz.
const FALLBACK_RATE: u32 = 48_000;

/// Encoder of one response's audio.
#[derive(Debug)]
pub(super) struct ResponseEncoder {
    response: ResponseId,
    resampler: Resampler,
    format: AudioFormat,
    /// Output rate, in samples a second.
    rate: u32,
    /// Samples that do not fill an Opus frame yet.
    pending: Vec<f32>,
}

impl ResponseEncoder {
    pub fn new(response: ResponseId, model_rate: u32, format: AudioFormat) -> Result<Self, TransportError> {
        let rate = match format {
            AudioFormat::Opus if RATES.contains(&model_rate) => model_rate,
            AudioFormat::Opus => FALLBACK_RATE,
            format => format.rate(),
        };
        Ok(Self { response, resampler: Resampler::new(model_rate, rate)?, format, rate, pending: Vec::new() })
    }

    /// Encodes samples at the model's rate. Returns the bytes of a delta; for Opus adds whole frames to `frames` and
    /// returns no bytes.
    pub fn encode(&mut self, samples: &[f32], frames: &mut Vec<OpusFrame>) -> Result<Vec<u8>, TransportError> {
        let samples = self.resampler.convert(samples)?;
        Ok(match self.format {
            AudioFormat::Opus => {
                self.pending.extend_from_slice(samples);
                let (response, rate, length) = (self.response, self.rate, frame_samples(self.rate));
                let whole = self.pending.len() / length * length;
                for frame in self.pending.drain(..whole).as_slice().chunks_exact(length) {
                    frames.push(OpusFrame { response, rate, samples: frame.to_vec() });
                }
                Vec::new()
            }
            format => bytes(format, samples),
        })
    }

    /// Encodes the rest that the resampler and the last frame hold.
    pub fn finish(mut self, frames: &mut Vec<OpusFrame>) -> Result<Vec<u8>, TransportError> {
        let mut samples = self.resampler.flush()?;
        if self.format != AudioFormat::Opus {
            return Ok(bytes(self.format, &samples));
        }
        // The last frame is padded with silence.
        let length = frame_samples(self.rate);
        let mut rest = self.pending;
        rest.append(&mut samples);
        rest.resize(rest.len().next_multiple_of(length), 0.0);
        let (response, rate) = (self.response, self.rate);
        frames.extend(rest.chunks_exact(length).map(|frame| OpusFrame { response, rate, samples: frame.to_vec() }));
        Ok(Vec::new())
    }
}

/// Number of samples of one frame at `rate`.
fn frame_samples(rate: u32) -> usize {
    (FRAME.as_millis() * u128::from(rate) / 1_000) as usize
}

fn bytes(format: AudioFormat, samples: &[f32]) -> Vec<u8> {
    match format {
        AudioFormat::Pcmu => pcm::encode_mulaw(samples),
        AudioFormat::Pcma => pcm::encode_alaw(samples),
        AudioFormat::Pcm { .. } | AudioFormat::Opus => pcm::encode_i16le(samples),
    }
}
