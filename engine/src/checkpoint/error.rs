//! Errors of checkpoints, for the person who set the folder: every message holds the file and
//! the field or tensor, and what to do.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a checkpoint cannot be used.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The folder does not exist or is not a folder.
    #[error("{}: no such folder: name a folder that holds config.json and model.safetensors", folder.display())]
    FolderMissing {
        /// What was named.
        folder: PathBuf,
    },
    /// A file that every checkpoint has is not there.
    #[error("{file}: file missing: copy the whole published checkpoint into one folder")]
    FileMissing {
        /// The file.
        file: String,
    },
    /// A file is published in a form that is not read here.
    #[error("{file}: file missing: make it of {from}: type `{script} FOLDER`, with this folder")]
    NotConverted {
        /// The file that is read.
        file: String,
        /// What is published.
        from: String,
        /// What makes the one of the other.
        script: String,
    },
    /// The operating system could not read a file.
    #[error("{file}: cannot be read ({reason}): check its permissions and the disk")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        reason: io::Error,
    },
    /// A file is not JSON.
    #[error("{file}: not JSON ({message}): copy the file again")]
    NotJson {
        /// The file.
        file: String,
        /// What is wrong and where.
        message: String,
    },
    /// tokenizer.json is JSON perhaps, but no tokenizer.
    #[error("{file}: not a tokenizer ({message}): copy the file again")]
    NotATokenizer {
        /// The file.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// A field is absent or has another type than expected.
    #[error("{file}: {field}: {message}: correct this field")]
    WrongField {
        /// The file.
        file: String,
        /// Where in the file, for instance `thinker_config.text_config.num_attention_heads`.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// A field has a value that cannot be served.
    #[error("{file}: {value}")]
    BadValue {
        /// The file.
        file: String,
        /// The field, its value and what is allowed.
        value: BadValue,
    },
    /// No model family here claims this checkpoint.
    #[error("{file}: architectures: `{found}` is not supported: choose a checkpoint of {known}")]
    UnknownArchitecture {
        /// The file.
        file: String,
        /// What it says.
        found: String,
        /// The architectures that can be served, separated by commas.
        known: String,
    },
    /// Several model families claim this checkpoint.
    #[error(
        "{folder}: the files are those of several families ({families}): keep those of one checkpoint in the folder"
    )]
    Ambiguous {
        /// The checkpoint.
        folder: String,
        /// The families, separated by commas.
        families: String,
    },
    /// A weight file ends early or its header contradicts itself.
    #[error("{file}: truncated or corrupt safetensors ({message}): copy the file again")]
    CorruptWeights {
        /// The file.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// The index names a shard that is not there.
    #[error("{index}: weight_map: shard `{shard}` (of tensor {tensor}) is missing: copy it into the same folder")]
    MissingShard {
        /// The index file.
        index: String,
        /// The shard's file name.
        shard: String,
        /// A tensor that it should hold.
        tensor: String,
    },
    /// The index places a tensor in a shard that lacks it.
    #[error(
        "{index}: weight_map: tensor {tensor} is not in its shard `{shard}`: index and shards must be of one checkpoint"
    )]
    NotInShard {
        /// The index file.
        index: String,
        /// The shard's file name.
        shard: String,
        /// The tensor.
        tensor: String,
    },
    /// The model needs a tensor that no weight file has.
    #[error("{file}: tensor {tensor} is missing: the weights must belong to config.json")]
    MissingTensor {
        /// The weight file, or the index of its shards.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// A tensor has another shape than the configuration implies.
    #[error(
        "{file}: tensor {tensor} has shape {found:?}, expected {expected:?}: the weights must belong to config.json"
    )]
    WrongShape {
        /// The weight file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What the configuration implies.
        expected: Vec<usize>,
        /// What the file has.
        found: Vec<usize>,
    },
    /// A tensor of a quantised checkpoint cannot be served.
    #[error("{file}: tensor {tensor}: {reason}")]
    RefusedTensor {
        /// The weight file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A tensor's number format cannot be loaded.
    #[error("{file}: tensor {tensor} has dtype {found}: only BF16, F16 and F32 can be loaded, convert it")]
    UnsupportedDtype {
        /// The weight file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What the file says.
        found: String,
    },
}

/// A field of a configuration whose value cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {value} is not allowed: must be {allowed}")]
pub struct BadValue {
    /// Where in the file, for instance `talker_config.num_code_groups`.
    pub field: String,
    /// The value that was found.
    pub value: String,
    /// What would be.
    pub allowed: String,
}
