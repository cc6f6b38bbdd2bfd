//! Entry of the decoder.

use std::time::Duration;

use super::container::{Container, detect, without_tags};
use super::error::SoundFileError;
use super::sink::SoundSink;
use super::{packets, riff};

/// Decoded sound file.
#[derive(Debug, Clone, PartialEq)]
pub struct SoundFile {
    /// Mono samples in -1..1: the channels' mean, or one channel where the mean cancels out (see [`crate::downmix`]).
    pub samples: Vec<f32>,
    /// Sample rate in Hz.
    pub rate: u32,
}

/// Decodes a sound file of any supported format, at most `longest` (in whole seconds), at its own sample rate.
///
/// Takes as long as the codec needs for `longest`: call it on a thread that may block.
pub fn decode(file: &[u8], longest: Duration) -> Result<SoundFile, SoundFileError> {
    let (samples, rate) = into_sink(file, SoundSink::new(None, longest, &mut |_| true))?;
    Ok(SoundFile { samples, rate })
}

/// Decodes a sound file of any supported format, at most `longest` (in whole seconds), to mono samples in -1..1 at `rate`, one of
/// [`crate::resample::RATES`].
///
/// Takes as long as the codec needs for `longest`: call it on a thread that may block.
pub fn read(file: &[u8], rate: u32, longest: Duration) -> Result<Vec<f32>, SoundFileError> {
    read_in_pieces(file, rate, longest, || true)
}

/// Like [`read`], but calls `pause` after each piece of work, some milliseconds, and gives up if it returns false.
pub fn read_in_pieces(
    file: &[u8],
    rate: u32,
    longest: Duration,
    mut pause: impl FnMut() -> bool,
) -> Result<Vec<f32>, SoundFileError> {
    into_sink(file, SoundSink::new(Some(rate), longest, &mut |_| pause())).map(|(samples, _)| samples)
}

/// Like [`read`], but gives the samples to `take` piece by piece, so that a file of any length needs little memory; gives up
/// if it returns false.
///
/// # Errors
///
/// As [`read`]. The samples before a damaged place have been given.
pub fn read_stream(
    file: &[u8],
    rate: u32,
    longest: Duration,
    mut take: impl FnMut(&[f32]) -> bool,
) -> Result<(), SoundFileError> {
    let mut drain = |samples: &mut Vec<f32>| {
        let goes_on = take(samples);
        samples.clear();
        goes_on
    };
    let (mut rest, _) = into_sink(file, SoundSink::new(Some(rate), longest, &mut drain))?;
    if drain(&mut rest) { Ok(()) } else { Err(SoundFileError::Abandoned) }
}

fn into_sink(file: &[u8], mut sink: SoundSink<'_>) -> Result<(Vec<f32>, u32), SoundFileError> {
    let file = without_tags(file);
    match detect(file)? {
        Container::Wav => {
            let wave = riff::parse(file)?;
            match wave.encoding {
                // The packets of an mp3 file, in a wav file.
                riff::Encoding::Mp3 => packets::decode(wave.data, Container::Mp3, &mut sink)?,
                riff::Encoding::Samples(format) => riff::decode(&wave, format, &mut sink)?,
            }
        }
        container => packets::decode(file, container, &mut sink)?,
    }
    sink.finish()
}
