//! API keys and ephemeral keys. Only SHA-256 hashes are kept.
//!
//! - this file: API keys
//! - [`ephemeral`]: keys that a server issues for pages
//! - `strength`: keys that are easy to guess
//! - [`wrong_keys`]: addresses that send wrong keys

pub mod ephemeral;
mod strength;
pub mod wrong_keys;

use std::fmt;
use std::sync::Arc;

use ring::digest;
use subtle::{Choice, ConstantTimeEq as _};
use thiserror::Error;

/// Minimum length of a key, in characters.
pub const MIN_KEY: usize = 16;
/// Maximum length of a presented key, in bytes; a longer one is refused unhashed.
const MAX_KEY: usize = 512;
/// Maximum length of a key's name, in characters: it is a label of metrics.
const MAX_NAME: usize = 64;

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

    /// Identity of a presented key.
    pub fn of_key(presented: &str) -> Self {
        Self::of(&hash(presented))
    }
}

impl From<u64> for KeyId {
    fn from(bits: u64) -> Self {
        Self(bits)
    }
}

impl From<KeyId> for u64 {
    fn from(id: KeyId) -> Self {
        id.0
    }
}

/// Hash and name of an API key.
#[derive(Clone, PartialEq, Eq)]
struct ApiKey {
    hash: KeyHash,
    name: Arc<str>,
}

/// Hashes and names of the server's API keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeySet(Vec<ApiKey>);

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
    /// A key that is easy to guess.
    #[error("line {line}: this key is easy to guess: make one with `openssl rand -hex 24`")]
    Weak {
        /// Line number, from 1.
        line: usize,
    },
    /// The key of the documentation's example.
    #[error("line {line}: this is the key of the documentation's example: make your own with `openssl rand -hex 24`")]
    Published {
        /// Line number, from 1.
        line: usize,
    },
    /// A byte order mark at the beginning.
    #[error("line 1 begins with a byte order mark: save the file as UTF-8 without one")]
    ByteOrderMark,
    /// A key or name in quotes.
    #[error("line {line}: keys and names stand without quotes")]
    Quotes {
        /// Line number, from 1.
        line: usize,
    },
    /// A name and a key with `=` in between.
    #[error("line {line}: separate the name and the key by a space, not by `=`")]
    Assignment {
        /// Line number, from 1.
        line: usize,
    },
    /// A key with characters that no header can carry.
    #[error("line {line}: a key consists of visible ASCII characters")]
    Characters {
        /// Line number, from 1.
        line: usize,
    },
    /// A name that is too long.
    #[error("line {line}: a name has at most {MAX_NAME} characters")]
    LongName {
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
    /// comment; empty lines are skipped. Refuses what is easy to guess, and what no client could send.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.starts_with('\u{feff}') {
            return Err(KeyError::ByteOrderMark);
        }
        let mut keys = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            let mut words = text.split_whitespace().take_while(|word| !word.starts_with('#'));
            let Some(first) = words.next() else { continue };
            let (name, key) = words.next().map_or((None, first), |key| (Some(first), key));
            if words.next().is_some() {
                return Err(KeyError::ExtraWords { line });
            }
            if name.is_some_and(|name| name.chars().count() > MAX_NAME) {
                return Err(KeyError::LongName { line });
            }
            let hash = match key.strip_prefix("sha256:") {
                Some(hex) => from_hex(hex).ok_or(KeyError::Hash { line })?,
                None => hash(checked(name, key, line)?),
            };
            if strength::is_published(&hash) {
                return Err(KeyError::Published { line });
            }
            // A part of the hash tells keys without names apart.
            let name = name.map_or_else(|| crate::ids::hex(&hash[..4]), str::to_owned).into();
            keys.push(ApiKey { hash, name });
        }
        let mut set = Self::default();
        set.extend(Self(keys));
        Ok(set)
    }

    /// Adds the keys of another set that are not in this one.
    pub fn extend(&mut self, other: Self) {
        for key in other.0 {
            if self.0.iter().all(|known| known.hash != key.hash) {
                self.0.push(key);
            }
        }
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
        let known = self.0.iter().fold(Choice::from(0), |known, key| known | key.hash.ct_eq(&presented));
        bool::from(known).then(|| KeyId::of(&presented))
    }
}

impl KeySet {
    /// True if a key of this identity is in the set.
    fn contains(&self, id: KeyId) -> bool {
        self.name(id).is_some()
    }

    /// Name of a key, or a part of its hash if it has none; `None` if the key is not in the set.
    pub fn name(&self, id: KeyId) -> Option<&Arc<str>> {
        self.0.iter().find(|key| KeyId::of(&key.hash) == id).map(|key| &key.name)
    }

    /// Identities and names of all keys.
    pub fn names(&self) -> impl Iterator<Item = (KeyId, &Arc<str>)> {
        self.0.iter().map(|key| (KeyId::of(&key.hash), &key.name))
    }
}

/// Returns a key that is good enough.
fn checked<'a>(name: Option<&str>, key: &'a str, line: usize) -> Result<&'a str, KeyError> {
    let quoted = |word: &str| word.starts_with(['"', '\'', '`']) || word.ends_with(['"', '\'', '`']);
    if quoted(key) || name.is_some_and(quoted) {
        return Err(KeyError::Quotes { line });
    }
    if !key.chars().all(|letter| letter.is_ascii_graphic()) {
        return Err(KeyError::Characters { line });
    }
    // Base64 ends with `=`.
    if name == Some("=") || key.trim_end_matches('=').contains('=') || name.is_some_and(|name| name.ends_with('=')) {
        return Err(KeyError::Assignment { line });
    }
    if key.chars().count() < MIN_KEY {
        return Err(KeyError::Short { line });
    }
    if strength::is_weak(key) {
        return Err(KeyError::Weak { line });
    }
    Ok(key)
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
        let name = |id| keys.name(id).map(|name| &**name);
        assert_eq!((name(second), name(first).map(str::len)), (Some("phone"), Some(8)));
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
            ("short\n\naaaaaaaaaaaaaaaaaaaa", KeyError::Short { line: 1 }),
            ("\naaaaaaaaaaaaaaaaaaaa", KeyError::Weak { line: 2 }),
            ("phone 8b0f5c9e3a7d41f2b6c8d9e0f1a2b3c4d5e6f708192a3b4c", KeyError::Published { line: 1 }),
            (
                "sha256:fb70c94a84fba4945c2e4fd7c5f85d66c2830cd62787e4992912e1eb0bd4152f",
                KeyError::Published { line: 1 },
            ),
            (&format!("\u{feff}{KEY}"), KeyError::ByteOrderMark),
            (&format!("\"{KEY}\""), KeyError::Quotes { line: 1 }),
            (&format!("phone '{KEY}'"), KeyError::Quotes { line: 1 }),
            (&format!("phone={KEY}"), KeyError::Assignment { line: 1 }),
            (&format!("phone= {KEY}"), KeyError::Assignment { line: 1 }),
            ("ключ-которого-никто-не-знает", KeyError::Characters { line: 1 }),
            (&format!("{} {KEY}", "n".repeat(65)), KeyError::LongName { line: 1 }),
        ] {
            assert_eq!(KeySet::parse(text), Err(error));
            assert!(!error.to_string().contains("short") && !error.to_string().contains("c-is"));
        }
        assert_eq!(format!("{:?}", KeySet::parse(KEY).unwrap()), "KeySet(1 keys)");
    }
}
