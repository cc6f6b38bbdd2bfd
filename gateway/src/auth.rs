//! API keys and ephemeral keys. Only SHA-256 hashes are kept.
//!
//! - this file: API keys
//! - [`ephemeral`]: keys that a server issues for pages

pub mod ephemeral;

use std::fmt;

use ring::digest;
use subtle::{Choice, ConstantTimeEq as _};
use thiserror::Error;

/// Minimum length of a key, in characters.
pub const MIN_KEY: usize = 16;
/// Maximum length of a presented key, in bytes; a longer one is refused unhashed.
const MAX_KEY: usize = 512;

type KeyHash = [u8; digest::SHA256_OUTPUT_LEN];

fn hash(key: &str) -> KeyHash {
    let mut hash = KeyHash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, key.as_bytes()).as_ref());
    hash
}

/// Identity of an API key: the first 64 bits of its hash, so it stays the same when other keys change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(u64);

impl KeyId {
    fn of(hash: &KeyHash) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *hash;
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

/// Hashes of the server's API keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeySet(Vec<KeyHash>);

/// Error in a line of a key file. The text names the line, never its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// A key shorter than [`MIN_KEY`].
    #[error("line {line}: a key has at least {MIN_KEY} characters")]
    Short {
        /// Line number, from 1.
        line: usize,
    },
    /// More words than a name and a key.
    #[error("line {line}: a line holds a key, or a name and a key")]
    ExtraWords {
        /// Line number, from 1.
        line: usize,
    },
    /// A malformed hash after `sha256:`.
    #[error("line {line}: write 64 hex digits after `sha256:`")]
    Hash {
        /// Line number, from 1.
        line: usize,
    },
}

impl KeySet {
    /// Parses one key a line: `KEY` or `NAME KEY`, where KEY may be `sha256:` and its hash in hex. A `#` begins a
    /// comment; empty lines are skipped.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            let mut words = text.split_whitespace().take_while(|word| !word.starts_with('#'));
            let Some(first) = words.next() else { continue };
            let key = words.next().unwrap_or(first);
            if words.next().is_some() {
                return Err(KeyError::ExtraWords { line });
            }
            keys.push(match key.strip_prefix("sha256:") {
                Some(hex) => from_hex(hex).ok_or(KeyError::Hash { line })?,
                None if key.chars().count() < MIN_KEY => return Err(KeyError::Short { line }),
                None => hash(key),
            });
        }
        Ok(Self(keys))
    }

    /// Adds the keys of another set.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Number of keys in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no keys; then no request needs one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks up a key in constant time; `None` if it is not in the set.
    pub fn find(&self, presented: &str) -> Option<KeyId> {
        if presented.len() > MAX_KEY {
            return None;
        }
        let presented = hash(presented);
        let known = self.0.iter().fold(Choice::from(0), |known, key| known | key.ct_eq(&presented));
        bool::from(known).then(|| KeyId::of(&presented))
    }
}

impl KeySet {
    /// True if a key of this identity is in the set.
    fn contains(&self, id: KeyId) -> bool {
        self.0.iter().any(|key| KeyId::of(key) == id)
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySet({} keys)", self.0.len())
    }
}

fn from_hex(text: &str) -> Option<KeyHash> {
    let mut hash = KeyHash::default();
    if text.len() != 2 * hash.len() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "a-key-of-some-length";

    #[test]
    fn keys_are_lines_with_or_without_a_name() {
        let text = format!("# ours\n\n{KEY}\nphone  another-key-of-length # the phone\n");
        let keys = KeySet::parse(&text).unwrap();
        assert_eq!(keys.len(), 2);
        let (first, second) = (keys.find(KEY).unwrap(), keys.find("another-key-of-length").unwrap());
        assert_ne!(first, second);
        // The name does not change the identity.
        assert_eq!(KeySet::parse("another-key-of-length").unwrap().find("another-key-of-length"), Some(second));
        for wrong in ["", "a-key-of-some-lengt", "a-key-of-some-length ", "phone", &KEY.repeat(100)] {
            assert_eq!(keys.find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_may_be_given_by_its_hash() {
        let hashed = format!("sha256:{}", crate::ids::hex(&hash(KEY)));
        assert_eq!(KeySet::parse(&hashed).unwrap().find(KEY), KeySet::parse(KEY).unwrap().find(KEY));
        assert_eq!(KeySet::parse(&hashed).unwrap().find(&hashed), None);
    }

    #[test]
    fn bad_keys_are_refused_by_line_number() {
        for (text, error) in [
            ("short", KeyError::Short { line: 1 }),
            ("\na b c-is-a-key-of-some-length", KeyError::ExtraWords { line: 2 }),
            ("sha256:12", KeyError::Hash { line: 1 }),
            (&format!("sha256:{}", "é".repeat(32)), KeyError::Hash { line: 1 }),
        ] {
            assert_eq!(KeySet::parse(text), Err(error));
            assert!(!error.to_string().contains("short") && !error.to_string().contains("c-is"));
        }
        assert_eq!(format!("{:?}", KeySet::parse(KEY).unwrap()), "KeySet(1 keys)");
    }
}
