//! Locations of checkpoints, and their files by name.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use super::{CheckpointError, Synthetic};

/// File that describes a checkpoint.
pub const CONFIG: &str = "config.json";

/// Location of a checkpoint.
#[derive(Debug, Clone)]
pub enum Source {
    /// A folder on disk.
    Folder(PathBuf),
    /// Files that are part of the binary.
    Embedded {
        /// Display name of the checkpoint.
        name: &'static str,
        /// File names and contents.
        files: &'static [(&'static str, &'static [u8])],
    },
    /// A published configuration with random weights.
    Synthetic(Synthetic),
}

/// Files of a checkpoint, read by name.
#[derive(Debug)]
pub(super) enum Files {
    Folder(PathBuf),
    Embedded {
        name: &'static str,
        files: &'static [(&'static str, &'static [u8])],
        /// Prefix of the files' names: a folder and a slash, or empty.
        prefix: String,
    },
}

impl Files {
    /// Opens a source; returns its files and its display name.
    pub(super) fn locate(source: Source) -> Result<(Self, String), CheckpointError> {
        match source {
            Source::Embedded { name, files } => {
                Ok((Self::Embedded { name, files, prefix: String::new() }, name.to_owned()))
            }
            Source::Folder(folder) | Source::Synthetic(Synthetic { folder, .. }) if folder.is_dir() => {
                // `.` and a trailing `..` have no name of their own.
                let whole = folder.canonicalize().unwrap_or_else(|_| folder.clone());
                let name = whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned();
                Ok((Self::Folder(folder), name))
            }
            Source::Folder(folder) | Source::Synthetic(Synthetic { folder, .. }) => {
                Err(CheckpointError::FolderMissing { folder })
            }
        }
    }

    /// Files of a subfolder.
    pub(super) fn below(&self, folder: &str) -> Result<Self, CheckpointError> {
        match self {
            Self::Folder(home) => match home.join(folder) {
                below if below.is_dir() => Ok(Self::Folder(below)),
                folder => Err(CheckpointError::FolderMissing { folder }),
            },
            Self::Embedded { name, files, prefix } => {
                let prefix = format!("{prefix}{folder}/");
                if !files.iter().any(|(name, _)| name.starts_with(&prefix)) {
                    return Err(CheckpointError::FolderMissing { folder: PathBuf::from(format!("{name}/{prefix}")) });
                }
                Ok(Self::Embedded { name, files, prefix })
            }
        }
    }

    /// Label of a file in errors.
    pub(super) fn label(&self, file: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(file).display().to_string(),
            Self::Embedded { name, prefix, .. } => format!("{name}/{prefix}{file}"),
        }
    }

    /// True if a file of this name exists.
    pub(super) fn has(&self, file: &str) -> bool {
        match self {
            Self::Folder(folder) => folder.join(file).is_file(),
            Self::Embedded { .. } => self.embedded(file).is_some(),
        }
    }

    pub(super) fn embedded(&self, file: &str) -> Option<&'static [u8]> {
        match self {
            Self::Folder(_) => None,
            Self::Embedded { files, prefix, .. } => {
                let found = files.iter().find(|(name, _)| name.strip_prefix(&prefix[..]) == Some(file));
                found.map(|(_, bytes)| *bytes)
            }
        }
    }

    /// Reads a file; `None` if it is missing.
    pub(super) fn read(&self, file: &str) -> Result<Option<Cow<'static, [u8]>>, CheckpointError> {
        match self {
            Self::Embedded { .. } => Ok(self.embedded(file).map(Cow::Borrowed)),
            Self::Folder(folder) => match std::fs::read(folder.join(file)) {
                Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(self.unreadable(file, error)),
            },
        }
    }

    /// Parses a JSON file as a `T`; `None` if it is missing.
    pub(super) fn json<T: DeserializeOwned>(&self, file: &str) -> Result<Option<T>, CheckpointError> {
        let Some(bytes) = self.read(file)? else { return Ok(None) };
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| self.wrong_json(file, error))?;
        json.end().map_err(|error| self.not_json(file, &error))?;
        Ok(Some(value))
    }

    /// Error of a JSON file of another shape; it names the field.
    pub(super) fn wrong_json(
        &self,
        file: &str,
        error: serde_path_to_error::Error<serde_json::Error>,
    ) -> CheckpointError {
        if !error.inner().is_data() {
            return self.not_json(file, error.inner());
        }
        let field = match error.path().to_string() {
            root if root == "." => "top level".to_owned(),
            path => path,
        };
        CheckpointError::WrongField { file: self.label(file), field, message: error.inner().to_string() }
    }

    fn not_json(&self, file: &str, error: &serde_json::Error) -> CheckpointError {
        CheckpointError::NotJson { file: self.label(file), message: error.to_string() }
    }

    /// Error of a file that cannot be read.
    pub(super) fn unreadable(&self, file: &str, reason: io::Error) -> CheckpointError {
        CheckpointError::Unreadable { file: self.label(file), reason }
    }
}
