//! The zip archive of a PyTorch file. Its entries are stored without compression, so tensors are read in place.

use std::collections::HashMap;
use std::io::Cursor;
use std::ops::Range;

use zip::{CompressionMethod, ZipArchive};

use crate::error::FormatError;

/// First bytes of a zip archive.
pub(crate) const MAGIC: &[u8] = b"PK\x03\x04";
/// First byte of a pickle, with which files before PyTorch 1.6 begin.
const PICKLE: u8 = 0x80;
/// Most bytes of data.pkl. That of a model with ten thousand tensors has about two million.
const MOST: usize = 32 << 20;

/// Entries of an archive, by their names without the folder around them.
pub(super) struct Archive {
    pickle: Vec<u8>,
    entries: HashMap<String, Range<usize>>,
}

impl Archive {
    /// Reads the directory of an archive.
    pub(super) fn open(file: &str, bytes: &[u8]) -> Result<Self, FormatError> {
        let refused = |message: &str| FormatError::refused(file, "its archive", message);
        if !bytes.starts_with(MAGIC) {
            return Err(refused(match bytes.first() {
                Some(&PICKLE) => "has the form of PyTorch before 1.6: load it there, and save it again",
                _ => "this is no file of PyTorch: copy the file again",
            }));
        }
        let broken =
            |error: zip::result::ZipError| refused(&format!("is truncated or corrupt ({error}): copy the file again"));
        let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
        let mut entries = HashMap::new();
        let mut home = None;
        for index in 0..zip.len() {
            let entry = zip.by_index_raw(index).map_err(broken)?;
            let name = entry.name().map_err(broken)?.into_owned();
            if entry.compression() != CompressionMethod::Stored || entry.encrypted() {
                return Err(refused(&format!("has the compressed entry {name}: save it again with torch.save")));
            }
            let start = entry.data_start().and_then(|start| usize::try_from(start).ok());
            let end = start.zip(usize::try_from(entry.size()).ok()).and_then(|(start, size)| start.checked_add(size));
            let range = start.zip(end).map(|(start, end)| start..end).filter(|range| range.end <= bytes.len());
            let range = range.ok_or_else(|| refused(&format!("has no whole entry {name}: copy the file again")))?;
            if let Some(folder) = name.strip_suffix("data.pkl") {
                home = Some(folder.to_owned());
            }
            entries.insert(name, range);
        }
        let home = home.ok_or_else(|| refused("has no data.pkl: this is no file of PyTorch"))?;
        let mut entries: HashMap<_, _> = entries
            .into_iter()
            .filter_map(|(name, range)| Some((name.strip_prefix(&home)?.to_owned(), range)))
            .collect();
        if entries.get("byteorder").is_some_and(|range| bytes[range.clone()].starts_with(b"big")) {
            return Err(refused("has numbers in big-endian order: save it again on another machine"));
        }
        let pickle = entries.remove("data.pkl").unwrap_or_default();
        if pickle.len() > MOST {
            return Err(refused(&format!("has a data.pkl of {} bytes, and at most {MOST} are read", pickle.len())));
        }
        Ok(Self { pickle: bytes[pickle].to_vec(), entries })
    }

    /// Bytes of the pickle.
    pub(super) fn pickle(&self) -> &[u8] {
        &self.pickle
    }

    /// Place of a storage.
    pub(super) fn storage(&self, key: &str) -> Option<Range<usize>> {
        self.entries.get(&format!("data/{key}")).cloned()
    }
}
