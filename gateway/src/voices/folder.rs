//! Files of `voices.folder`: for each consent and voice a JSON file, and the sound file as it was sent, named `.wav`
//! whatever its format: its bytes tell it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Extension of a file that is being written.
const PART: &str = "part";

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
    /// Creates missing folders, and removes what an interrupted write or deletion has left. Voices are private, so only
    /// this user may read them.
    pub fn open(path: &Path) -> io::Result<Self> {
        for kind in [EntryKind::Consent, EntryKind::Voice] {
            let folder = path.join(kind.folder());
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            sweep(&folder)?;
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

    /// Writes an entry, whole or not at all: the JSON file comes last. A recording that was written before a failure is
    /// removed.
    pub fn write(&self, kind: EntryKind, id: &str, entry: &impl Serialize, recording: Option<&[u8]>) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(entry)?;
        let Some(recording) = recording else {
            return write_whole(&self.path(kind, id, "json"), |file| file.write_all(&text));
        };
        let sound = self.path(kind, id, "wav");
        write_whole(&sound, |file| file.write_all(recording))?;
        let written = write_whole(&self.path(kind, id, "json"), |file| file.write_all(&text));
        if written.is_err() {
            remove(&sound);
        }
        written
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

/// Writes a file, whole or not at all.
fn write_whole(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let part = path.with_extension(PART);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        write(&mut file)?;
        file.sync_all()?;
        fs::rename(&part, path)
    })();
    if written.is_err() {
        remove(&part);
    }
    written
}

/// Removes parts of files, and recordings without their JSON file, which comes last and goes first.
fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        let orphan = extension == Some("wav") && !path.with_extension("json").try_exists()?;
        if orphan || extension == Some(PART) {
            tracing::warn!(path = %path.display(), "removed what an interrupted write or deletion has left");
            remove(&path);
        }
    }
    Ok(())
}

/// Removes a file. A failure is logged: the next start tries again.
fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::error!(path = %path.display(), %error, "a recording cannot be removed: remove it by hand");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = TempDir::new().unwrap();
        let full = |file: &mut File| {
            file.write_all(&[7; 1 << 20])?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        assert!(write_whole(&folder.path().join("one.wav"), full).is_err());
        assert_eq!(names(folder.path()), [""; 0]);
        // The recording is written, and the disk is full before its entry: a folder is in the way of the part.
        let voices = VoiceFolder::open(folder.path()).unwrap();
        let way = folder.path().join("consents/cons_1.json");
        fs::create_dir(&way).unwrap();
        fs::write(way.join("file"), "").unwrap();
        assert!(voices.write(EntryKind::Consent, "cons_1", &"entry", Some(&[7; 1_000])).is_err());
        assert_eq!(names(&folder.path().join("consents")), ["cons_1.json"]);
    }

    #[test]
    fn leftovers_are_swept_at_start() {
        let folder = TempDir::new().unwrap();
        let voices = VoiceFolder::open(folder.path()).unwrap();
        voices.write(EntryKind::Voice, "voice_1", &"entry", Some(&[7; 10])).unwrap();
        let inside = folder.path().join("voices");
        for left in ["voice_2.part", "voice_3.wav"] {
            fs::write(inside.join(left), [7; 100]).unwrap();
        }
        VoiceFolder::open(folder.path()).unwrap();
        assert_eq!(names(&inside), ["voice_1.json", "voice_1.wav"]);
    }
}
