//! Tensors of a checkpoint: memory-mapped weight files; only the headers are read at the start.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use repartee_checkpoint::blocks::packed_length;
use repartee_checkpoint::ctranslate2::{self, Ctranslate2Tensor};
use repartee_checkpoint::gguf::{GgmlDType, Gguf};
use repartee_checkpoint::pickle::{PickleTensor, PickleValue};
use repartee_checkpoint::{MappedFile, llama};
use repartee_kernels::DType;
use safetensors::Dtype;

use super::CheckpointError;
use super::catalogue::{Catalogue, FORMS};
use super::files::Files;
use super::gguf::architecture::GgufArchitecture;
use super::safetensors_header::safetensors_header;
use super::tensor_data::TensorView;
use super::weight_file::{FileBytes, WeightFile};

/// Bytes read between two releases of the mapped pages: callers copy tensors, and the memory shall not hold both.
const PAGES_KEPT: u64 = 64 << 20;

/// A tensor of any format.
#[derive(Debug)]
pub(super) struct StoredTensor<'a> {
    /// Number format.
    pub(super) dtype: Dtype,
    /// Shape, slowest dimension first.
    pub(super) shape: &'a [usize],
    /// Elements, row-major and little-endian.
    pub(super) bytes: Cow<'a, [u8]>,
}

/// Size of a tensor.
#[derive(Debug, Clone, Copy)]
pub struct TensorSize<'a> {
    /// Name in published checkpoints; a GGUF file may have another one.
    pub name: &'a str,
    /// Number format; bytes for one in blocks.
    pub dtype: Dtype,
    /// Number of dimensions.
    pub rank: usize,
    /// Bytes, those of blocks as they are packed in memory.
    pub bytes: u64,
}

/// A tensor in blocks of a GGUF file.
#[derive(Debug)]
pub(super) struct StoredBlocks<'a> {
    /// Format of the blocks.
    pub(super) kind: GgmlDType,
    /// Blocks, row-major.
    pub(super) bytes: &'a [u8],
    /// Heads that share the rows, if the rows are in the order of neighbours.
    pub(super) heads: Option<usize>,
}

/// Weight files of one checkpoint, and the location of each tensor in them.
#[derive(Debug)]
pub(super) struct Weights {
    files: Vec<WeightFile>,
    /// Tensors by their published names.
    tensors: BTreeMap<String, Location>,
    /// Architecture of a GGUF file, which has names of its own.
    architecture: Option<&'static GgufArchitecture>,
    /// File that errors of absent tensors name: the single file, or the index.
    catalogue: String,
    /// Bytes returned so far.
    handed_out: AtomicU64,
}

#[derive(Debug)]
struct Location {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    place: Place,
}

/// Place of a tensor's numbers in a file.
#[derive(Debug)]
enum Place {
    /// In row-major order.
    Range(Range<usize>),
    /// View of another tensor in a pickle, whose numbers are gathered.
    View(PickleTensor),
    /// Numbers of a GGUF file whose rows are in the order of neighbours.
    Permuted {
        range: Range<usize>,
        /// Heads that share the rows.
        heads: usize,
    },
    /// Blocks of a GGUF file.
    Blocks { range: Range<usize>, kind: GgmlDType, heads: Option<usize> },
}

impl Location {
    /// Number of bytes.
    fn bytes(&self) -> usize {
        match &self.place {
            Place::Range(range) | Place::Permuted { range, .. } | Place::Blocks { range, .. } => range.len(),
            Place::View(tensor) => tensor.length(),
        }
    }
}

impl Weights {
    /// Maps the weight files and reads their headers. A checkpoint without any has no tensors.
    pub(super) fn open(files: &Files) -> Result<Self, CheckpointError> {
        let mut weights = Self::none(files);
        match Catalogue::find(files)? {
            Catalogue::Index { file, shards } => {
                weights.catalogue = files.label(file);
                weights.add_shards(files, &shards)?;
            }
            // The family that claims the checkpoint decides which tensors it needs.
            Catalogue::Files(names) => {
                if let Some(first) = names.first() {
                    weights.catalogue = files.label(first);
                }
                for name in &names {
                    weights.add(files, name)?;
                }
            }
        }
        Ok(weights)
    }

    /// Maps one weight file and reads its header.
    pub(super) fn of_name(files: &Files, name: &str) -> Result<Self, CheckpointError> {
        let mut weights = Self::none(files);
        weights.catalogue = files.label(name);
        weights.add(files, name)?;
        Ok(weights)
    }

    /// Creates weights without tensors.
    pub(super) fn none(files: &Files) -> Self {
        Self {
            files: Vec::new(),
            tensors: BTreeMap::new(),
            architecture: None,
            catalogue: files.label(FORMS[0].single[0]),
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
            let place = Place::Range(start..bytes.len());
            locations.insert(name, Location { file: 0, dtype: Dtype::F32, shape, place });
        }
        let (name, bytes) = (label.to_owned(), FileBytes::Converted(bytes));
        Self::of_file(name.clone(), name, bytes, locations, None)
    }

    /// Creates weights from one file.
    fn of_file(
        label: String,
        name: String,
        bytes: FileBytes,
        tensors: BTreeMap<String, Location>,
        architecture: Option<&'static GgufArchitecture>,
    ) -> Self {
        let file = WeightFile::new(name, label.clone(), bytes);
        Self { files: vec![file], tensors, architecture, catalogue: label, handed_out: AtomicU64::default() }
    }

    /// Creates weights from a mapped GGUF file. Its tensors take their published names.
    pub(super) fn of_gguf(
        bytes: MappedFile,
        gguf: &Gguf,
        architecture: &'static GgufArchitecture,
    ) -> Result<Self, CheckpointError> {
        let label = gguf.file();
        let heads = |key: &str| gguf.integer(&gguf.own_key(key)).and_then(|heads| usize::try_from(heads).ok());
        let queries = heads("attention.head_count");
        let keys = heads("attention.head_count_kv").or(queries);
        let mut tensors = BTreeMap::new();
        for (own, tensor) in gguf.tensors() {
            let name = architecture.published_name(own).ok_or_else(|| CheckpointError::RefusedTensor {
                file: label.to_owned(),
                tensor: own.clone(),
                reason: format!("is unknown in files of `{}`: choose another model", architecture.name),
            })?;
            let heads = match () {
                () if !architecture.permuted => None,
                () if name.contains(".q_proj.") => queries,
                () if name.contains(".k_proj.") => keys,
                () => None,
            };
            let (range, shape) = (tensor.bytes.clone(), tensor.shape.clone());
            let plain = match tensor.kind {
                GgmlDType::F32 => Some(Dtype::F32),
                GgmlDType::F16 => Some(Dtype::F16),
                GgmlDType::BF16 => Some(Dtype::BF16),
                _ => None,
            };
            let (dtype, place) = match (plain, heads) {
                (Some(dtype), None) => (dtype, Place::Range(range)),
                (Some(dtype), Some(heads)) => (dtype, Place::Permuted { range, heads }),
                (None, heads) => (Dtype::U8, Place::Blocks { range, kind: tensor.kind, heads }),
            };
            tensors.insert(name, Location { file: 0, dtype, shape, place });
        }
        let (label, bytes) = (label.to_owned(), FileBytes::Mapped(bytes));
        Ok(Self::of_file(label.clone(), label, bytes, tensors, Some(architecture)))
    }

    fn add_shards(&mut self, files: &Files, shards: &BTreeMap<String, String>) -> Result<(), CheckpointError> {
        let mut opened = BTreeMap::new();
        for (tensor, shard) in shards {
            if !opened.contains_key(shard.as_str()) {
                // A shard must be in its index's folder; a path could name any file of this machine.
                let in_folder = Path::new(shard).file_name().is_some_and(|name| name == shard.as_str());
                if !in_folder || !files.has(shard) {
                    let (index, shard, tensor) = (self.catalogue.clone(), shard.clone(), tensor.clone());
                    return Err(CheckpointError::MissingShard { index, shard, tensor });
                }
                opened.insert(shard.as_str(), self.files.len());
                self.add(files, shard)?;
            }
            let found = self.tensors.get(tensor).map(|location| location.file);
            if found != opened.get(shard.as_str()).copied() {
                let (index, shard, tensor) = (self.catalogue.clone(), shard.clone(), tensor.clone());
                return Err(CheckpointError::NotInShard { index, shard, tensor });
            }
        }
        Ok(())
    }

    fn add(&mut self, files: &Files, name: &str) -> Result<(), CheckpointError> {
        let label = files.label(name);
        let bytes = match files {
            Files::Folder(folder) => {
                let map = MappedFile::open(&folder.join(name))?;
                FileBytes::Mapped(map.ok_or_else(|| CheckpointError::FileMissing { file: label.clone() })?)
            }
            Files::Embedded { .. } => FileBytes::Embedded(files.embedded(name).unwrap_or_default()),
            Files::Gguf(file) => return Err(CheckpointError::FileMissing { file: file.display().to_string() }),
        };
        if name.ends_with(".safetensors") {
            self.add_safetensors(&label, &bytes)?;
        } else if name == ctranslate2::FILE {
            self.add_ctranslate2(&label, &bytes)?;
        } else {
            self.add_pickle(&label, &bytes)?;
        }
        self.files.push(WeightFile::new(name.to_owned(), label, bytes));
        Ok(())
    }

    fn add_safetensors(&mut self, label: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        let (start, metadata) = safetensors_header(label, bytes)?;
        for (tensor, info) in metadata.tensors() {
            let place = Place::Range(start + info.data_offsets.0..start + info.data_offsets.1);
            let location = Location { file: self.files.len(), dtype: info.dtype, shape: info.shape.clone(), place };
            self.tensors.insert(tensor, location);
        }
        Ok(())
    }

    fn add_ctranslate2(&mut self, label: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        for (name, tensor) in ctranslate2::read_whisper(label, bytes)? {
            let Ctranslate2Tensor { dtype, shape, place } = tensor;
            self.tensors.insert(name, Location { file: self.files.len(), dtype, shape, place: Place::Range(place) });
        }
        Ok(())
    }

    fn add_pickle(&mut self, label: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        for (name, tensor) in PickleValue::read(label, bytes)?.tensors() {
            let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
            let place = tensor.place().map_or_else(|| Place::View(tensor.clone()), Place::Range);
            self.tensors.insert(name, Location { file: self.files.len(), dtype, shape, place });
        }
        Ok(())
    }

    /// Number of bytes of all tensors.
    pub(super) fn bytes(&self) -> u64 {
        self.tensors.values().map(|location| location.bytes() as u64).sum()
    }

    /// Number format and bytes of each tensor.
    pub(super) fn formats(&self) -> impl Iterator<Item = (Dtype, u64)> {
        self.tensors.values().map(|location| (location.dtype, location.bytes() as u64))
    }

    /// Name, format, rank and bytes of each tensor.
    pub(super) fn sizes(&self) -> impl Iterator<Item = TensorSize<'_>> {
        self.tensors.iter().map(|(name, location)| {
            let bytes = match &location.place {
                // A format without a packed form is dequantised.
                Place::Blocks { kind, .. } => packed_length(*kind, &location.shape).unwrap_or_else(|| {
                    location.shape.iter().fold(4, |bytes: u64, &size| bytes.saturating_mul(size as u64))
                }),
                _ => location.bytes() as u64,
            };
            TensorSize { name, dtype: location.dtype, rank: location.shape.len(), bytes }
        })
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

    /// Name of a tensor in its file.
    pub(super) fn own_name(&self, name: &str) -> String {
        self.architecture.map_or_else(|| name.to_owned(), |architecture| architecture.own_name(name))
    }

    /// Error of an absent tensor.
    pub(super) fn missing(&self, name: &str) -> CheckpointError {
        CheckpointError::MissingTensor { file: self.catalogue.clone(), tensor: self.own_name(name) }
    }

    /// Returns a tensor of this shape that is stored in blocks; `None` if it is stored in plain numbers.
    pub(super) fn blocks(&self, name: &str, expected: &[usize]) -> Result<Option<StoredBlocks<'_>>, CheckpointError> {
        let location = self.location(name)?;
        let Place::Blocks { range, kind, heads } = &location.place else { return Ok(None) };
        self.check_shape(name, location, expected)?;
        Ok(Some(StoredBlocks { kind: *kind, bytes: self.hand_out(location.file, range), heads: *heads }))
    }

    fn check_shape(&self, name: &str, location: &Location, expected: &[usize]) -> Result<(), CheckpointError> {
        if location.shape == expected {
            return Ok(());
        }
        Err(CheckpointError::WrongShape {
            file: self.files[location.file].label.clone(),
            tensor: self.own_name(name),
            expected: expected.to_vec(),
            found: location.shape.clone(),
        })
    }

    /// Returns a tensor of any format and shape.
    pub(super) fn raw(&self, name: &str) -> Result<StoredTensor<'_>, CheckpointError> {
        let location = self.location(name)?;
        Ok(StoredTensor { dtype: location.dtype, shape: &location.shape, bytes: self.numbers(location) })
    }

    /// Returns a tensor as [`Weights::raw`] does, in place.
    pub(super) fn in_place(&self, name: &str) -> Result<(Dtype, &[usize], &[u8]), CheckpointError> {
        let location = self.location(name)?;
        match &location.place {
            Place::Range(range) => Ok((location.dtype, &location.shape, self.hand_out(location.file, range))),
            Place::View(_) | Place::Permuted { .. } | Place::Blocks { .. } => {
                let (file, tensor) = (self.files[location.file].label.clone(), self.own_name(name));
                let reason = "is a view of another tensor: save it contiguous".to_owned();
                Err(CheckpointError::RefusedTensor { file, tensor, reason })
            }
        }
    }

    fn location(&self, name: &str) -> Result<&Location, CheckpointError> {
        self.tensors.get(name).ok_or_else(|| self.missing(name))
    }

    /// Returns the numbers of a tensor, gathered if it is a view, and in the published order.
    fn numbers(&self, location: &Location) -> Cow<'_, [u8]> {
        match &location.place {
            Place::Range(range) | Place::Blocks { range, .. } => Cow::Borrowed(self.hand_out(location.file, range)),
            Place::Permuted { range, heads } => {
                let row = range.len().checked_div(location.shape.first().copied().unwrap_or(1)).unwrap_or(0);
                Cow::Owned(llama::unpermuted(self.hand_out(location.file, range), row, *heads))
            }
            Place::View(tensor) => tensor.numbers(&self.files[location.file].bytes),
        }
    }

    /// Returns bytes of a file, with read-ahead and release of pages.
    fn hand_out(&self, file: usize, range: &Range<usize>) -> &[u8] {
        let before = self.handed_out.fetch_add(range.len() as u64, Ordering::Relaxed);
        if before / PAGES_KEPT != (before + range.len() as u64) / PAGES_KEPT {
            self.files.iter().for_each(|file| file.bytes.give_back());
        }
        self.files[file].part(range)
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
        let location = self.location(name)?;
        let file = &self.files[location.file];
        self.check_shape(name, location, expected)?;
        let dtype = match location.dtype {
            Dtype::BF16 => DType::Bf16,
            Dtype::F16 => DType::F16,
            Dtype::F32 => DType::F32,
            other => {
                let (file, tensor) = (file.label.clone(), self.own_name(name));
                return Err(CheckpointError::UnsupportedDtype { file, tensor, found: format!("{other:?}") });
            }
        };
        Ok(TensorView { dtype, shape: &location.shape, bytes: self.numbers(location) })
    }
}
