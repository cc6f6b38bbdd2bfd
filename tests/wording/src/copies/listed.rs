//! Groups of today: `copies.toml`.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{CopyGroup, FunctionPlace};

/// Contents of `copies.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedGroups {
    /// Groups that are still to become one function.
    #[serde(default)]
    pub group: Vec<ListedGroup>,
}

/// One entry of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedGroup {
    /// All its functions, as `path: name`.
    pub functions: BTreeSet<String>,
}

/// Difference between the groups and their list.
#[derive(Debug, PartialEq, Eq)]
pub enum CopyFinding {
    /// A group that is not listed, or not with these functions.
    Unlisted(CopyGroup),
    /// An entry whose functions are no group, or not the whole one.
    Stale(BTreeSet<String>),
}

impl fmt::Display for CopyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlisted(CopyGroup(functions)) => {
                write!(f, "{} functions are copies but for names and literals: share one", functions.len())?;
                functions.iter().try_for_each(|function| write!(f, "\n    {function}"))
            }
            Self::Stale(functions) => {
                let functions = functions.iter().cloned().collect::<Vec<_>>().join(", ");
                write!(f, "tests/wording/copies.toml: no copies today, correct or remove the entry: {functions}")
            }
        }
    }
}

impl ListedGroups {
    /// Parses the text of `copies.toml`.
    ///
    /// # Errors
    /// The text is no TOML of this shape.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("copies.toml")
    }

    /// Compares the list with the groups that were found: both must have the same functions.
    pub fn compare(&self, found: Vec<CopyGroup>) -> Vec<CopyFinding> {
        let keys = |group: &CopyGroup| group.0.iter().map(FunctionPlace::key).collect::<BTreeSet<_>>();
        let present: Vec<_> = found.iter().map(keys).collect();
        let stale = self.group.iter().filter(|entry| !present.contains(&entry.functions));
        let stale: Vec<_> = stale.map(|entry| CopyFinding::Stale(entry.functions.clone())).collect();
        let unlisted = found.into_iter().filter(|group| !self.group.iter().any(|entry| entry.functions == keys(group)));
        unlisted.map(CopyFinding::Unlisted).chain(stale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(names: &str) -> CopyGroup {
        let place = |name: &str| FunctionPlace { path: "a.rs".to_owned(), line: 7, name: name.to_owned() };
        CopyGroup(names.split(' ').map(place).collect())
    }

    /// Findings for a list and groups, as `+` or `-` and the number of functions.
    fn compared(listed: &[&str], found: &[&str]) -> Vec<String> {
        let entry = |names: &&str| ListedGroup { functions: group(names).0.iter().map(FunctionPlace::key).collect() };
        let list = ListedGroups { group: listed.iter().map(entry).collect() };
        let told = |finding: CopyFinding| match finding {
            CopyFinding::Unlisted(CopyGroup(functions)) => format!("+{}", functions.len()),
            CopyFinding::Stale(functions) => format!("-{}", functions.len()),
        };
        list.compare(found.iter().map(|names| group(names)).collect()).into_iter().map(told).collect()
    }

    #[test]
    fn listed_groups_pass() {
        assert!(compared(&["f g", "h i j"], &["h i j", "f g"]).is_empty());
        assert!(compared(&[], &[]).is_empty());
    }

    #[test]
    fn new_grown_and_gone_groups_fail() {
        assert_eq!(compared(&[], &["f g"]), ["+2"]);
        assert_eq!(compared(&["f g"], &["f g h"]), ["+3", "-2"]);
        assert_eq!(compared(&["f g h"], &["f g"]), ["+2", "-3"]);
        assert_eq!(compared(&["f g"], &[]), ["-2"]);
    }

    #[test]
    fn findings_name_the_functions() {
        let list = ListedGroups::parse("[[group]]\nfunctions = [\"a.rs: f\", \"b.rs: g\"]").unwrap();
        let told: Vec<_> = list.compare(vec![group("h i")]).iter().map(ToString::to_string).collect();
        assert_eq!(
            told[0],
            "2 functions are copies but for names and literals: share one\n    a.rs:7: h\n    a.rs:7: i"
        );
        assert_eq!(
            told[1],
            "tests/wording/copies.toml: no copies today, correct or remove the entry: a.rs: f, b.rs: g"
        );
    }
}
