//! Encodes the model's samples as the bytes of a speech response, piece by piece.

use bytes::Bytes;
use repartee_media::flac::FlacWriter;
use repartee_media::mp3::{Mp3Error, Mp3Writer};
use repartee_media::ogg::{OggError, OggOpusWriter};
use repartee_media::resample::{ResampleError, Resampler};
use repartee_media::{pcm, wav};
use thiserror::Error;

use super::request::SpeechFormat;

/// Sample rate of all formats but `wav`, in Hz.
const RATE: u32 = 24_000;

/// Error of encoding samples; an internal error.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Resample(#[from] ResampleError),
    #[error(transparent)]
    Mp3(#[from] Mp3Error),
    #[error(transparent)]
    Ogg(#[from] OggError),
}

/// Encoder of one response's audio.
pub(super) enum AudioWriter {
    /// Wav file at `rate` Hz; `begun` once its header was written.
    Wav { begun: bool, rate: u32 },
    /// 16-bit little-endian samples.
    Pcm(Box<Resampler>),
    /// MP3 frames.
    Mp3(Box<(Resampler, Mp3Writer)>),
    /// FLAC blocks.
    Flac(Box<(Resampler, FlacWriter)>),
    /// Opus packets in Ogg.
    Opus(Box<(Resampler, OggOpusWriter)>),
}

impl AudioWriter {
    /// Creates a writer for samples at `rate` Hz. `serial` identifies an Ogg stream.
    pub fn new(format: SpeechFormat, rate: u32, serial: u32) -> Result<Self, WriteError> {
        Ok(match format {
            SpeechFormat::Wav => Self::Wav { begun: false, rate },
            SpeechFormat::Pcm => Self::Pcm(Box::new(Resampler::new(rate, RATE)?)),
            SpeechFormat::Mp3 => Self::Mp3(Box::new((Resampler::new(rate, RATE)?, Mp3Writer::new(RATE)))),
            SpeechFormat::Flac => Self::Flac(Box::new((Resampler::new(rate, RATE)?, FlacWriter::new(RATE)))),
            SpeechFormat::Opus => {
                Self::Opus(Box::new((Resampler::new(rate, RATE)?, OggOpusWriter::new(RATE, serial)?)))
            }
        })
    }

    /// Returns the media type of the audio.
    pub fn content_type(&self) -> &'static str {
        match self {
            Self::Wav { .. } => "audio/wav",
            Self::Pcm(_) => "audio/pcm",
            Self::Mp3(_) => "audio/mpeg",
            Self::Flac(_) => "audio/flac",
            Self::Opus(_) => "audio/ogg",
        }
    }

    /// Encodes samples; may return no bytes.
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
            Self::Flac(flac) => {
                let (resampler, writer) = &mut **flac;
                writer.push(&resampler.push(samples)?).into()
            }
            Self::Opus(opus) => {
                let (resampler, writer) = &mut **opus;
                writer.push(&resampler.push(samples)?)?.into()
            }
        })
    }

    /// Returns the last bytes; may be empty.
    pub fn finish(self) -> Result<Bytes, WriteError> {
        Ok(match self {
            // A response without audio is a file without samples.
            Self::Wav { begun: false, rate } => wav::stream_header(rate).to_vec().into(),
            Self::Wav { .. } => Bytes::new(),
            Self::Pcm(mut resampler) => pcm::encode_i16le(&resampler.flush()?).into(),
            Self::Mp3(mp3) => {
                let (mut resampler, mut writer) = *mp3;
                let mut bytes = writer.push(&resampler.flush()?)?;
                bytes.extend(writer.finish()?);
                bytes.into()
            }
            Self::Flac(flac) => {
                let (mut resampler, mut writer) = *flac;
                let mut bytes = writer.push(&resampler.flush()?);
                bytes.extend(writer.finish());
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
