//! The lists that the rules read.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::finding::{Finding, Rule};

/// Largest number of entries in `allow.toml`.
pub const MAX_ALLOWED: usize = 30;

/// Contents of `words.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// Names that items may not have.
    pub replaced: Vec<ReplacedName>,
    /// Nouns that public types may not have as their whole name.
    pub bare: BareNouns,
    /// Files that may be over 1 MiB.
    pub large: LargeFiles,
}

/// Names that were replaced, and their replacement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacedName {
    /// The names, exactly as an item would declare them.
    pub old: Vec<String>,
    /// Replacement, for people.
    pub say: String,
    /// Folders that the entry holds for; all of them if empty.
    #[serde(default)]
    pub within: Vec<String>,
    /// Folders that the entry does not hold for.
    #[serde(default)]
    pub except: Vec<String>,
}

impl ReplacedName {
    /// True if the entry holds for a file at `path`.
    pub fn holds_for(&self, path: &str) -> bool {
        let under = |folder: &String| Path::new(path).starts_with(folder);
        (self.within.is_empty() || self.within.iter().any(under)) && !self.except.iter().any(under)
    }
}

/// The table `bare` of `words.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BareNouns {
    /// The nouns, capitalised.
    pub nouns: Vec<String>,
}

/// The table `large` of `words.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargeFiles {
    /// Paths of tracked files that may be over 1 MiB.
    pub files: Vec<String>,
}

/// Contents of `allow.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowList {
    /// Findings that stay.
    #[serde(default)]
    pub allow: Vec<AllowedFinding>,
}

/// One entry of the allow-list.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedFinding {
    /// Rule of the finding.
    pub rule: Rule,
    /// Path of its file.
    pub path: String,
    /// Item of the finding.
    pub item: String,
    /// Justification, for people.
    pub reason: String,
}

impl AllowedFinding {
    fn covers(&self, finding: &Finding) -> bool {
        self.rule == finding.rule && self.path == finding.path && self.item == finding.item
    }
}

impl Words {
    /// Parses the text of `words.toml`.
    ///
    /// # Errors
    /// The text is no TOML of this shape.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("words.toml")
    }
}

impl AllowList {
    /// Parses the text of `allow.toml`.
    ///
    /// # Errors
    /// The text is no TOML of this shape, or has more than [`MAX_ALLOWED`] entries.
    pub fn parse(text: &str) -> Result<Self> {
        let list: Self = toml::from_str(text).context("allow.toml")?;
        ensure!(list.allow.len() <= MAX_ALLOWED, "allow.toml has {} entries of {MAX_ALLOWED}", list.allow.len());
        Ok(list)
    }

    /// Splits findings into those that stay forbidden, and the entries that cover none.
    pub fn apply(&self, findings: Vec<Finding>) -> (Vec<Finding>, Vec<AllowedFinding>) {
        let unused = self.allow.iter().filter(|entry| !findings.iter().any(|finding| entry.covers(finding)));
        let unused = unused.cloned().collect();
        let forbidden = findings.into_iter().filter(|finding| !self.allow.iter().any(|entry| entry.covers(finding)));
        (forbidden.collect(), unused)
    }
}
