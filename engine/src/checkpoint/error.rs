//! Errors of checkpoints, for the person who set the folder. Every message names the file, the field or tensor, and the
//! remedy.

use std::io;
use std::path::{Path, PathBuf};

use repartee_checkpoint::FormatError;
use thiserror::Error;

/// Error of a checkpoint that cannot be used.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The folder does not exist or is not a folder.
    #[error("{}: no such folder: {}", folder.display(), remedy(folder))]
    FolderMissing {
        /// Path that was given.
        folder: PathBuf,
    },
    /// A file that every checkpoint has is missing.
    #[error("{file}: file missing: copy the whole published checkpoint into one folder")]
    FileMissing {
        /// Path of the missing file.
        file: String,
    },
    /// A file cannot be opened or is malformed.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The folder cannot be listed.
    #[error("{folder}: cannot be listed ({reason}): check its permissions")]
    Unlisted {
        /// Path of the folder.
        folder: String,
        /// Error of the operating system.
        reason: io::Error,
    },
    /// A file is not JSON.
    #[error("{file}: not JSON ({message}): copy the file again")]
    NotJson {
        /// Path of the file.
        file: String,
        /// Error of the JSON parser, with its position.
        message: String,
    },
    /// tokenizer.json is not a tokenizer, though perhaps JSON.
    #[error("{file}: not a tokenizer ({message}): copy the file again")]
    NotATokenizer {
        /// Path of the file.
        file: String,
        /// Error of the tokenizer's parser.
        message: String,
    },
    /// A field is absent or has another type than expected.
    #[error("{file}: {field}: {message}: correct this field")]
    WrongField {
        /// Path of the file.
        file: String,
        /// Path of the field, for instance `thinker_config.text_config.num_attention_heads`.
        field: String,
        /// Error of the field.
        message: String,
    },
    /// An ONNX file is damaged, or has another model.
    #[error("{file}: the layers are not those of {model}: copy the published file again")]
    OtherLayers {
        /// Path of the file.
        file: String,
        /// Name of the expected model.
        model: String,
    },
    /// A field has a value that cannot be served.
    #[error("{file}: {value}")]
    BadValue {
        /// Path of the file.
        file: String,
        /// The field, its value and the allowed values.
        value: BadValue,
    },
    /// No model family supports this checkpoint.
    #[error("{file}: architectures: `{found}` is not supported: choose a checkpoint of {known}")]
    UnknownArchitecture {
        /// Path of the file.
        file: String,
        /// Architecture that the file names.
        found: String,
        /// Supported architectures, separated by commas.
        known: String,
    },
    /// The checkpoint is of a family that is known, and not served.
    #[error("{checkpoint}: {family} is not served yet: choose a checkpoint of {known}")]
    NotServedYet {
        /// Name of the checkpoint.
        checkpoint: String,
        /// Name of its family.
        family: &'static str,
        /// Supported families, separated by commas.
        known: String,
    },
    /// No model family reads GGUF files of this architecture.
    #[error(
        "{file}: general.architecture: `{found}` is not served from GGUF: choose a file of {served}, or a folder with \
         config.json"
    )]
    UnservedGguf {
        /// Path of the file.
        file: String,
        /// Architecture that the file names.
        found: String,
        /// Architectures that are served, separated by commas.
        served: String,
    },
    /// A model in several GGUF files, or several models.
    #[error("{file}: {problem}: name one file that is a whole model")]
    NotOneGguf {
        /// Path of the file or of the folder.
        file: String,
        /// Number of files, or the part that the file is.
        problem: String,
    },
    /// A weight file is given, and a checkpoint is a folder.
    #[error("{file}: is a file: name the folder of its checkpoint (`repartee check` reads files too)")]
    NotAFolder {
        /// Path of the file.
        file: String,
    },
    /// The file is in no form that is read.
    #[error("{file}: is no GGUF, safetensors, PyTorch or ONNX file: copy the file again, or name another")]
    UnknownForm {
        /// Path of the file.
        file: String,
    },
    /// Several model families claim this checkpoint.
    #[error(
        "{folder}: the files are those of several families ({families}): keep those of one checkpoint in the folder"
    )]
    Ambiguous {
        /// Path of the checkpoint.
        folder: String,
        /// Names of the families, separated by commas.
        families: String,
    },
    /// A weight file ends early or its header contradicts itself.
    #[error("{file}: truncated or corrupt safetensors ({message}): copy the file again")]
    CorruptWeights {
        /// Path of the file.
        file: String,
        /// Error of the safetensors header.
        message: String,
    },
    /// The index names a shard that is missing.
    #[error("{index}: weight_map: shard `{shard}` (of tensor {tensor}) is missing: copy it into the same folder")]
    MissingShard {
        /// Path of the index file.
        index: String,
        /// File name of the shard.
        shard: String,
        /// Name of a tensor that it should hold.
        tensor: String,
    },
    /// Weight files are numbered parts of a whole, no index names them, and one is missing.
    #[error("{file}: file missing: without an index every part is read, so copy this one into the folder")]
    MissingPart {
        /// Path of the missing file.
        file: String,
    },
    /// The index places a tensor in a shard that lacks it.
    #[error(
        "{index}: weight_map: tensor {tensor} is not in its shard `{shard}`: index and shards must be of one checkpoint"
    )]
    NotInShard {
        /// Path of the index file.
        index: String,
        /// File name of the shard.
        shard: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// The model needs a tensor that no weight file has.
    #[error("{file}: tensor {tensor} is missing: the weights must belong to config.json")]
    MissingTensor {
        /// Path of the weight file, or of the index of its shards.
        file: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// A tensor has another shape than the configuration implies.
    #[error(
        "{file}: tensor {tensor} has shape {found:?}, expected {expected:?}: the weights must belong to config.json"
    )]
    WrongShape {
        /// Path of the weight file.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// Shape that the configuration implies.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// A tensor of a quantised checkpoint is not supported.
    #[error("{file}: tensor {tensor}: {reason}")]
    RefusedTensor {
        /// Path of the weight file.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// Reason and remedy.
        reason: String,
    },
    /// The number format of a tensor is not supported.
    #[error("{file}: tensor {tensor} has dtype {found}: only BF16, F16 and F32 can be loaded, convert it")]
    UnsupportedDtype {
        /// Path of the weight file.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// Number format in the file.
        found: String,
    },
}

/// Returns the remedy for a folder that does not exist; it may be the name of a published checkpoint.
fn remedy(folder: &Path) -> String {
    let text = folder.to_string_lossy();
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.starts_with('~');
    match text.split('/').collect::<Vec<_>>()[..] {
        [owner, name] if plain(owner) && plain(name) => format!(
            "a checkpoint of the Hugging Face hub is downloaded first, with `hf download {text} --local-dir {name}`; \
             then name the folder {name}"
        ),
        _ => "name a folder that holds config.json and model.safetensors".to_owned(),
    }
}

/// Error of a configuration field with an unsupported value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {value} is not allowed: must be {allowed}")]
pub struct BadValue {
    /// Path of the field, for instance `talker_config.num_code_groups`.
    pub field: String,
    /// Value in the file.
    pub value: String,
    /// Description of the allowed values.
    pub allowed: String,
}
