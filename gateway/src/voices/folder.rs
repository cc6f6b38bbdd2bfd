//! Files of `voices.folder`: for each consent and voice a JSON file, and the sound file as it was sent, named `.wav`
//! whatever its format: its bytes tell it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Kind of a stored entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Consent,
    Voice,
}

impl EntryKind {
    fn folder(self) -> &'static str {
        match self {
            Self::Consent => "consents",
            Self::Voice => "voices",
        }
    }
}

/// An open folder. Ids are file names: they were generated here, or found in the folder.
#[derive(Debug)]
pub(super) struct VoiceFolder(PathBuf);

impl VoiceFolder {
    /// Creates missing folders. Voices are private, so only this user may read them.
    pub fn open(path: &Path) -> io::Result<Self> {
        for kind in [EntryKind::Consent, EntryKind::Voice] {
            DirBuilder::new().recursive(true).mode(0o700).create(path.join(kind.folder()))?;
        }
        Ok(Self(path.to_owned()))
    }

    /// Reads all entries of a kind. Skips files that cannot be parsed, and files whose name differs from their entry's
    /// `id`.
    pub fn all<T: DeserializeOwned>(&self, kind: EntryKind, id: impl Fn(&T) -> &str) -> io::Result<Vec<T>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.0.join(kind.folder()))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let named = path.file_stem().and_then(|stem| stem.to_str());
            match serde_json::from_slice::<T>(&fs::read(&path)?) {
                Ok(entry) if named == Some(id(&entry)) => all.push(entry),
                Ok(_) => {
                    tracing::warn!(path = %path.display(), "skipped a file whose name is not the id in it")
                }
                Err(error) => tracing::warn!(path = %path.display(), %error, "skipped a file that cannot be parsed"),
            }
        }
        Ok(all)
    }

    /// Reads the sound file of an id.
    pub fn recording(&self, kind: EntryKind, id: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(kind, id, "wav"))
    }

    /// Writes an entry, whole or not at all: the JSON file comes last.
    pub fn write(&self, kind: EntryKind, id: &str, entry: &impl Serialize, recording: Option<&[u8]>) -> io::Result<()> {
        if let Some(recording) = recording {
            write_whole(&self.path(kind, id, "wav"), recording)?;
        }
        write_whole(&self.path(kind, id, "json"), &serde_json::to_vec_pretty(entry)?)
    }

    /// Deletes an entry, if it exists; the JSON file goes first.
    pub fn delete(&self, kind: EntryKind, id: &str) -> io::Result<()> {
        for extension in ["json", "wav"] {
            match fs::remove_file(self.path(kind, id, extension)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn path(&self, kind: EntryKind, id: &str, extension: &str) -> PathBuf {
        self.0.join(kind.folder()).join(format!("{id}.{extension}"))
    }
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, path)
}
