//! Files of checkpoints: only regular files are opened, so that a pipe or a device in a file's place blocks nobody.

use std::fs::{File, FileType, Metadata};
use std::io::{self, Read as _};
use std::ops::{Deref, Range};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use memmap2::{Advice, Mmap, UncheckedAdvice};

use crate::error::FormatError;

/// Beginning of a Git LFS pointer.
const LFS: &[u8] = b"version https://git-lfs";
/// Bytes that a Git LFS pointer has at most.
const LFS_LENGTH: usize = 1024;

/// Regular file, mapped into memory and read-only.
#[derive(Debug)]
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps a regular file; `None` if nothing is at `path`.
    ///
    /// The file must not be truncated or rewritten while it is mapped: replace it instead.
    ///
    /// # Errors
    /// Something else than a file is there, it cannot be read, or it is a Git LFS pointer.
    pub fn open(path: &Path) -> Result<Option<Self>, FormatError> {
        let Some((file, _)) = open(path)? else { return Ok(None) };
        // SAFETY: the map is private to this type and only ever read as plain bytes, for which every bit pattern is
        // valid. One obligation remains: no process may truncate or rewrite the file while it is mapped, as said above.
        let map = unsafe { Mmap::map(&file) }.map_err(|reason| unreadable(path, reason))?;
        refuse_pointer(path, &map)?;
        Ok(Some(Self(map)))
    }

    /// Asks the system to read these bytes ahead.
    pub fn read_soon(&self, range: Range<usize>) {
        // If the system refuses, the bytes are read on first use.
        let _ = self.0.advise_range(Advice::WillNeed, range.start, range.len());
    }

    /// Releases pages that were read. A later read gets the same bytes from the file.
    pub fn give_back(&self) {
        // SAFETY: nothing writes to the map, so no page of it is private: dropped pages are the file's, and are read
        // from it again. If the system refuses, the pages stay.
        let _ = unsafe { self.0.unchecked_advise(UncheckedAdvice::DontNeed) };
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Reads a regular file of at most `most` bytes; `None` if nothing is at `path`.
///
/// # Errors
/// As [`MappedFile::open`], or the file is larger.
pub fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, FormatError> {
    let Some((file, metadata)) = open(path)? else { return Ok(None) };
    if metadata.len() > most {
        return Err(FormatError::TooLarge { file: label(path), found: metadata.len(), most });
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(|reason| unreadable(path, reason))?;
    refuse_pointer(path, &bytes)?;
    Ok(Some(bytes))
}

/// Opens a regular file. Its type is read first: opening a pipe waits for a writer.
fn open(path: &Path) -> Result<Option<(File, Metadata)>, FormatError> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(reason) => return Err(unreadable(path, reason)),
    };
    if !metadata.is_file() {
        return Err(FormatError::NotAFile { file: label(path), kind: kind(metadata.file_type()) });
    }
    let file = File::open(path).map_err(|reason| unreadable(path, reason))?;
    Ok(Some((file, metadata)))
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

fn refuse_pointer(path: &Path, bytes: &[u8]) -> Result<(), FormatError> {
    if bytes.len() <= LFS_LENGTH && bytes.starts_with(LFS) {
        return Err(FormatError::LfsPointer { file: label(path) });
    }
    Ok(())
}

fn label(path: &Path) -> String {
    path.display().to_string()
}

fn unreadable(path: &Path, reason: io::Error) -> FormatError {
    FormatError::Unreadable { file: label(path), reason }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    fn refusal(path: &Path) -> String {
        let read = read(path, 1 << 20).unwrap_err().to_string();
        assert_eq!(read, MappedFile::open(path).unwrap_err().to_string());
        read
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (path, kind) in
            [(pipe, "a pipe"), (PathBuf::from("/dev/zero"), "a device"), (folder.path().into(), "a folder")]
        {
            let refusal = refusal(&path);
            assert!(refusal.starts_with(&format!("{}: is {kind}, not a file: ", path.display())), "{refusal}");
        }
        assert!(MappedFile::open(&folder.path().join("nothing")).unwrap().is_none());
    }

    #[test]
    fn pointers_and_large_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n").unwrap();
        assert!(refusal(&path).ends_with("this is a Git LFS pointer: run `git lfs pull` in its folder"));
        std::fs::write(&path, [0; 100]).unwrap();
        assert_eq!(MappedFile::open(&path).unwrap().unwrap().len(), 100);
        assert_eq!(read(&path, 100).unwrap().unwrap().len(), 100);
        assert!(matches!(read(&path, 99), Err(FormatError::TooLarge { found: 100, most: 99, .. })));
    }
}
