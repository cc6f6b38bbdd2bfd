//! Codecs of a telephone call: samples to payloads and back.

use std::time::Duration;

use repartee_media::opus::{FRAME, OpusDecoder, OpusEncoder, RATES};
use repartee_media::packet_format::PacketFormat;
use repartee_media::pcm;
use repartee_media::resample::Resampler;
use repartee_sdp::phone::PhoneCodec;

use crate::call::TransportError;

/// Rate of G.711, in Hz.
const TELEPHONE_RATE: u32 = 8_000;
/// Codec rate for models whose rate Opus does not support, in Hz.
const FALLBACK_RATE: u32 = 48_000;
/// Part of a lost packet's loudness that its replacement keeps.
const FADE: f32 = 0.5;

/// Rate that frames have for this codec and a model at `rate`, in Hz.
pub(super) fn frame_rate(codec: PhoneCodec, rate: u32) -> u32 {
    match codec {
        PhoneCodec::Pcmu | PhoneCodec::Pcma => TELEPHONE_RATE,
        PhoneCodec::Opus if RATES.contains(&rate) => rate,
        PhoneCodec::Opus => FALLBACK_RATE,
    }
}

/// Format of a codec's packets for the jitter buffer.
pub(super) fn packet_format(codec: PhoneCodec) -> PacketFormat {
    if codec == PhoneCodec::Opus { PacketFormat::Opus } else { PacketFormat::G711 }
}

/// Encoder of frames of 20 ms.
#[derive(Debug)]
pub(super) enum PhoneEncoder {
    /// G.711, from frames of another rate if a resampler is there; true for A-law.
    G711 {
        a_law: bool,
        resampler: Option<Box<Resampler>>,
        samples: Vec<f32>,
    },
    Opus(OpusEncoder),
}

impl PhoneEncoder {
    /// Creates an encoder of frames at `rate`, one that Opus supports.
    pub fn new(codec: PhoneCodec, rate: u32) -> Result<Self, TransportError> {
        Ok(match codec {
            PhoneCodec::Opus => Self::Opus(OpusEncoder::new(rate)?),
            PhoneCodec::Pcmu | PhoneCodec::Pcma => {
                let differs = rate != TELEPHONE_RATE;
                let resampler = differs.then(|| Resampler::new(rate, TELEPHONE_RATE)).transpose()?.map(Box::new);
                Self::G711 { a_law: codec == PhoneCodec::Pcma, resampler, samples: Vec::new() }
            }
        })
    }

    /// Encodes one frame.
    pub fn encode(&mut self, frame: &[f32]) -> Result<Vec<u8>, TransportError> {
        match self {
            Self::Opus(encoder) => Ok(encoder.encode(frame)?.payload.to_vec()),
            Self::G711 { a_law, resampler, samples } => {
                match resampler {
                    Some(resampler) => samples.extend_from_slice(resampler.convert(frame)?),
                    None => samples.extend_from_slice(frame),
                }
                // A resampler's first samples come late.
                let length = (u128::from(TELEPHONE_RATE) * FRAME.as_millis() / 1_000) as usize;
                if samples.len() < length {
                    samples.splice(0..0, std::iter::repeat_n(0.0, length - samples.len()));
                }
                let frame: Vec<f32> = samples.drain(..length).collect();
                Ok(if *a_law { pcm::encode_alaw(&frame) } else { pcm::encode_mulaw(&frame) })
            }
        }
    }
}

/// Decoder of a stream.
#[derive(Debug)]
pub(super) enum PhoneDecoder {
    /// G.711; true for A-law. It keeps the last packet for a lost one.
    G711 {
        a_law: bool,
        last: Vec<f32>,
    },
    Opus {
        decoder: OpusDecoder,
        rate: u32,
    },
}

impl PhoneDecoder {
    /// Creates a decoder for a model at `rate`.
    pub fn new(codec: PhoneCodec, rate: u32) -> Result<Self, TransportError> {
        let rate = frame_rate(codec, rate);
        Ok(match codec {
            PhoneCodec::Opus => Self::Opus { decoder: OpusDecoder::new(rate)?, rate },
            PhoneCodec::Pcmu | PhoneCodec::Pcma => Self::G711 { a_law: codec == PhoneCodec::Pcma, last: Vec::new() },
        })
    }

    /// Rate of the samples, in Hz.
    pub fn rate(&self) -> u32 {
        match self {
            Self::G711 { .. } => TELEPHONE_RATE,
            Self::Opus { rate, .. } => *rate,
        }
    }

    /// Decodes a packet.
    pub fn decode(&mut self, payload: &[u8]) -> Result<Vec<f32>, TransportError> {
        match self {
            Self::Opus { decoder, .. } => Ok(decoder.decode(payload)?),
            Self::G711 { a_law, last } => {
                let samples = if *a_law { pcm::decode_alaw(payload) } else { pcm::decode_mulaw(payload) };
                last.clone_from(&samples);
                Ok(samples)
            }
        }
    }

    /// Recovers a lost packet, from the packet behind it if there is one.
    pub fn conceal(&mut self, next: Option<&[u8]>, lost: Duration) -> Result<Vec<f32>, TransportError> {
        match (self, next) {
            (Self::Opus { decoder, .. }, Some(next)) => Ok(decoder.decode_fec(next, lost)?),
            (Self::Opus { decoder, .. }, None) => Ok(decoder.conceal(lost)?),
            (Self::G711 { last, .. }, _) => {
                // The last packet again, and softer each time.
                last.iter_mut().for_each(|sample| *sample *= FADE);
                let length = samples_of(lost, TELEPHONE_RATE);
                Ok(last.iter().copied().cycle().take(if last.is_empty() { 0 } else { length }).collect())
            }
        }
    }

    /// Returns zeros of this duration at [`Self::rate`].
    pub fn silence(&self, duration: Duration) -> Vec<f32> {
        vec![0.0; samples_of(duration, self.rate())]
    }
}

fn samples_of(duration: Duration, rate: u32) -> usize {
    (duration.as_secs_f64() * f64::from(rate)).round() as usize
}

#[cfg(test)]
mod tests {
    use repartee_testkit::signal::{dominant_frequency, sine};

    use super::*;

    #[test]
    fn every_codec_carries_a_tone() {
        for (codec, rate) in [
            (PhoneCodec::Pcmu, 8_000),
            (PhoneCodec::Pcma, 8_000),
            (PhoneCodec::Pcmu, 24_000),
            (PhoneCodec::Opus, 24_000),
        ] {
            let mut encoder = PhoneEncoder::new(codec, rate).unwrap();
            let mut decoder = PhoneDecoder::new(codec, 16_000).unwrap();
            let tone = sine(440.0, rate, rate as usize);
            let mut heard = Vec::new();
            for frame in tone.chunks_exact(rate as usize / 50) {
                heard.extend(decoder.decode(&encoder.encode(frame).unwrap()).unwrap());
            }
            assert_eq!(heard.len(), decoder.rate() as usize, "{codec:?} at {rate}");
            let found = dominant_frequency(&heard[heard.len() / 2..], decoder.rate());
            assert!((found - 440.0).abs() < 10.0, "{codec:?} at {rate}: {found}");
        }
    }

    #[test]
    fn lost_packets_fade() {
        let mut decoder = PhoneDecoder::new(PhoneCodec::Pcma, 16_000).unwrap();
        let lost = Duration::from_millis(20);
        assert!(decoder.conceal(None, lost).unwrap().is_empty(), "nothing to repeat");
        decoder.decode(&pcm::encode_alaw(&[0.5; 160])).unwrap();
        let first = decoder.conceal(None, lost).unwrap();
        let second = decoder.conceal(None, lost).unwrap();
        assert_eq!((first.len(), second.len()), (160, 160));
        assert!(second[0] < first[0] && first[0] < 0.3, "{} {}", first[0], second[0]);
    }
}
