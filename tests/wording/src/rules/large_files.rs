//! No large file is tracked by accident.

use crate::finding::{Finding, Rule};
use crate::words::LargeFiles;

/// Largest size of a tracked file that is on no list, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Returns a finding for a file of `bytes` bytes that is too large and not listed.
pub fn check(path: &str, bytes: u64, listed: &LargeFiles) -> Option<Finding> {
    (bytes > MAX_BYTES && !listed.files.iter().any(|file| file == path)).then(|| Finding {
        path: path.to_owned(),
        line: 0,
        rule: Rule::LargeFile,
        item: path.to_owned(),
        advice: format!("{} KiB: remove it, or list it in tests/wording/words.toml", bytes >> 10),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_listed() {
        let listed = LargeFiles { files: vec!["model.bin".to_owned()] };
        assert!(check("a.whl", MAX_BYTES + 1, &listed).is_some());
        assert!(check("a.whl", MAX_BYTES, &listed).is_none());
        assert!(check("model.bin", MAX_BYTES + 1, &listed).is_none());
    }
}
