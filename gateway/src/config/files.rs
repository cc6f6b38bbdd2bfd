//! Files of the settings that hold secrets: warnings about those that other users of the machine can read or change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::settings::Config;

/// Bits of a file's mode that let the group or others read it, and change it.
const READ: u32 = 0o044;
const WRITE: u32 = 0o022;

impl Config {
    /// Returns a warning for each file of secrets that other users can read or change.
    pub fn file_warnings(&self) -> Vec<String> {
        let files =
            [("keys.file", &self.keys.file), ("tls.key", &self.tls.key), ("cascade.key_file", &self.cascade.key_file)];
        let named = files.into_iter().filter_map(|(setting, path)| Some((setting, path.as_deref()?)));
        named.filter_map(|(setting, path)| warning(setting, path)).collect()
    }
}

fn warning(setting: &str, path: &Path) -> Option<String> {
    // A file that cannot be read has its own error.
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let problem = if mode & WRITE != 0 {
        "can be changed"
    } else if mode & READ != 0 && holds_secrets(setting, path) {
        "is readable"
    } else {
        return None;
    };
    Some(format!("{setting}: {} {problem} by other users of this machine: chmod 600", path.display()))
}

/// False for a key file that holds hashes alone, which need not be secret.
fn holds_secrets(setting: &str, path: &Path) -> bool {
    let is_plain = |line: &str| {
        let line = line.split('#').next().unwrap_or_default().trim();
        !line.is_empty() && !line.contains("sha256:")
    };
    setting != "keys.file" || fs::read_to_string(path).is_ok_and(|text| text.lines().any(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_others_can_read_are_reported() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("keys");
        let mut config = Config::default();
        config.keys.file = Some(path.clone());
        let warned = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            config.file_warnings().concat()
        };
        assert_eq!(warned("phone the-key-of-the-house\n", 0o600), "");
        for mode in [0o644, 0o640, 0o604] {
            assert!(warned("phone the-key-of-the-house\n", mode).contains("keys.file: "), "{mode:o}");
        }
        let hashed = format!("# hashes\nphone sha256:{}\n", "0".repeat(64));
        assert_eq!(warned(&hashed, 0o644), "");
        assert!(warned(&hashed, 0o620).contains("can be changed"));
        config.keys.file = None;
        config.tls.key = Some(path);
        assert!(config.file_warnings().concat().contains("tls.key: "));
    }
}
