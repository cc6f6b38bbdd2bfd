//! Summaries of checkpoints: form, sizes, tensors, and the family that serves one. No weights are read.
//!
//! - `checkpoint_summary`: its parts
//! - `folder`: a checkpoint in a folder
//! - `single_file`: one file of any form
//! - `weight_memory`: memory of the weights, by the format of `engine.weights`

mod checkpoint_summary;
mod folder;
mod single_file;
mod weight_memory;

use std::path::Path;

pub use checkpoint_summary::{CheckpointSummary, TensorTotal};
pub use weight_memory::weight_memory;

use crate::checkpoint::{Checkpoint, CheckpointError, Source, Synthetic};
use crate::models::FAMILIES;
use crate::models::family::claimed;
use crate::models::licence::LicenceError;

/// Reads the summary of a folder or of a single file.
///
/// # Errors
/// A file is missing, malformed, or no regular file.
pub fn summarise(path: &Path) -> Result<CheckpointSummary, CheckpointError> {
    if !path.is_dir() {
        return single_file::summarise(path);
    }
    let checkpoint = Checkpoint::open(Source::Folder(path.to_owned()))?;
    match checkpoint.gguf() {
        Some(gguf) => single_file::summarise(Path::new(gguf.file())),
        None => folder::summarise(&checkpoint),
    }
}

/// Checks that the licences of the weights in these folders are accepted, and no others, as loading them does. What is no checkpoint is
/// left out.
///
/// # Errors
/// A licence is not accepted, or an accepted one is of none of them.
pub fn check_licences<'a>(
    folders: impl IntoIterator<Item = &'a Path>,
    accepted: &[String],
) -> Result<(), LicenceError> {
    let open = |folder: &Path| Checkpoint::open(Source::Folder(folder.to_owned())).ok();
    let checkpoints: Vec<Checkpoint> = folders.into_iter().filter_map(open).collect();
    crate::models::check_licences(&checkpoints, accepted)
}

/// Returns the reason for which no family serves the architecture that config.json in `folder` names; `None` if one does, or if none is
/// named. Needs no weights, so a download of them can be spared.
///
/// # Errors
/// A file is malformed.
pub fn refused_architecture(folder: &Path) -> Result<Option<String>, CheckpointError> {
    let without_weights = Synthetic { folder: folder.to_owned(), seed: 0, layers: None, skewed: false };
    let checkpoint = Checkpoint::open(Source::Synthetic(without_weights))?;
    if checkpoint.architectures().is_empty() {
        return Ok(None);
    }
    Ok(claimed(FAMILIES, &checkpoint).err().map(|error| error.to_string()))
}
