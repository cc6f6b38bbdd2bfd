//! Speech that a command generates: its times, and the wav file that it is written to.

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use repartee_media::wav::{self, WriteError};
use thiserror::Error;

/// Destination of a wav file (16 bits, mono).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WavTarget {
    /// A file; one that exists is replaced.
    File(PathBuf),
    /// Standard output, written `-`.
    StandardOutput,
}

impl fmt::Display for WavTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::StandardOutput => f.write_str("standard output"),
        }
    }
}

/// Error of writing speech.
#[derive(Debug, Error)]
#[error("cannot write {target}: {error}")]
pub struct SpeechWriteError {
    target: WavTarget,
    error: WriteError,
}

/// Speech so far, mono, and its times.
#[derive(Debug)]
pub struct GeneratedSpeech {
    begun: Instant,
    first_sound: Option<Duration>,
    rate: u32,
    samples: Vec<f32>,
}

/// Times of generated speech.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeechTimes {
    /// Time from the request to the first samples; `None` without audio.
    pub first_sound: Option<Duration>,
    /// Time from the request to the end.
    pub took: Duration,
    /// Duration of the audio.
    pub sound: Duration,
}

impl SpeechTimes {
    /// RTF: generation time divided by duration; below 1 is faster than speech. `None` without audio.
    pub fn rtf(&self) -> Option<f64> {
        (!self.sound.is_zero()).then(|| self.took.as_secs_f64() / self.sound.as_secs_f64())
    }
}

impl fmt::Display for SpeechTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first_sound, rtf)) = self.first_sound.zip(self.rtf()) else { return f.write_str("No sound") };
        write!(
            f,
            "First sound after {:.0} ms, {:.2} s of speech in {:.2} s (RTF {rtf:.2})",
            first_sound.as_secs_f64() * 1_000.0,
            self.sound.as_secs_f64(),
            self.took.as_secs_f64()
        )
    }
}

impl GeneratedSpeech {
    /// Begins speech at `rate` samples a second; it is requested now.
    pub fn begin(rate: u32) -> Self {
        Self { begun: Instant::now(), first_sound: None, rate, samples: Vec::new() }
    }

    /// Adds samples in -1..1.
    pub fn extend(&mut self, samples: &[f32]) {
        self.first_sound.get_or_insert_with(|| self.begun.elapsed());
        self.samples.extend(samples);
    }

    /// Returns the times; the speech ends now.
    pub fn times(&self) -> SpeechTimes {
        let sound = Duration::from_secs_f64(self.samples.len() as f64 / f64::from(self.rate));
        SpeechTimes { first_sound: self.first_sound, took: self.begun.elapsed(), sound }
    }

    /// Writes the samples.
    ///
    /// # Errors
    ///
    /// The target cannot be written, or the samples are too many for a wav file.
    pub fn write(&self, target: &WavTarget) -> Result<(), SpeechWriteError> {
        let write = |bytes: Vec<u8>| match target {
            WavTarget::File(path) => std::fs::write(path, bytes),
            WavTarget::StandardOutput => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes).and_then(|()| out.flush())
            }
        };
        let done = wav::encode(&self.samples, self.rate).and_then(|bytes| Ok(write(bytes)?));
        done.map_err(|error| SpeechWriteError { target: target.clone(), error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_sound_have_no_rtf() {
        let mut speech = GeneratedSpeech::begin(8_000);
        assert_eq!((speech.times().rtf(), speech.times().to_string()), (None, "No sound".to_owned()));
        speech.extend(&[0.0; 4_000]);
        let times = SpeechTimes {
            first_sound: Some(Duration::from_millis(20)),
            took: Duration::from_millis(100),
            ..speech.times()
        };
        assert_eq!(times.to_string(), "First sound after 20 ms, 0.50 s of speech in 0.10 s (RTF 0.20)");
    }
}
