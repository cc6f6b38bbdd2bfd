//! Circles of today: `circles.toml`.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::graph::{FileCircle, FileReference};

/// Contents of `circles.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedCircles {
    /// Circles that are still to be resolved.
    #[serde(default)]
    pub circle: Vec<ListedCircle>,
}

/// One entry of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedCircle {
    /// Paths of all its files.
    pub files: BTreeSet<String>,
}

/// Difference between the circles and their list.
#[derive(Debug, PartialEq, Eq)]
pub enum CircleFinding {
    /// A circle that is not listed, or not with these files.
    Unlisted {
        /// Paths of its files.
        files: BTreeSet<String>,
        /// References between its files, without those within one entry.
        references: Vec<FileReference>,
    },
    /// An entry whose files are no circle, or not the whole one.
    Stale {
        /// Paths of its files.
        files: BTreeSet<String>,
    },
}

impl fmt::Display for CircleFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |files: &BTreeSet<String>| files.iter().cloned().collect::<Vec<_>>().join(", ");
        match self {
            Self::Unlisted { files, references } => {
                write!(f, "a circle of {} files: {}", files.len(), joined(files))?;
                references.iter().try_for_each(|reference| write!(f, "\n    {reference}"))
            }
            Self::Stale { files } => write!(
                f,
                "tests/wording/circles.toml: not a circle of today, correct or remove the entry: {}",
                joined(files)
            ),
        }
    }
}

impl ListedCircles {
    /// Parses the text of `circles.toml`.
    ///
    /// # Errors
    /// The text is no TOML of this shape.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("circles.toml")
    }

    /// Compares the list with the circles that were found: both must have the same files.
    pub fn compare(&self, found: &[FileCircle]) -> Vec<CircleFinding> {
        let is_known = |reference: &FileReference| {
            self.circle
                .iter()
                .any(|entry| [&reference.from, &reference.to].iter().all(|file| entry.files.contains(*file)))
        };
        let unlisted = found.iter().filter(|circle| !self.circle.iter().any(|entry| entry.files == circle.files));
        let unlisted = unlisted.map(|circle| CircleFinding::Unlisted {
            files: circle.files.clone(),
            references: circle.references.iter().filter(|reference| !is_known(reference)).cloned().collect(),
        });
        let stale = self.circle.iter().filter(|entry| !found.iter().any(|circle| circle.files == entry.files));
        let stale = stale.map(|entry| CircleFinding::Stale { files: entry.files.clone() });
        unlisted.chain(stale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &str) -> BTreeSet<String> {
        names.split(' ').map(str::to_owned).collect()
    }

    /// Findings for a list and circles, as `+` or `-` and the files.
    fn compared(listed: &[&str], found: &[&str]) -> Vec<String> {
        let circle = listed.iter().map(|names| ListedCircle { files: files(names) }).collect();
        let circle_of = |names: &&str| FileCircle { files: files(names), references: Vec::new() };
        let found: Vec<FileCircle> = found.iter().map(circle_of).collect();
        let told = |finding: CircleFinding| {
            let (sign, files) = match finding {
                CircleFinding::Unlisted { files, .. } => ('+', files),
                CircleFinding::Stale { files } => ('-', files),
            };
            format!("{sign}{}", files.into_iter().collect::<Vec<_>>().join(" "))
        };
        ListedCircles { circle }.compare(&found).into_iter().map(told).collect()
    }

    #[test]
    fn listed_circles_pass() {
        assert!(compared(&["a b", "c d"], &["c d", "a b"]).is_empty());
        assert!(compared(&[], &[]).is_empty());
    }

    #[test]
    fn new_and_resolved_circles_fail() {
        assert_eq!(compared(&[], &["a b"]), ["+a b"]);
        assert_eq!(compared(&["a b"], &[]), ["-a b"]);
    }

    #[test]
    fn grown_and_shrunk_circles_fail() {
        assert_eq!(compared(&["a b"], &["a b c"]), ["+a b c", "-a b"]);
        assert_eq!(compared(&["a b c"], &["a b"]), ["+a b", "-a b c"]);
        assert_eq!(compared(&["a b", "c d"], &["a b c d"]), ["+a b c d", "-a b", "-c d"]);
    }

    #[test]
    fn a_grown_circle_names_its_new_references() {
        let reference = |from: &str, to: &str| FileReference { from: from.to_owned(), line: 1, to: to.to_owned() };
        let references = vec![reference("a", "b"), reference("b", "c"), reference("c", "a")];
        let listed = ListedCircles::parse("[[circle]]\nfiles = [\"a\", \"b\"]").unwrap();
        let findings = listed.compare(&[FileCircle { files: files("a b c"), references }]);
        let told = "a circle of 3 files: a, b, c\n    b:1 refers to c\n    c:1 refers to a";
        assert_eq!(findings[0].to_string(), told);
    }
}
