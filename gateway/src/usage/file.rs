//! File of the ledger: JSON, read at the start and always written whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ledger::UsageRow;

/// Version of the format.
const VERSION: u32 = 1;
/// Largest file that is read, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Error of a usage file that cannot be read.
#[derive(Debug, Error)]
#[error("cannot read usage.file {path}: {reason}; move it away to begin a new one")]
pub struct UsageFileError {
    path: PathBuf,
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct Contents<Rows> {
    version: u32,
    rows: Rows,
}

/// Reads the rows; none if there is no file.
pub fn read(path: &Path) -> Result<Vec<UsageRow>, UsageFileError> {
    let failed = |reason: String| UsageFileError { path: path.to_owned(), reason };
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        metadata => metadata.map_err(|error| failed(error.to_string()))?,
    };
    if !metadata.is_file() {
        return Err(failed("it is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(failed(format!("it is larger than {} MiB", MOST_BYTES >> 20)));
    }
    let contents: Contents<Vec<UsageRow>> =
        serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?;
    match contents.version {
        VERSION => Ok(contents.rows),
        other => Err(failed(format!("its version is {other}, this program reads version {VERSION}"))),
    }
}

/// Writes the rows, whole or not at all, to a file that only this user can read.
pub fn write(path: &Path, rows: &[UsageRow]) -> io::Result<()> {
    let text = serde_json::to_vec(&Contents { version: VERSION, rows }).map_err(io::Error::other)?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    let draft = PathBuf::from(draft);
    let written = write_draft(&draft, &text).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // What is left of a failed write is of no use; the first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write_draft(draft: &Path, text: &[u8]) -> io::Result<()> {
    // A leftover draft of a dead process would keep its own mode.
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::UsageTotals;
    use super::*;

    #[test]
    fn rows_survive_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.json");
        assert_eq!(read(&path).unwrap(), []);
        let totals = UsageTotals { requests: 3, output_sound_us: 1_240, ..UsageTotals::default() };
        let rows = [UsageRow { day: 20_000, key: "phone \"1\"".into(), model: "demo".into(), totals }];
        write(&path, &[]).unwrap();
        write(&path, &rows).unwrap();
        assert_eq!(read(&path).unwrap(), rows);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn bad_files_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.json");
        for text in ["", "[]", r#"{"version": 2, "rows": []}"#, r#"{"version": 1, "rows": [{"day": -1}]}"#] {
            fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.starts_with("cannot read usage.file") && error.contains("move it away"), "{text}: {error}");
        }
        assert!(read(folder.path()).unwrap_err().to_string().contains("not a file"));
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.json");
        write(&path, &[]).unwrap();
        let before = fs::read(&path).unwrap();
        // A folder stands where the draft would be.
        fs::create_dir(folder.path().join("usage.json.part")).unwrap();
        assert!(write(&path, &[]).is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}
