//! Source files of a crate, for tests of its module borders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A source file without comments and tests.
#[derive(Debug)]
pub struct SourceFile {
    /// Path of the file, relative to the folder that was read.
    pub path: PathBuf,
    /// Code of the file, with the same line numbers; comment lines are empty.
    pub code: String,
}

impl SourceFile {
    /// Reads every source file under `folder`, except for test code: `tests.rs`, `*_tests.rs`, `testdata.rs` and
    /// everything in a folder `tests`.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut sources = Vec::new();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(within) = folders.pop() {
            for entry in std::fs::read_dir(&within).with_context(|| within.display().to_string())? {
                let path = entry?.path();
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                if name == "tests" || name == "testdata" || name.ends_with("_tests") {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                    let path = path.strip_prefix(folder)?.to_path_buf();
                    sources.push(Self { path, code: code(&text) });
                }
            }
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(sources)
    }

    /// Returns the top-level module: `transport` for `transport/webrtc/ice.rs` and for `transport.rs`.
    pub fn module(&self) -> String {
        let first = self.path.iter().next().unwrap_or_default();
        Path::new(first).file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the top-level modules of its crate that the file names, by `crate::` or by enough `super::`.
    pub fn modules_named(&self) -> BTreeSet<String> {
        let depth =
            self.path.components().count() - usize::from(self.path.file_stem().is_some_and(|name| name == "mod"));
        let mut names = BTreeSet::new();
        for root in ["crate::".to_owned(), "super::".repeat(depth)] {
            for (at, _) in self.code.match_indices(&root) {
                let before = self.code[..at].chars().next_back();
                if root.is_empty() || before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':')) {
                    continue;
                }
                names.extend(first_names(&self.code[at + root.len()..]));
            }
        }
        names
    }

    /// Returns the lines that contain one of `words`, with path and number.
    pub fn lines_with(&self, words: &[&str]) -> Vec<String> {
        let lines = self.code.lines().enumerate();
        let found = lines.filter(|(_, line)| words.iter().any(|word| line.contains(word)));
        found.map(|(index, line)| format!("{}:{}: {}", self.path.display(), index + 1, line.trim())).collect()
    }
}

/// Returns the first identifier of a path, or of each path of a group in braces.
fn first_names(rest: &str) -> Vec<String> {
    let identifier = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = rest.strip_prefix('{') else { return vec![identifier(rest)] };
    let (mut names, mut depth, mut begins) = (Vec::new(), 0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && !c.is_whitespace() => {
                names.push(identifier(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

/// Returns `text` without comments, and without the test module at its end.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_test = line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.ends_with('{'));
        if is_test {
            break;
        }
        let comment = line.trim_start().starts_with("//");
        code += if comment { "" } else { line.split(" // ").next().unwrap_or(line) };
        code.push('\n');
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), code: code(text) }
    }

    #[test]
    fn named_modules_are_found_however_written() {
        let text = "use crate::config::WebRtc;\nuse crate::{\n    call::{Line, End},\n    ids,\n};\nlet x = crate::auth::key();\n";
        let names = source("transport/mod.rs", text).modules_named();
        assert_eq!(Vec::from_iter(names), ["auth", "call", "config", "ids"]);
        let names = source("transport/webrtc/ice.rs", "use super::super::super::server::App;\n").modules_named();
        assert_eq!(Vec::from_iter(names), ["server"]);
        let names = source("transport/mod.rs", "use super::server::App;\n").modules_named();
        assert_eq!(Vec::from_iter(names), ["server"]);
        assert!(source("transport/webrtc/ice.rs", "use super::super::Line;\n").modules_named().is_empty());
    }

    #[test]
    fn comments_and_tests_are_no_code() {
        let text = "//! See crate::server.\nlet a = 1; // crate::config\n#[cfg(test)]\nmod tests {\n    use crate::server;\n}\n";
        assert!(source("call.rs", text).modules_named().is_empty());
        assert!(source("call.rs", text).lines_with(&["server", "config"]).is_empty());
        assert_eq!(source("call.rs", "\nlet now = Instant::now();\n").lines_with(&["Instant::now"]).len(), 1);
    }
}
