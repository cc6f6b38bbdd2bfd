//! Checkpoints in published formats: a folder, or files embedded in the binary, with config.json, safetensors or
//! pickles, and friends; or one GGUF file. The crate `repartee-checkpoint` reads the formats of single files.
//!
//! Opening one reads only config.json, if it exists, and the headers of the weight files. Weights are memory-mapped and
//! returned as bytes. The files of an open checkpoint must not be changed in place: replace the folder instead.
//!
//! - `gguf`: GGUF files, whose metadata are the configuration
//! - `files`: locations of checkpoints, and their files by name
//! - `catalogue`: the weight files among them
//! - `weights`: the tensors of these files; `weight_file`: one of them
//! - `safetensors_header`: the header of one of them
//! - `tensor_data`: a tensor as the models get it
//! - `quantised`: marks and matrices of quantised checkpoints; `compressed`: those of `compressed-tensors`
//! - [`quantise`]: writes a quantised checkpoint
//! - `synthetic`: a published configuration with random weights
//! - `error`: errors, which name file and field

mod catalogue;
mod compressed;
mod error;
mod files;
mod gguf;
pub mod quantise;
mod quantised;
mod safetensors_header;
mod synthetic;
mod tensor_data;
mod weight_file;
mod weights;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use repartee_checkpoint::MappedFile;
use repartee_checkpoint::ctranslate2;
use repartee_checkpoint::gguf::Gguf;
use repartee_text::tokenizer::GgufVocabulary;
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use error::{BadValue, CheckpointError};
pub use files::{CONFIG, Source};
pub use gguf::vocabulary::read_vocabulary;
pub use repartee_kernels::DType;
pub use safetensors_header::safetensors_header;
pub use synthetic::Synthetic;
pub use tensor_data::{TensorData, TensorView};
pub use weights::TensorSize;

use self::gguf::architecture::GgufArchitecture;
use files::Files;
use quantised::Quantisation;
use synthetic::RandomWeights;
use weights::Weights;

/// An open checkpoint, with its configuration and weights.
#[derive(Debug)]
pub struct Checkpoint {
    files: Files,
    name: String,
    /// Parsed config.json; `None` without the file, which some families do not need.
    config: Option<serde_json::Value>,
    weights: Weights,
    /// Form of the matrices; `None` for a checkpoint that is not quantised.
    quantisation: Option<Quantisation>,
    /// Set when a lossy conversion was logged.
    told_loss: OnceLock<()>,
    /// Random weights; `None` for a checkpoint with weights.
    drawing: Option<RandomWeights>,
    /// Header of a GGUF file, and the metadata key of each field; `None` for other forms.
    header: Option<(Gguf, BTreeMap<String, String>)>,
    progress: Option<ReadProgress>,
}

/// Progress reporter of reading weights.
struct ReadProgress {
    /// Bytes returned so far, or layers of random weights. A tensor that is read twice counts twice.
    bytes: Mutex<u64>,
    /// Bytes of all tensors, or number of layers.
    total: u64,
    /// Layers of random weights that were begun.
    drawn: Mutex<BTreeSet<String>>,
    /// Callback with the share of all bytes, 0 to 1.
    tell: Box<dyn Fn(f32) + Send + Sync>,
}

impl fmt::Debug for ReadProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Part of config.json that names the architecture.
#[derive(Deserialize)]
struct Architecture {
    #[serde(default)]
    architectures: Vec<String>,
}

impl Checkpoint {
    /// Reads config.json, if it exists, and the headers of the weight files; on failure nothing stays loaded.
    pub fn open(source: Source) -> Result<Self, CheckpointError> {
        let synthetic = match &source {
            Source::Synthetic(synthetic) => Some(synthetic.clone()),
            Source::Folder(_) | Source::Embedded { .. } => None,
        };
        let (files, name) = Files::locate(source)?;
        let mut config = files.json(CONFIG)?;
        let Some(Synthetic { seed, layers, skewed, .. }) = synthetic else {
            if let Files::Gguf(file) = &files {
                return Self::open_gguf(&file.clone(), name);
            }
            let weights = Weights::open(&files)?;
            if config.is_none()
                && weights.names().next().is_none()
                && let Some(file) = files.gguf()?
            {
                return Self::open_gguf(&file, name);
            }
            let quantisation = Quantisation::find(&files, config.as_ref())?;
            return Ok(Self { quantisation, ..Self::new(files, name, config, weights, None) });
        };
        let drawing = RandomWeights { seed, skewed, layers };
        drawing.limit(&mut config);
        let weights = Weights::none(&files);
        Ok(Self::new(files, name, config, weights, Some(drawing)))
    }

    /// Creates a checkpoint that is not quantised.
    fn new(
        files: Files,
        name: String,
        config: Option<serde_json::Value>,
        weights: Weights,
        drawing: Option<RandomWeights>,
    ) -> Self {
        let (quantisation, told_loss, header, progress) = (None, OnceLock::new(), None, None);
        Self { files, name, config, weights, quantisation, told_loss, drawing, header, progress }
    }

    /// Opens a GGUF file: its metadata become the configuration, its tensors take their published names.
    fn open_gguf(path: &Path, name: String) -> Result<Self, CheckpointError> {
        let file = path.display().to_string();
        let bytes = MappedFile::open(path)?.ok_or_else(|| CheckpointError::FileMissing { file: file.clone() })?;
        let gguf = Gguf::read(&file, &bytes)?;
        let architecture = GgufArchitecture::of(&file, gguf.architecture().unwrap_or_default())?;
        if let Some(parts) = gguf.integer("split.count").filter(|parts| *parts > 1) {
            return Err(CheckpointError::NotOneGguf { file, problem: format!("is one of {parts} parts") });
        }
        let weights = Weights::of_gguf(bytes, &gguf, architecture)?;
        let config = gguf::config::read(&gguf, &weights, architecture)?;
        Ok(Self {
            quantisation: Some(Quantisation::Gguf),
            header: Some((gguf, config.keys)),
            ..Self::new(Files::Gguf(path.to_owned()), name, Some(config.json), weights, None)
        })
    }

    /// Header of a GGUF file; `None` for other forms.
    pub fn gguf(&self) -> Option<&Gguf> {
        self.header.as_ref().map(|(gguf, _)| gguf)
    }

    /// Vocabulary of a GGUF file; `None` for other forms.
    ///
    /// # Errors
    /// The file has no tokens, or a field is wrong.
    pub fn gguf_vocabulary(&self) -> Result<Option<GgufVocabulary>, CheckpointError> {
        self.gguf().map(gguf::vocabulary::required_vocabulary).transpose()
    }

    /// Names of config.json's fields in the files, where they are others, by path.
    pub fn field_names(&self) -> BTreeMap<String, String> {
        self.header.as_ref().map(|(_, keys)| keys.clone()).unwrap_or_default()
    }

    /// Creates a checkpoint from the tensors of a file in another format: name, shape, and as many numbers as the shape
    /// says. It has no configuration.
    pub fn converted(file: &Path, tensors: impl IntoIterator<Item = (String, Vec<usize>, Vec<f32>)>) -> Self {
        let name = file.display().to_string();
        let (files, weights) = (Files::Folder(file.to_owned()), Weights::converted(&name, tensors));
        Self::new(files, name, None, weights, None)
    }

    /// Calls `tell` with the share of the weights that was read, 0 to 1, after each tensor; of random weights with the share of the
    /// layers that were begun.
    pub fn on_read(self, tell: impl Fn(f32) + Send + Sync + 'static) -> Self {
        let total = match (self.drawing, &self.config) {
            (Some(_), Some(config)) => synthetic::count_layers(config),
            _ => self.weights.bytes(),
        };
        let (bytes, drawn) = (Mutex::default(), Mutex::default());
        let reading = ReadProgress { bytes, total: total.max(1), drawn, tell: Box::new(tell) };
        Self { progress: Some(reading), ..self }
    }

    /// Says that the weights are read `times` times, for [`Checkpoint::on_read`]. Layers of random weights count once.
    pub fn read_times(mut self, times: usize) -> Self {
        if let (Some(progress), None) = (&mut self.progress, self.drawing) {
            progress.total *= times as u64;
        }
        self
    }

    /// Opens the checkpoint in a subfolder of this one; some families keep parts there.
    pub fn part(&self, folder: &str) -> Result<Self, CheckpointError> {
        let files = self.files.below(folder)?;
        let mut config = files.json(CONFIG)?;
        if let Some(drawing) = self.drawing {
            drawing.limit(&mut config);
        }
        let weights = if self.drawing.is_some() { Weights::none(&files) } else { Weights::open(&files)? };
        let name = format!("{}/{folder}", self.name);
        Ok(Self::new(files, name, config, weights, self.drawing))
    }

    /// Opens the first of these weight files that the folder has, as a checkpoint of its own without configuration; some
    /// families keep parts in files of their own names.
    ///
    /// # Errors
    /// None of the files exists, or the file is malformed.
    pub fn weights_of(&self, names: &[&str]) -> Result<Self, CheckpointError> {
        let files = self.files.clone();
        let found = names.iter().find(|name| files.has(name));
        let weights = match (found, self.drawing, names.first()) {
            (_, Some(_), _) => Weights::none(&files),
            (Some(name), None, _) => Weights::of_name(&files, name)?,
            (None, None, first) => {
                return Err(CheckpointError::FileMissing { file: files.label(first.copied().unwrap_or_default()) });
            }
        };
        Ok(Self::new(files, self.name.clone(), None, weights, self.drawing))
    }

    /// Form of the weight files and of the matrices in them.
    pub fn form(&self) -> String {
        let names: Vec<&str> = self.weights.file_names().map(|(_, name)| name).collect();
        let form = match names.first() {
            None => return "no weights".to_owned(),
            _ if self.header.is_some() => return "GGUF".to_owned(),
            Some(first) if first.ends_with(".safetensors") => "safetensors",
            Some(&ctranslate2::FILE) => "CTranslate2",
            Some(_) => "PyTorch",
        };
        let files = if names.len() == 1 { "1 file".to_owned() } else { format!("{} files", names.len()) };
        let quantised = self.quantisation.map_or(String::new(), |quantisation| format!(", {}", quantisation.name()));
        format!("{form}, {files}{quantised}")
    }

    /// Number format and bytes of each tensor.
    pub fn tensor_formats(&self) -> impl Iterator<Item = (safetensors::Dtype, u64)> {
        self.weights.formats()
    }

    /// Name, format, rank and bytes of each tensor.
    pub fn tensor_sizes(&self) -> impl Iterator<Item = TensorSize<'_>> {
        self.weights.sizes()
    }

    /// Number of bytes of all tensors.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.bytes()
    }

    /// Name of the folder, or of the embedded files.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Field `architectures` of config.json; empty if the file or the field is absent or malformed.
    pub fn architectures(&self) -> Vec<String> {
        self.config::<Architecture>().map(|config| config.architectures).unwrap_or_default()
    }

    /// First entry of config.json's `architectures`.
    pub fn architecture(&self) -> Result<String, CheckpointError> {
        let config: Architecture = self.config()?;
        config.architectures.into_iter().next().ok_or_else(|| CheckpointError::WrongField {
            file: self.label(CONFIG),
            field: "architectures".to_owned(),
            message: "no architecture is named".to_owned(),
        })
    }

    /// Parses config.json as a `T`; an error names the path of the field.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, CheckpointError> {
        let config = self.config.as_ref().ok_or_else(|| CheckpointError::FileMissing { file: self.label(CONFIG) })?;
        serde_path_to_error::deserialize(config).map_err(|error| self.files.wrong_json(CONFIG, error))
    }

    /// Parses another JSON file of the checkpoint as a `T`; `None` if the file is missing.
    pub fn json_file<T: DeserializeOwned>(&self, file: &str) -> Result<Option<T>, CheckpointError> {
        self.files.json(file)
    }

    /// Names of all files beside config.json, in alphabetical order; folders are left out.
    pub fn file_names(&self) -> Result<Vec<String>, CheckpointError> {
        self.files.names()
    }

    /// Reads a file that the checkpoint must have, such as tokenizer.json.
    pub fn bytes(&self, file: &str) -> Result<Cow<'static, [u8]>, CheckpointError> {
        self.files.read(file)?.ok_or_else(|| CheckpointError::FileMissing { file: self.label(file) })
    }

    /// True if a file of this name exists.
    pub fn has_file(&self, file: &str) -> bool {
        self.files.has(file)
    }

    /// Label of `file` in errors: its path, or the names of the embedded checkpoint and the file.
    pub fn label(&self, file: &str) -> String {
        self.files.label(file)
    }

    /// Returns the tensor `name`, which must have the shape `expected` and a supported floating-point format.
    pub fn tensor(&self, name: &str, expected: &[usize]) -> Result<TensorView<'_>, CheckpointError> {
        let tensor = self.weights.get(name, expected)?;
        self.tell(tensor.bytes.len());
        Ok(tensor)
    }

    /// Reports that `more` bytes were read.
    fn tell(&self, more: usize) {
        if let Some(ReadProgress { bytes, total, tell, .. }) = &self.progress {
            // Locked while it reports, so that the share never falls; a panic leaves a count.
            let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
            *bytes += more as u64;
            tell((*bytes as f64 / *total as f64).min(1.0) as f32);
        }
    }

    /// Reports the layer of a random tensor, if it is the first of it.
    fn tell_drawn(&self, name: &str) {
        if let (Some(progress), Some(layer)) = (&self.progress, synthetic::layer_of(name)) {
            let new = progress.drawn.lock().unwrap_or_else(PoisonError::into_inner).insert(layer.to_owned());
            if new {
                self.tell(1);
            }
        }
    }

    /// Data of the tensor `name`: random, in the form of a quantised checkpoint, or as [`Checkpoint::tensor`] returns it.
    /// A converted tensor is in memory, the others stay in the mapped file. The first lossy conversion is logged.
    pub fn numbers<'a>(&'a self, name: &'a str, expected: &'a [usize]) -> Result<TensorData<'a>, CheckpointError> {
        if let Some(drawing) = self.drawing {
            self.tell_drawn(name);
            return Ok(TensorData::Drawn(drawing.tensor(name, expected)));
        }
        let Some(quantisation) = self.quantisation else { return self.tensor(name, expected).map(TensorData::Stored) };
        let Some((data, loss)) = quantised::matrix(&self.weights, quantisation, name, expected)? else {
            return self.tensor(name, expected).map(TensorData::Stored);
        };
        if let Some(loss) = loss {
            self.told_loss.get_or_init(|| tracing::info!(checkpoint = self.name, "{loss}"));
        }
        self.tell(match &data {
            TensorData::Stored(TensorView { bytes, .. }) => bytes.len() / 2,
            TensorData::Packed(matrix) => matrix.integers.len() + matrix.scales.len(),
            TensorData::Repacked(matrix) => matrix.bytes(),
            TensorData::Drawn(_) => 0,
        });
        Ok(data)
    }

    /// Seed of random weights; `None` for stored weights.
    pub fn drawn(&self) -> Option<u64> {
        self.drawing.map(|drawing| drawing.seed)
    }

    /// True if random weights make some experts far more frequent than others.
    pub fn is_skewed(&self) -> bool {
        self.drawing.is_some_and(|drawing| drawing.skewed)
    }

    /// True if a tensor `name` exists, of any shape.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.weights.has(name)
    }

    /// Shape of a tensor, if it exists.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.weights.shape(name)
    }

    /// Names of all tensors, in alphabetical order.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.weights.names()
    }
}
