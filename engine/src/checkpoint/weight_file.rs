//! A file with tensors: mapped, embedded or converted, and read ahead.

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicUsize, Ordering};

use repartee_checkpoint::MappedFile;

/// Read-ahead behind a tensor, in bytes. Models read tensors in about the order of the file, so the disk works while
/// one is packed or copied to a device.
const READ_AHEAD: usize = 64 << 20;

/// A file with tensors.
#[derive(Debug)]
pub(super) struct WeightFile {
    /// File name within its folder.
    pub(super) name: String,
    /// Label in errors.
    pub(super) label: String,
    /// Contents.
    pub(super) bytes: FileBytes,
    /// End of the last read-ahead request.
    asked: AtomicUsize,
}

/// Contents of a weight file.
#[derive(Debug)]
pub(super) enum FileBytes {
    /// Mapped from the disk.
    Mapped(MappedFile),
    /// Part of the binary.
    Embedded(&'static [u8]),
    /// Made of a file in another format.
    Converted(Vec<u8>),
}

impl FileBytes {
    /// Asks the system to read these bytes ahead.
    fn read_soon(&self, range: Range<usize>) {
        if let Self::Mapped(map) = self {
            map.read_soon(range);
        }
    }

    /// Releases pages that were read. A later read gets the same bytes from the file.
    pub(super) fn give_back(&self) {
        if let Self::Mapped(map) = self {
            map.give_back();
        }
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Embedded(bytes) => bytes,
            Self::Converted(bytes) => bytes,
        }
    }
}

impl WeightFile {
    /// Wraps a file.
    pub(super) fn new(name: String, label: String, bytes: FileBytes) -> Self {
        Self { name, label, bytes, asked: AtomicUsize::default() }
    }

    /// Returns a part of the file, and asks for what follows.
    pub(super) fn part(&self, range: &Range<usize>) -> &[u8] {
        if let Some(next) = next_read(self.asked.load(Ordering::Relaxed), range, self.bytes.len()) {
            self.asked.store(next.end, Ordering::Relaxed);
            self.bytes.read_soon(next);
        }
        &self.bytes[range.clone()]
    }
}

/// Next read-ahead request when a tensor of a file with `len` bytes is read: the tensor and [`READ_AHEAD`] behind it,
/// without bytes before `asked`, the end of the last request. Requests have at least half of [`READ_AHEAD`], so that
/// they are few.
fn next_read(asked: usize, tensor: &Range<usize>, len: usize) -> Option<Range<usize>> {
    let to = (tensor.end + READ_AHEAD).min(len);
    let goes_on = tensor.start <= asked && asked <= to;
    if !goes_on {
        return Some(tensor.start..to);
    }
    let enough = to - asked >= READ_AHEAD / 2 || to == len;
    (enough && asked < to).then_some(asked..to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads tensors of these sizes one after the other; returns the read-ahead requests.
    fn questions(sizes: &[usize], len: usize) -> Vec<Range<usize>> {
        let (mut at, mut asked, mut all) = (0, 0, Vec::new());
        for size in sizes {
            if let Some(next) = next_read(asked, &(at..at + size), len) {
                asked = next.end;
                all.push(next);
            }
            at += size;
            assert!(asked >= (at + READ_AHEAD / 2).min(len), "the tensor behind {at} was not asked for");
            assert!(asked <= at + READ_AHEAD);
        }
        all
    }

    #[test]
    fn tensors_in_order_are_read_ahead_once() {
        let (size, count) = (1 << 20, 1000);
        let all = questions(&vec![size; count], size * count);
        assert_eq!(all[0].start, 0);
        assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "no byte twice, none left out");
        assert_eq!(all.last().map(|last| last.end), Some(size * count));
        assert!(all.len() < 40, "{} questions", all.len());
    }

    #[test]
    fn a_jump_reads_ahead_from_there() {
        let (len, far) = (10 * READ_AHEAD, 7 * READ_AHEAD);
        assert_eq!(next_read(READ_AHEAD, &(far..far + 10), len), Some(far..far + 10 + READ_AHEAD));
        // And back.
        assert_eq!(next_read(far, &(5..10), len), Some(5..10 + READ_AHEAD));
        // Nothing is read beyond the end, and nothing twice.
        assert_eq!(next_read(far, &(len - 10..len), len), Some(len - 10..len));
        assert_eq!(next_read(len, &(len - 10..len), len), None);
    }
}
