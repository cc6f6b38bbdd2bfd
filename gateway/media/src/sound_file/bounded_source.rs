//! Source of a file in memory that fails once far more was read than the file holds: a container whose parts refer to each other
//! in a circle ends.

use std::io::{self, Read, Seek, SeekFrom};

use symphonia::core::io::MediaSource;

/// Times that the file may be read, with seeks between its parts.
const READS: u64 = 4;
/// Bytes that may be read of a small file; the library reads whole blocks.
const LEAST: u64 = 4 << 20;

/// File in memory with a limit of reading.
pub(super) struct BoundedSource<'a> {
    file: &'a [u8],
    position: u64,
    /// Bytes that may still be read.
    left: u64,
}

impl<'a> BoundedSource<'a> {
    /// Creates a source at the file's begin.
    pub fn new(file: &'a [u8]) -> Self {
        Self { file, position: 0, left: READS * file.len() as u64 + LEAST }
    }
}

impl Read for BoundedSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begin = usize::try_from(self.position).unwrap_or(usize::MAX).min(self.file.len());
        let length = buffer.len().min(self.file.len() - begin);
        // An empty read costs too, so that no loop of them is endless.
        self.left = self
            .left
            .checked_sub(length.max(1) as u64)
            .ok_or_else(|| io::Error::other("it refers to its parts too often"))?;
        buffer[..length].copy_from_slice(&self.file[begin..begin + length]);
        self.position += length as u64;
        Ok(length)
    }
}

impl Seek for BoundedSource<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => (self.file.len() as u64).checked_add_signed(offset),
        };
        self.position = target.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}

impl MediaSource for BoundedSource<'_> {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.file.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_reading_fails() {
        let mut source = BoundedSource::new(&[1; 1 << 20]);
        let mut buffer = [0; 1 << 16];
        let reads = std::iter::from_fn(|| {
            source.seek(SeekFrom::Start(0)).unwrap();
            source.read(&mut buffer).ok()
        });
        assert_eq!(reads.sum::<usize>(), 8 << 20);
        let mut source = BoundedSource::new(&[]);
        assert_eq!((0..=LEAST).find(|_| source.read(&mut buffer).is_err()), Some(LEAST));
    }

    #[test]
    fn seeks_beyond_the_end_read_nothing() {
        let mut source = BoundedSource::new(b"1234");
        let mut buffer = [0; 8];
        assert_eq!(source.seek(SeekFrom::Start(u64::MAX)).unwrap(), u64::MAX);
        assert_eq!(source.read(&mut buffer).unwrap(), 0);
        assert!(source.seek(SeekFrom::Current(1)).is_err() && source.seek(SeekFrom::End(-5)).is_err());
        source.seek(SeekFrom::End(-1)).unwrap();
        assert_eq!((source.read(&mut buffer).unwrap(), buffer[0]), (1, b'4'));
    }
}
