//! Tensors of a checkpoint: memory-mapped safetensors files; only the headers are read at the start.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use memmap2::{Advice, Mmap, UncheckedAdvice};
use repartee_kernels::DType;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde::Deserialize;

use super::CheckpointError;
use super::files::Files;

pub(super) const SINGLE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Bytes read between two releases of the mapped pages: callers copy tensors, and the memory shall not hold both.
const PAGES_KEPT: u64 = 256 << 20;

/// Read-ahead behind a tensor, in bytes. Models read tensors in about the order of the file, so the disk works while
/// one is packed or copied to a device.
const READ_AHEAD: usize = 64 << 20;

/// A tensor as stored in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorView<'a> {
    /// Number format of the elements.
    pub dtype: DType,
    /// Shape, slowest dimension first.
    pub shape: &'a [usize],
    /// Elements, row-major and little endian. Their address need not be aligned to the element's size.
    pub bytes: &'a [u8],
}

/// Weight files of one checkpoint, and the location of each tensor in them.
#[derive(Debug)]
pub(super) struct Weights {
    files: Vec<WeightFile>,
    tensors: BTreeMap<String, Location>,
    /// File that errors of absent tensors name: the single file, or the index.
    catalogue: String,
    /// Bytes returned so far.
    handed_out: AtomicU64,
}

#[derive(Debug)]
struct WeightFile {
    /// File name within its folder.
    name: String,
    /// Label in errors.
    label: String,
    bytes: Bytes,
    /// End of the last read-ahead request.
    asked: AtomicUsize,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Embedded(&'static [u8]),
    Converted(Vec<u8>),
}

impl Bytes {
    /// Asks the system to read these bytes ahead.
    fn read_soon(&self, range: Range<usize>) {
        if let Self::Mapped(map) = self {
            // If the system refuses, the bytes are read on first use.
            let _ = map.advise_range(Advice::WillNeed, range.start, range.len());
        }
    }

    /// Releases pages that were read. A later read gets the same bytes from the file.
    fn give_back(&self) {
        if let Self::Mapped(map) = self {
            // SAFETY: nothing writes to the map, so no page of it is private: dropped pages are the file's, and are
            // read from it again. If the system refuses, the pages stay.
            let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Embedded(bytes) => bytes,
            Self::Converted(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
struct Location {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    /// Maps the single weight file, or the shards that the index names, and reads their headers. A checkpoint without
    /// either has no tensors.
    pub(super) fn open(files: &Files) -> Result<Self, CheckpointError> {
        if files.has(SINGLE) {
            let mut weights = Self {
                files: Vec::new(),
                tensors: BTreeMap::new(),
                catalogue: files.label(SINGLE),
                handed_out: AtomicU64::default(),
            };
            weights.add(files, SINGLE)?;
            return Ok(weights);
        }
        match files.json::<Index>(INDEX)? {
            Some(index) => Self::open_shards(files, &index),
            // The family that claims the checkpoint decides which tensors it needs.
            None => Ok(Self::none(files)),
        }
    }

    /// Creates weights without tensors.
    pub(super) fn none(files: &Files) -> Self {
        Self {
            files: Vec::new(),
            tensors: BTreeMap::new(),
            catalogue: files.label(SINGLE),
            handed_out: AtomicU64::default(),
        }
    }

    /// Creates weights from tensors of the file `label`, which is in another format: name, shape, and as many numbers as
    /// the shape says.
    pub(super) fn converted(label: &str, tensors: impl IntoIterator<Item = (String, Vec<usize>, Vec<f32>)>) -> Self {
        let (mut bytes, mut locations) = (Vec::new(), BTreeMap::new());
        for (name, shape, numbers) in tensors {
            let start = bytes.len();
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            locations.insert(name, Location { file: 0, dtype: Dtype::F32, shape, bytes: start..bytes.len() });
        }
        let (name, bytes) = (label.to_owned(), Bytes::Converted(bytes));
        let file = WeightFile { label: name.clone(), name: name.clone(), bytes, asked: AtomicUsize::default() };
        Self { files: vec![file], tensors: locations, catalogue: name, handed_out: AtomicU64::default() }
    }

    fn open_shards(files: &Files, index: &Index) -> Result<Self, CheckpointError> {
        let label = files.label(INDEX);
        let mut weights = Self {
            files: Vec::new(),
            tensors: BTreeMap::new(),
            catalogue: label.clone(),
            handed_out: AtomicU64::default(),
        };
        let mut opened = BTreeMap::new();
        for (tensor, shard) in &index.weight_map {
            if !opened.contains_key(shard.as_str()) {
                // A shard must be in its index's folder; a path could name any file of this machine.
                let in_folder = Path::new(shard).file_name().is_some_and(|name| name == shard.as_str());
                if !in_folder || !files.has(shard) {
                    let (shard, tensor) = (shard.clone(), tensor.clone());
                    return Err(CheckpointError::MissingShard { index: label, shard, tensor });
                }
                opened.insert(shard.as_str(), weights.files.len());
                weights.add(files, shard)?;
            }
            let found = weights.tensors.get(tensor).map(|location| location.file);
            if found != opened.get(shard.as_str()).copied() {
                let (shard, tensor) = (shard.clone(), tensor.clone());
                return Err(CheckpointError::NotInShard { index: label, shard, tensor });
            }
        }
        Ok(weights)
    }

    fn add(&mut self, files: &Files, name: &str) -> Result<(), CheckpointError> {
        let label = files.label(name);
        let bytes = match files {
            Files::Folder(folder) => {
                Bytes::Mapped(map(&folder.join(name)).map_err(|error| files.unreadable(name, error))?)
            }
            Files::Embedded { .. } => Bytes::Embedded(files.embedded(name).unwrap_or_default()),
        };
        let (header, metadata) = SafeTensors::read_metadata(&bytes)
            .map_err(|error| CheckpointError::CorruptWeights { file: label.clone(), message: describe(error) })?;
        // The header's length stands in eight bytes before it; offsets count from its end. `read_metadata` has checked
        // that they are inside the file and agree with dtype and shape.
        let start = size_of::<u64>() + header;
        for (tensor, info) in metadata.tensors() {
            let bytes = start + info.data_offsets.0..start + info.data_offsets.1;
            let location = Location { file: self.files.len(), dtype: info.dtype, shape: info.shape.clone(), bytes };
            self.tensors.insert(tensor, location);
        }
        self.files.push(WeightFile { name: name.to_owned(), label, bytes, asked: AtomicUsize::default() });
        Ok(())
    }

    /// Number of bytes of all tensors.
    pub(super) fn bytes(&self) -> u64 {
        self.tensors.values().map(|location| location.bytes.len() as u64).sum()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|location| &location.shape[..])
    }

    pub(super) fn dtype(&self, name: &str) -> Option<Dtype> {
        self.tensors.get(name).map(|location| location.dtype)
    }

    /// Label of the file that has a tensor, or should have it.
    pub(super) fn file_of(&self, name: &str) -> String {
        self.tensors.get(name).map_or(&self.catalogue, |location| &self.files[location.file].label).clone()
    }

    /// Returns a tensor of any format and shape.
    pub(super) fn raw(&self, name: &str) -> Result<(Dtype, &[usize], &[u8]), CheckpointError> {
        let missing = || CheckpointError::MissingTensor { file: self.catalogue.clone(), tensor: name.to_owned() };
        let Location { file, dtype, shape, bytes } = self.tensors.get(name).ok_or_else(missing)?;
        Ok((*dtype, shape, self.hand_out(*file, bytes)))
    }

    /// Returns bytes of a file, with read-ahead and release of pages.
    fn hand_out(&self, file: usize, range: &Range<usize>) -> &[u8] {
        let before = self.handed_out.fetch_add(range.len() as u64, Ordering::Relaxed);
        if before / PAGES_KEPT != (before + range.len() as u64) / PAGES_KEPT {
            self.files.iter().for_each(|file| file.bytes.give_back());
        }
        let WeightFile { bytes, asked, .. } = &self.files[file];
        if let Some(next) = next_read(asked.load(Ordering::Relaxed), range, bytes.len()) {
            asked.store(next.end, Ordering::Relaxed);
            bytes.read_soon(next);
        }
        &bytes[range.clone()]
    }

    /// Names of the weight files, in a fixed order.
    pub(super) fn file_names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.files.iter().map(|file| &file.name[..]).enumerate()
    }

    /// Names of a file's tensors, in alphabetical order.
    pub(super) fn names_in(&self, file: usize) -> impl Iterator<Item = &str> {
        self.tensors.iter().filter(move |(_, location)| location.file == file).map(|(name, _)| &name[..])
    }

    pub(super) fn get(&self, name: &str, expected: &[usize]) -> Result<TensorView<'_>, CheckpointError> {
        if self.files.is_empty() {
            return Err(CheckpointError::FileMissing { file: self.catalogue.clone() });
        }
        let Some(location) = self.tensors.get(name) else {
            let (file, tensor) = (self.catalogue.clone(), name.to_owned());
            return Err(CheckpointError::MissingTensor { file, tensor });
        };
        let file = &self.files[location.file];
        if location.shape != expected {
            return Err(CheckpointError::WrongShape {
                file: file.label.clone(),
                tensor: name.to_owned(),
                expected: expected.to_vec(),
                found: location.shape.clone(),
            });
        }
        let dtype = match location.dtype {
            Dtype::BF16 => DType::Bf16,
            Dtype::F16 => DType::F16,
            Dtype::F32 => DType::F32,
            other => {
                let (file, tensor) = (file.label.clone(), name.to_owned());
                return Err(CheckpointError::UnsupportedDtype { file, tensor, found: format!("{other:?}") });
            }
        };
        Ok(TensorView { dtype, shape: &location.shape, bytes: self.hand_out(location.file, &location.bytes) })
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

fn map(path: &Path) -> std::io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the map is private to `Weights` and only ever read as plain bytes, for which every bit pattern is valid.
    // One obligation remains: no process may truncate or rewrite the file while it is mapped. A served checkpoint is
    // not edited in place (documented at `Checkpoint`), and `Weights` lives only until the models have copied their
    // tensors.
    unsafe { Mmap::map(&file) }
}

fn describe(error: SafeTensorError) -> String {
    match error {
        SafeTensorError::HeaderTooSmall | SafeTensorError::InvalidHeaderLength => {
            "the file ends within its header".to_owned()
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            "the header promises another number of bytes than the file has".to_owned()
        }
        SafeTensorError::InvalidHeaderDeserialization(error) => format!("the header is not JSON: {error}"),
        other => other.to_string(),
    }
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
