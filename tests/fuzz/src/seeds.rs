//! Saved inputs, in folders that libFuzzer reads, too.

use std::io;
use std::path::{Path, PathBuf};

/// Folders of a target's seeds, besides `fuzz/seeds/NAME`. `scripts/fuzz.sh` names the same.
const SHARED: &[(&str, &str)] = &[
    ("sdp", "gateway/sdp/tests/offers/recorded"),
    ("sdp", "gateway/sdp/tests/offers/rebuilt"),
    ("checkpoint", "engine/checkpoint/tests/data"),
];

/// Folders of the seeds of the target `name`.
pub fn folders(name: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = root.join("fuzz/seeds").join(name);
    let shared = SHARED.iter().filter(|(target, _)| *target == name).map(|(_, folder)| root.join(folder));
    std::iter::once(own).chain(shared).collect()
}

/// Reads all seeds of the target `name`, in the order of their paths.
///
/// # Errors
/// A folder or a file cannot be read.
pub fn read(name: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    for folder in folders(name) {
        for entry in std::fs::read_dir(folder)? {
            paths.push(entry?.path());
        }
    }
    paths.sort();
    paths.iter().filter(|path| path.is_file()).map(std::fs::read).collect()
}
