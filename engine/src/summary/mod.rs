//! Summaries of checkpoints: form, sizes, tensors, and the family that serves one. No weights are read.
//!
//! - `checkpoint_summary`: its parts
//! - `folder`: a checkpoint in a folder
//! - `single_file`: one file of any form

mod checkpoint_summary;
mod folder;
mod single_file;

use std::path::Path;

pub use checkpoint_summary::{CheckpointSummary, TensorTotal};

use crate::checkpoint::{Checkpoint, CheckpointError, Source};

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
