//! API keys and ephemeral keys. Only SHA-256 hashes are kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ring::digest;
use serde_json::Value;
use subtle::{Choice, ConstantTimeEq as _};
use thiserror::Error;

/// Minimum length of a key, in characters.
pub const MIN_KEY: usize = 16;
/// Maximum length of a presented key, in bytes; a longer one is refused unhashed.
const MAX_KEY: usize = 512;
/// Prefix of every ephemeral key.
const EPHEMERAL: &str = "ek_";
/// Maximum number of valid ephemeral keys.
const MAX_EPHEMERAL: usize = 4_096;
/// Maximum size of the session configurations of all ephemeral keys together, in bytes.
const MAX_SESSION_BYTES: usize = 16 << 20;

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

/// Valid ephemeral keys. A page may hold one: it lasts for minutes and opens calls only.
#[derive(Debug)]
pub struct EphemeralKeys {
    /// `ek_<tag>_`; no other server uses it.
    prefix: String,
    valid: Mutex<HashMap<KeyHash, Grant>>,
}

/// Rights of one ephemeral key.
#[derive(Clone)]
struct Grant {
    until: Instant,
    /// Session configuration of its calls: a `session.update` patch.
    session: Arc<Value>,
    /// Size of the configuration, in bytes.
    bytes: usize,
    /// API key that issued it.
    owner: Option<KeyId>,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("until", &self.until).finish_non_exhaustive()
    }
}

/// Error of [`EphemeralKeys::issue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IssueError {
    /// Too many keys or too many bytes of configuration.
    #[error("too many ephemeral keys are valid: wait until one expires")]
    Full {
        /// Time until the first key expires.
        retry_after: Duration,
    },
    /// The operating system provides no random numbers.
    #[error("the operating system provides no random numbers: {0}")]
    Random(getrandom::Error),
}

/// Result of [`EphemeralKeys::look_up`].
#[derive(Debug, Clone, PartialEq)]
pub enum KeyStatus {
    /// No ephemeral key of this server; perhaps an API key.
    NotEphemeral,
    /// An ephemeral key that expired or was never issued.
    Expired,
    /// A valid key, which opens calls.
    Valid {
        /// Identity of the ephemeral key.
        id: KeyId,
        /// Session configuration: a `session.update` patch.
        session: Arc<Value>,
        /// API key whose limits apply; `None` on a server without keys.
        owner: Option<KeyId>,
    },
}

impl EphemeralKeys {
    /// Creates an empty set; `tag` is the process's [tag](crate::ids::IdGenerator::tag).
    pub fn new(tag: &str) -> Self {
        Self { prefix: format!("{EPHEMERAL}{tag}_"), valid: Mutex::default() }
    }

    /// Issues a key that is valid for `lifetime` and bound to `session`. `owner` is the API key that asked.
    pub fn issue(
        &self,
        now: Instant,
        lifetime: Duration,
        session: Arc<Value>,
        owner: Option<KeyId>,
    ) -> Result<String, IssueError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(IssueError::Random)?;
        let key = format!("{}{}", self.prefix, crate::ids::hex(&random));
        let bytes = session.to_string().len();
        let mut valid = self.valid();
        valid.retain(|_, bound| bound.until > now);
        let held: usize = valid.values().map(|bound| bound.bytes).sum();
        if valid.len() >= MAX_EPHEMERAL || held + bytes > MAX_SESSION_BYTES {
            let first = valid.values().map(|bound| bound.until).min().unwrap_or(now);
            return Err(IssueError::Full { retry_after: first.saturating_duration_since(now) });
        }
        valid.insert(hash(&key), Grant { until: now + lifetime, session, bytes, owner });
        Ok(key)
    }

    /// Looks up `key` at `now`. It compares hashes, so the time reveals nothing about valid keys.
    pub fn look_up(&self, key: &str, now: Instant) -> KeyStatus {
        if !key.starts_with(&self.prefix) || key.len() > MAX_KEY {
            return KeyStatus::NotEphemeral;
        }
        let hash = hash(key);
        match self.valid().get(&hash) {
            Some(bound) if bound.until > now => {
                KeyStatus::Valid { id: KeyId::of(&hash), session: bound.session.clone(), owner: bound.owner }
            }
            _ => KeyStatus::Expired,
        }
    }

    fn valid(&self) -> MutexGuard<'_, HashMap<KeyHash, Grant>> {
        // A panic cannot leave an insertion or removal half done.
        self.valid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    #[test]
    fn an_ephemeral_key_expires_with_its_session() {
        let keys = EphemeralKeys::new("0a1b");
        let start = Instant::now();
        let session = Arc::new(json!({"instructions": "secret"}));
        let owner = Some(KeyId(3));
        let key = keys.issue(start, Duration::from_secs(10), session.clone(), owner).unwrap();
        assert!(key.starts_with("ek_0a1b_"));
        let valid = KeyStatus::Valid { id: KeyId::of(&hash(&key)), session, owner };
        assert_eq!(keys.look_up(&key, start + Duration::from_secs(9)), valid);
        assert_eq!(keys.look_up(&key, start + Duration::from_secs(10)), KeyStatus::Expired);
        assert_eq!(keys.look_up("ek_0a1b_0000", start), KeyStatus::Expired);
        assert_eq!(keys.look_up("ek_of_another_server", start), KeyStatus::NotEphemeral);
        assert!(!format!("{keys:?}").contains("secret"));
    }

    #[test]
    fn ephemeral_keys_are_bounded_in_number_and_bytes() {
        let keys = EphemeralKeys::new("t");
        let start = Instant::now();
        let issue = |now, session: &Arc<Value>| keys.issue(now, Duration::from_secs(60), session.clone(), None);
        let empty = Arc::new(json!({}));
        for _ in 0..MAX_EPHEMERAL {
            issue(start, &empty).unwrap();
        }
        let later = start + Duration::from_secs(20);
        assert_eq!(issue(later, &empty), Err(IssueError::Full { retry_after: Duration::from_secs(40) }));
        let large = Arc::new(json!({"instructions": "x".repeat(MAX_SESSION_BYTES / 2)}));
        let over = start + Duration::from_secs(60);
        issue(over, &large).unwrap();
        assert!(matches!(issue(over, &large), Err(IssueError::Full { .. })));
        issue(over, &empty).unwrap();
    }
}
