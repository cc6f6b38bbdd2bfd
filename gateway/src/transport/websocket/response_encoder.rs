//! One answer's sound on its way into messages: to the format's rate, then PCM, G.711 or Opus.

use bytes::Bytes;
use repartee_media::opus::{OpusEncoder, RATES};
use repartee_media::pcm;
use repartee_media::resample::Resampler;
use repartee_protocol::session::AudioFormat;

use crate::call::LineError;

/// Rate for voices that Opus cannot take as they are.
const FALLBACK_RATE: u32 = 48_000;

/// One answer's sound.
#[derive(Debug)]
pub(super) struct Voice {
    filter: Resampler,
    format: AudioFormat,
    opus: Option<Opus>,
}

#[derive(Debug)]
struct Opus {
    encoder: OpusEncoder,
    /// Samples that do not fill a packet yet.
    pending: Vec<f32>,
}

impl Voice {
    pub fn new(model_rate: u32, format: AudioFormat) -> Result<Self, LineError> {
        let (rate, opus) = match format {
            AudioFormat::Opus => {
                let rate = if RATES.contains(&model_rate) { model_rate } else { FALLBACK_RATE };
                (rate, Some(Opus { encoder: OpusEncoder::new(rate)?, pending: Vec::new() }))
            }
            format => (format.rate(), None),
        };
        Ok(Self { filter: Resampler::new(model_rate, rate)?, format, opus })
    }

    /// Takes samples at the model's rate; returns the bytes of a delta, or adds to `packets`.
    pub fn write(&mut self, samples: &[f32], packets: &mut Vec<Bytes>) -> Result<Vec<u8>, LineError> {
        let samples = self.filter.push(samples)?;
        self.encode(&samples, packets)
    }

    /// What is still inside.
    pub fn end(mut self, packets: &mut Vec<Bytes>) -> Result<Vec<u8>, LineError> {
        let mut samples = self.filter.flush()?;
        if let Some(opus) = &self.opus {
            // The last packet is filled up with silence.
            let frame = opus.encoder.frame_samples();
            let length = (opus.pending.len() + samples.len()).next_multiple_of(frame) - opus.pending.len();
            samples.resize(length, 0.0);
        }
        self.encode(&samples, packets)
    }

    fn encode(&mut self, samples: &[f32], packets: &mut Vec<Bytes>) -> Result<Vec<u8>, LineError> {
        Ok(match (&mut self.opus, self.format) {
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
}
