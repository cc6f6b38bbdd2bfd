//! Encoder of one response's audio over a websocket: resampling, then PCM, G.711 or Opus.

use bytes::Bytes;
use repartee_media::opus::{OpusEncoder, RATES};
use repartee_media::pcm;
use repartee_media::resample::Resampler;
use repartee_protocol::session::AudioFormat;

use crate::call::TransportError;

/// Encoding rate for models whose output rate is none of Opus's, in Hz.
const FALLBACK_RATE: u32 = 48_000;

/// Encodes the audio of one response.
#[derive(Debug)]
pub(super) struct ResponseEncoder {
    resampler: Resampler,
    format: AudioFormat,
    opus: Option<Opus>,
}

#[derive(Debug)]
struct Opus {
    encoder: OpusEncoder,
    /// Samples that do not fill a packet yet.
    pending: Vec<f32>,
}

impl ResponseEncoder {
    pub fn new(model_rate: u32, format: AudioFormat) -> Result<Self, TransportError> {
        let (rate, opus) = match format {
            AudioFormat::Opus => {
                let rate = if RATES.contains(&model_rate) { model_rate } else { FALLBACK_RATE };
                (rate, Some(Opus { encoder: OpusEncoder::new(rate)?, pending: Vec::new() }))
            }
            format => (format.rate(), None),
        };
        Ok(Self { resampler: Resampler::new(model_rate, rate)?, format, opus })
    }

    /// Takes samples at the model's rate; returns the bytes of a delta, or adds Opus packets to `packets`.
    pub fn encode(&mut self, samples: &[f32], packets: &mut Vec<Bytes>) -> Result<Vec<u8>, TransportError> {
        encode(self.format, &mut self.opus, self.resampler.convert(samples)?, packets)
    }

    /// Flushes what the resampler and the last packet still hold.
    pub fn finish(mut self, packets: &mut Vec<Bytes>) -> Result<Vec<u8>, TransportError> {
        let mut samples = self.resampler.flush()?;
        if let Some(opus) = &self.opus {
            // The last packet is filled up with silence.
            let frame = opus.encoder.frame_samples();
            let length = (opus.pending.len() + samples.len()).next_multiple_of(frame) - opus.pending.len();
            samples.resize(length, 0.0);
        }
        encode(self.format, &mut self.opus, &samples, packets)
    }
}

fn encode(
    format: AudioFormat,
    opus: &mut Option<Opus>,
    samples: &[f32],
    packets: &mut Vec<Bytes>,
) -> Result<Vec<u8>, TransportError> {
    Ok(match (opus, format) {
        (Some(opus), _) => {
            opus.pending.extend_from_slice(samples);
            let frame = opus.encoder.frame_samples();
            let whole = opus.pending.len() / frame * frame;
            for frame in opus.pending.drain(..whole).as_slice().chunks_exact(frame) {
                packets.push(opus.encoder.encode(frame)?.payload);
            }
            Vec::new()
        }
        (None, AudioFormat::Pcmu) => pcm::encode_mulaw(samples),
        (None, AudioFormat::Pcma) => pcm::encode_alaw(samples),
        (None, AudioFormat::Pcm { .. } | AudioFormat::Opus) => pcm::encode_i16le(samples),
    })
}
