//! Pinned files of a repository: named files whose checksums are known before they are downloaded.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::Deserialize;

use super::choose::{ChooseError, HubFile};
use super::download::{fetch_chosen, remove};
use super::error::HubError;
use super::name::HubName;
use super::settings::HubSettings;

/// Bytes that are hashed at once.
const PIECE: usize = 1 << 20;
/// File beside a repository's snapshots with what was compared.
const CHECKED: &str = "repartee-checked";

/// Files of a repository.
#[derive(Debug, Clone, Deserialize)]
pub struct PinnedFiles {
    /// Owner and name.
    pub repository: String,
    /// Branch, tag or commit; `None` for `main`.
    pub revision: Option<String>,
    /// Files that are fetched, in this order.
    pub files: Vec<PinnedFile>,
}

/// A file and its checksum.
#[derive(Debug, Clone, Deserialize)]
pub struct PinnedFile {
    /// Path in the repository.
    pub path: String,
    /// SHA-256 in hexadecimal; `None` if the revision alone pins the file.
    pub sha256: Option<String>,
}

/// Downloads what is missing of pinned files, compares their checksums and returns their folder. `tell` gets the name of each file and
/// the share of all bytes, 0 to 1.
///
/// # Errors
/// As for a whole checkpoint; or a file is missing in the repository, or has another checksum and was removed.
pub fn fetch_pinned(
    settings: &HubSettings,
    pinned: &PinnedFiles,
    tell: &mut dyn FnMut(&str, f32),
) -> Result<PathBuf, HubError> {
    let revision = pinned.revision.as_ref().map(|revision| format!("@{revision}")).unwrap_or_default();
    let text = format!("{}{revision}", pinned.repository);
    let name = HubName::parse(&text).ok_or_else(|| HubError::Name(text))?;
    let choose = |listed: Vec<HubFile>| {
        let found = |file: &PinnedFile| listed.iter().find(|listed| listed.path == file.path).cloned();
        let missing = |file: &PinnedFile| ChooseError::Missing { path: file.path.clone() };
        pinned.files.iter().map(|file| found(file).ok_or_else(|| missing(file))).collect()
    };
    let folder = fetch_chosen(settings, &name, &choose, false, tell)?;
    check(&name, pinned, &folder)?;
    Ok(folder)
}

/// Compares the checksums, unless an earlier start has done so with files of these sizes.
fn check(name: &HubName, pinned: &PinnedFiles, folder: &Path) -> Result<(), HubError> {
    let mut due = String::new();
    for PinnedFile { path, sha256 } in &pinned.files {
        let size = fs::metadata(folder.join(path)).map_err(|_| HubError::Offline { name: name.clone() })?.len();
        // Writing to a string cannot fail.
        let _ = writeln!(due, "{size} {} {path}", sha256.as_deref().unwrap_or("-"));
    }
    let commit = folder.file_name().unwrap_or_default();
    let marks = folder.ancestors().nth(2).unwrap_or(folder).join(CHECKED);
    let mark = marks.join(commit);
    if fs::read_to_string(&mark).is_ok_and(|checked| checked == due) {
        return Ok(());
    }
    for PinnedFile { path, sha256 } in &pinned.files {
        let Some(expected) = sha256 else { continue };
        if checksum(&folder.join(path))? != *expected {
            remove(&folder.join(path))?;
            return Err(HubError::Checksum { name: name.clone(), file: path.clone() });
        }
    }
    fs::create_dir_all(&marks)?;
    Ok(fs::write(mark, due)?)
}

/// SHA-256 of a file, in hexadecimal.
fn checksum(path: &Path) -> io::Result<String> {
    let (mut file, mut context, mut piece) = (File::open(path)?, Context::new(&SHA256), vec![0; PIECE]);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            count => context.update(&piece[..count]),
        }
    }
    let mut text = String::new();
    for byte in context.finish().as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
