//! The header of a GGUF file, read by candle within bounds: a header is at most [`MOST`] bytes, and an error names the
//! key or tensor that was read last.

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;

use candle_core::quantized::gguf_file::Content;

use crate::error::FormatError;

/// First bytes of a GGUF file.
pub const MAGIC: &[u8] = b"GGUF";
/// Bytes of the longest header: a vocabulary of 262,144 tokens takes 7 MB. candle's values take up to 32 times the
/// bytes of the file.
const MOST: u64 = 32 << 20;
/// Key whose value candle divides by.
const ALIGNMENT: &[u8] = b"general.alignment";

/// Reads the header of a whole file.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Content, FormatError> {
    if !bytes.starts_with(MAGIC) {
        let message = "this is not a GGUF file: name a file that begins with GGUF";
        return Err(FormatError::refused(file, "its first bytes", message));
    }
    let mut reader = HeaderReader { bytes: Cursor::new(bytes), length: None, text: None, steps: 0 };
    Content::read(&mut reader).map_err(|error| {
        let (field, at) = (reader.field(), reader.bytes.position());
        // candle adds a backtrace where one is wanted.
        let message = error.to_string();
        let message = message.lines().next().unwrap_or_default();
        if let Some(kind) = message.strip_prefix("unknown dtype for tensor ") {
            let message =
                format!("has blocks of the type {kind}, which are not read: take a file of another quantisation");
            return FormatError::refused(file, format!("tensor {field}"), message);
        }
        FormatError::refused(
            file,
            field,
            format!("{message}, before byte {at} of {}: copy the file again", bytes.len()),
        )
    })
}

/// Bytes of a file, watched while candle reads them.
struct HeaderReader<'a> {
    bytes: Cursor<&'a [u8]>,
    /// Number that the last read got, if it had eight bytes: the length of a text.
    length: Option<u64>,
    /// Place of the last text.
    text: Option<Range<usize>>,
    /// Reads since the last text.
    steps: usize,
}

impl HeaderReader<'_> {
    fn last_text(&self) -> &[u8] {
        self.text.clone().and_then(|range| self.bytes.get_ref().get(range)).unwrap_or_default()
    }

    /// Key or tensor that was read last.
    fn field(&self) -> String {
        match self.last_text() {
            [] => "its counts".to_owned(),
            text => String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned(),
        }
    }
}

impl Read for HeaderReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let start = self.bytes.position();
        if start + buffer.len() as u64 > MOST {
            return Err(io::Error::other(format!("the header has more than {} MiB", MOST >> 20)));
        }
        let read = self.bytes.read(buffer)?;
        if buffer.len() as u64 == self.length.take().unwrap_or(u64::MAX) {
            self.text = Some(start as usize..start as usize + read);
            self.steps = 0;
        } else {
            self.steps += 1;
            // Behind a key come the type of the value and the value.
            if self.last_text() == ALIGNMENT && self.steps == 2 && buffer.iter().all(|byte| *byte == 0) {
                return Err(io::Error::other("is 0, and must be a multiple of 8"));
            }
        }
        self.length = <[u8; 8]>::try_from(&*buffer).ok().map(u64::from_le_bytes);
        Ok(read)
    }
}

impl Seek for HeaderReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}
