//! Locations of checkpoints, and their files by name.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use repartee_checkpoint::form::FileForm;
use repartee_checkpoint::{MappedFile, file};
use serde::de::DeserializeOwned;

use super::{CheckpointError, Synthetic};

/// File that describes a checkpoint.
pub const CONFIG: &str = "config.json";

/// Most bytes of a file that is read whole. The longest tokenizer.json has 34 MB.
const MOST: u64 = 256 << 20;
/// Most bytes of a JSON file that is read into values, which take up to twenty times as much memory. The longest index of a
/// checkpoint has 9 MB.
const MOST_JSON: u64 = 16 << 20;

/// Location of a checkpoint.
#[derive(Debug, Clone)]
pub enum Source {
    /// A folder on disk, or a GGUF file.
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
#[derive(Debug, Clone)]
pub(super) enum Files {
    Folder(PathBuf),
    /// A GGUF file, which is the whole checkpoint.
    Gguf(PathBuf),
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
            Source::Folder(file) if file.is_file() => {
                match MappedFile::open(&file)?.and_then(|bytes| FileForm::of(&bytes)) {
                    Some(FileForm::Gguf) => Ok((Self::Gguf(file.clone()), stem(&file))),
                    _ => Err(CheckpointError::NotAFolder { file: file.display().to_string() }),
                }
            }
            Source::Synthetic(Synthetic { folder: file, .. }) if file.is_file() => {
                Err(CheckpointError::NotAFolder { file: file.display().to_string() })
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
            Self::Gguf(file) => Err(CheckpointError::FolderMissing { folder: file.join(folder) }),
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
            Self::Gguf(whole) => whole.display().to_string(),
            Self::Embedded { name, prefix, .. } => format!("{name}/{prefix}{file}"),
        }
    }

    /// True if something of this name exists; reading it refuses anything but a file.
    pub(super) fn has(&self, file: &str) -> bool {
        match self {
            Self::Folder(folder) => folder.join(file).exists(),
            Self::Gguf(_) => false,
            Self::Embedded { .. } => self.embedded(file).is_some(),
        }
    }

    pub(super) fn embedded(&self, file: &str) -> Option<&'static [u8]> {
        match self {
            Self::Folder(_) | Self::Gguf(_) => None,
            Self::Embedded { files, prefix, .. } => {
                let found = files.iter().find(|(name, _)| name.strip_prefix(&prefix[..]) == Some(file));
                found.map(|(_, bytes)| *bytes)
            }
        }
    }

    /// Reads a file; `None` if it is missing.
    pub(super) fn read(&self, file: &str) -> Result<Option<Cow<'static, [u8]>>, CheckpointError> {
        self.read_within(file, MOST)
    }

    fn read_within(&self, file: &str, most: u64) -> Result<Option<Cow<'static, [u8]>>, CheckpointError> {
        match self {
            Self::Embedded { .. } => Ok(self.embedded(file).map(Cow::Borrowed)),
            Self::Folder(folder) => Ok(file::read(&folder.join(file), most)?.map(Cow::Owned)),
            Self::Gguf(_) => Ok(None),
        }
    }

    /// Names of all files beside config.json, in alphabetical order; folders are left out.
    pub(super) fn names(&self) -> Result<Vec<String>, CheckpointError> {
        let mut names: Vec<String> = match self {
            Self::Embedded { files, prefix, .. } => {
                let names = files.iter().filter_map(|(name, _)| name.strip_prefix(&prefix[..]));
                names.filter(|name| !name.contains('/')).map(str::to_owned).collect()
            }
            Self::Folder(folder) => {
                let unlisted = |reason| CheckpointError::Unlisted { folder: folder.display().to_string(), reason };
                let entries = std::fs::read_dir(folder).map_err(unlisted)?.collect::<Result<Vec<_>, _>>();
                let names = entries.map_err(unlisted)?.into_iter().filter(|entry| !entry.path().is_dir());
                names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
            Self::Gguf(_) => Vec::new(),
        };
        names.sort();
        Ok(names)
    }

    /// Path of the GGUF file that these files are, or that is the only one in the folder; `None` if there is none.
    pub(super) fn gguf(&self) -> Result<Option<PathBuf>, CheckpointError> {
        let folder = match self {
            Self::Gguf(file) => return Ok(Some(file.clone())),
            Self::Folder(folder) => folder,
            Self::Embedded { .. } => return Ok(None),
        };
        let mut names = self.names()?;
        names.retain(|name| name.ends_with(".gguf"));
        match &names[..] {
            [] => Ok(None),
            [name] => Ok(Some(folder.join(name))),
            several => {
                let problem = format!("holds {} GGUF files", several.len());
                Err(CheckpointError::NotOneGguf { file: folder.display().to_string(), problem })
            }
        }
    }

    /// Parses a JSON file as a `T`; `None` if it is missing.
    pub(super) fn json<T: DeserializeOwned>(&self, file: &str) -> Result<Option<T>, CheckpointError> {
        let Some(bytes) = self.read_within(file, MOST_JSON)? else { return Ok(None) };
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
}

/// Name of a file without its ending.
fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}
