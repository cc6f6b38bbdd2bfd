//! Samples of the model as the bytes of a speech response, as they come.

use bytes::Bytes;
use repartee_media::mp3::{Mp3Error, Mp3Writer};
use repartee_media::ogg::{OggError, OggOpusWriter};
use repartee_media::resample::{ResampleError, Resampler};
use repartee_media::{pcm, wav};
use thiserror::Error;

use super::request::SpeechFormat;

/// Samples a second of all but `wav`.
const RATE: u32 = 24_000;

/// Why samples cannot be written: an internal error.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Resample(#[from] ResampleError),
    #[error(transparent)]
    Mp3(#[from] Mp3Error),
    #[error(transparent)]
    Ogg(#[from] OggError),
}

/// Writes the audio of one response.
pub(super) enum AudioWriter {
    /// A wav file: whether its header was written, and its rate.
    Wav { begun: bool, rate: u32 },
    /// Plain samples.
    Pcm(Box<Resampler>),
    /// MP3.
    Mp3(Box<(Resampler, Mp3Writer)>),
    /// Opus in Ogg.
    Opus(Box<(Resampler, OggOpusWriter)>),
}

impl AudioWriter {
    /// For samples at `rate`. `serial` tells Ogg streams apart.
    pub fn new(format: SpeechFormat, rate: u32, serial: u32) -> Result<Self, WriteError> {
        Ok(match format {
            SpeechFormat::Wav => Self::Wav { begun: false, rate },
            SpeechFormat::Pcm => Self::Pcm(Box::new(Resampler::new(rate, RATE)?)),
            SpeechFormat::Mp3 => Self::Mp3(Box::new((Resampler::new(rate, RATE)?, Mp3Writer::new(RATE)))),
            SpeechFormat::Opus => Self::Opus(Box::new((Resampler::new(rate, RATE)?, OggOpusWriter::new(RATE, serial)?))),
        })
    }

    /// Its media type.
    pub fn content_type(&self) -> &'static str {
        match self {
            Self::Wav { .. } => "audio/wav",
            Self::Pcm(_) => "audio/pcm",
            Self::Mp3(_) => "audio/mpeg",
            Self::Opus(_) => "audio/ogg",
        }
    }

    /// The bytes that these samples add; may be none.
    pub fn push(&mut self, samples: &[f32]) -> Result<Bytes, WriteError> {
        Ok(match self {
            Self::Wav { begun, rate } => {
                let header =
                    if std::mem::replace(begun, true) { Vec::new() } else { wav::stream_header(*rate).to_vec() };
                [header, pcm::encode_i16le(samples)].concat().into()
            }
            Self::Pcm(resampler) => pcm::encode_i16le(&resampler.push(samples)?).into(),
            Self::Mp3(mp3) => {
                let (resampler, writer) = &mut **mp3;
                writer.push(&resampler.push(samples)?)?.into()
            }
            Self::Opus(opus) => {
                let (resampler, writer) = &mut **opus;
                writer.push(&resampler.push(samples)?)?.into()
            }
        })
    }

    /// The last bytes; may be none.
    pub fn finish(self) -> Result<Bytes, WriteError> {
        Ok(match self {
            // An answer without sound is a file without samples.
            Self::Wav { begun: false, rate } => wav::stream_header(rate).to_vec().into(),
            Self::Wav { .. } => Bytes::new(),
            Self::Pcm(mut resampler) => pcm::encode_i16le(&resampler.flush()?).into(),
            Self::Mp3(mp3) => {
                let (mut resampler, mut writer) = *mp3;
                let mut bytes = writer.push(&resampler.flush()?)?;
                bytes.extend(writer.finish()?);
                bytes.into()
            }
            Self::Opus(opus) => {
                let (mut resampler, mut writer) = *opus;
                let mut bytes = writer.push(&resampler.flush()?)?;
                bytes.extend(writer.finish()?);
                bytes.into()
            }
        })
    }
}
