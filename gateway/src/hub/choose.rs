//! The files of a repository that are downloaded: configurations, tokenizers, and the weights in one form.
//!
//! Weights are taken as safetensors if there are any; otherwise as `.bin`, `.pt` and `.pth`, as ONNX, or as one GGUF file.
//! Other forms of the same weights, pictures and programs stay where they are.

use std::path::{Component, Path};

use serde::Deserialize;
use thiserror::Error;

/// Maximum number of files of a repository.
const MAX_FILES: usize = 10_000;
/// Longest path of a file, in bytes.
const MAX_PATH: usize = 255;
/// Endings of configurations and tokenizers.
const SETTINGS: [&str; 6] = ["json", "jinja", "txt", "model", "tiktoken", "yaml"];
/// Endings of weights, the preferred form first.
const WEIGHTS: [&[&str]; 4] = [&["safetensors"], &["bin", "pt", "pth"], &["onnx", "onnx_data"], &["gguf"]];
/// Folders with other forms of the weights, or with what no model reads.
const LEFT_OUT: [&str; 7] = ["original", "onnx", "openvino", "coreml", "flax", "assets", "examples"];

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HubFile {
    /// Path in the repository.
    #[serde(rename = "rfilename")]
    pub path: String,
    /// Size in bytes.
    #[serde(default)]
    pub size: u64,
}

/// Reason for which nothing of a repository is downloaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChooseError {
    /// There are too many files.
    #[error("the repository has more than {MAX_FILES} files: name a smaller one")]
    Many,
    /// A path leaves the folder, or is no name of a file here.
    #[error("the repository has a file {path:?}, which cannot be written: report it to its owner")]
    Path {
        /// The path.
        path: String,
    },
    /// There are no weights.
    #[error("the repository has no weights in safetensors, PyTorch, ONNX or GGUF: name another one")]
    NoWeights,
    /// A wanted file is not there.
    #[error("the repository has no {path}: name another revision")]
    Missing {
        /// Path of the file.
        path: String,
    },
    /// There are several GGUF files, each a whole model.
    #[error(
        "the repository has several GGUF files, of which one is a model: download one of {files} and name that file"
    )]
    Ggufs {
        /// Their names.
        files: String,
    },
}

/// Chooses the files to download, those of configurations first.
pub fn choose(files: Vec<HubFile>) -> Result<Vec<HubFile>, ChooseError> {
    if files.len() > MAX_FILES {
        return Err(ChooseError::Many);
    }
    let mut known = Vec::new();
    for file in files {
        if !is_plain(&file.path) {
            return Err(ChooseError::Path { path: file.path });
        }
        let folder = file.path.split_once('/').map(|(folder, _)| folder);
        if !file.path.starts_with('.') && !folder.is_some_and(|folder| LEFT_OUT.contains(&folder)) {
            known.push(file);
        }
    }
    let form = WEIGHTS.iter().find(|endings| known.iter().any(|file| ends(file, endings)));
    let form = form.ok_or(ChooseError::NoWeights)?;
    let mut weights: Vec<HubFile> = known.iter().filter(|file| ends(file, form)).cloned().collect();
    // A second copy of the weights, for another program.
    if weights.iter().any(|file| !file.path.starts_with("consolidated")) {
        weights.retain(|file| !file.path.starts_with("consolidated"));
    }
    if form.contains(&"gguf") && weights.len() > 1 {
        let files: Vec<&str> = weights.iter().map(|file| &*file.path).take(8).collect();
        return Err(ChooseError::Ggufs { files: files.join(", ") });
    }
    let mut chosen: Vec<HubFile> = known.into_iter().filter(|file| ends(file, &SETTINGS)).collect();
    chosen.extend(weights);
    Ok(chosen)
}

/// True for a file of weights.
pub(super) fn is_weights(file: &HubFile) -> bool {
    WEIGHTS.iter().any(|endings| ends(file, endings))
}

fn ends(file: &HubFile, endings: &[&str]) -> bool {
    file.path.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending))
}

/// True for a relative path of plain names.
fn is_plain(path: &str) -> bool {
    let plain = |component: Component<'_>| matches!(component, Component::Normal(_));
    (1..=MAX_PATH).contains(&path.len())
        && !path.contains(['\\', '\0', ':', '\n', '?', '#', '%'])
        && !path.ends_with('/')
        && Path::new(path).components().all(plain)
}
