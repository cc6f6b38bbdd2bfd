//! Names of repositories on the hub.

use std::fmt;

/// Longest owner, name or revision, in bytes.
const MAX_PART: usize = 96;
/// Revision of a name without one.
const MAIN: &str = "main";

/// Name of a repository: `ORG/NAME`, or `ORG/NAME@REV` with a branch, a tag or a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubName {
    owner: String,
    name: String,
    revision: Option<String>,
}

impl HubName {
    /// Parses a name; `None` for a text that is none, such as a path.
    pub fn parse(text: &str) -> Option<Self> {
        let (repository, revision) = match text.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (text, None),
        };
        let (owner, name) = repository.split_once('/')?;
        let valid = is_part(owner) && is_part(name) && revision.is_none_or(is_part);
        valid.then(|| Self { owner: owner.to_owned(), name: name.to_owned(), revision: revision.map(str::to_owned) })
    }

    /// Returns owner and name without the revision: `ORG/NAME`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// Returns the revision, `main` by default.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)?;
        self.revision.as_ref().map_or(Ok(()), |revision| write!(f, "@{revision}"))
    }
}

fn is_part(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_PART).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with(['.', '-'])
        && !text.contains("..")
}

/// True for the id of a commit.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
