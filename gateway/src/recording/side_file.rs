//! File of one side of a call: mono, 16 bits.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use repartee_media::wav;

/// Gap that is filled with silence; a smaller one is jitter.
const GAP: Duration = Duration::from_millis(60);
/// Bytes of a file's head.
const HEAD: u64 = 44;

/// File of one side.
#[derive(Debug)]
pub(super) struct SideFile {
    file: BufWriter<File>,
    rate: u32,
    /// Samples so far.
    samples: u64,
}

impl SideFile {
    /// Creates the file; nobody else may read it.
    pub fn create(path: &Path, rate: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = BufWriter::new(options.open(path)?);
        // Until the end its lengths are the largest ones, which readers take for "to the end".
        file.write_all(&wav::stream_header(rate))?;
        Ok(Self { file, rate, samples: 0 })
    }

    /// Adds a piece that began `at` after the recording, with silence before it where there was none; returns the bytes.
    pub fn add(&mut self, at: Duration, rate: u32, samples: &[i16]) -> io::Result<u64> {
        let before = self.samples;
        let due = (at.as_secs_f64() * f64::from(self.rate)) as u64;
        if due > self.samples + (GAP.as_secs_f64() * f64::from(self.rate)) as u64 {
            self.silence(due)?;
        }
        // Another codec has another rate: its samples are repeated or left out.
        let count = samples.len() as u64 * u64::from(self.rate) / u64::from(rate.max(1));
        for number in 0..count {
            let index = (number * u64::from(rate) / u64::from(self.rate)) as usize;
            let sample = samples.get(index).copied().unwrap_or_default();
            self.file.write_all(&sample.to_le_bytes())?;
        }
        self.samples += count;
        Ok(2 * (self.samples - before))
    }

    /// Fills up with silence until a number of samples.
    fn silence(&mut self, until: u64) -> io::Result<()> {
        while self.samples < until {
            self.file.write_all(&[0, 0])?;
            self.samples += 1;
        }
        Ok(())
    }

    /// Writes what is left, and the lengths.
    pub fn finish(self) -> io::Result<()> {
        let length = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(4))?;
        file.write_all(&length(HEAD - 8 + 2 * self.samples))?;
        file.seek(SeekFrom::Start(HEAD - 4))?;
        file.write_all(&length(2 * self.samples))
    }
}
