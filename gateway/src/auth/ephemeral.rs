//! Ephemeral keys: a page may hold one. It lasts for minutes and opens calls only.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;

use super::{KeyHash, KeyId, KeySet, MAX_KEY, hash};

/// Prefix of every ephemeral key.
const EPHEMERAL: &str = "ek_";
/// Maximum size of the session configurations of all ephemeral keys together, in bytes.
const MAX_SESSION_BYTES: usize = 16 << 20;

/// Valid ephemeral keys. A page may hold one: it lasts for minutes and opens calls only.
#[derive(Debug)]
pub struct EphemeralKeys {
    /// `ek_<tag>_`; no other server uses it.
    prefix: String,
    /// Maximum number of valid keys.
    most: usize,
    valid: Mutex<HashMap<KeyHash, Grant>>,
}

/// Rights of one ephemeral key.
#[derive(Clone)]
struct Grant {
    until: Instant,
    /// Session configuration of its calls: a `session.update` patch.
    session: Arc<Value>,
    /// Size of the configuration in memory, in bytes.
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
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IssueError {
    /// Too many keys or too many bytes of configuration.
    #[error("limits.ephemeral_keys: too many ephemeral keys are valid: wait until one expires")]
    Full {
        /// Time until the first key expires.
        retry_after: Duration,
    },
    /// The API key has its share of the keys or of the bytes.
    #[error(
        "limits.ephemeral_keys: this API key has issued half of those that may be valid: wait until one of its own expires"
    )]
    Share {
        /// Time until the first of its own expires.
        retry_after: Duration,
    },
    /// The operating system provides no random numbers.
    #[error("the operating system provides no random numbers: {0}")]
    Random(getrandom::Error),
    /// The key cannot be signed: a bug.
    #[error("the ephemeral key cannot be signed: {0}")]
    Unsigned(String),
}

/// Result of [`EphemeralKeys::look_up`].
#[derive(Debug, Clone, PartialEq)]
pub enum KeyStatus {
    /// No ephemeral key of this server; perhaps an API key.
    NotEphemeral,
    /// An ephemeral key that expired or was never issued.
    Expired,
    /// A key in the form of a cluster's ephemeral keys that no node has signed.
    Forged,
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
    /// Creates an empty set of at most `most` keys; `tag` is the process's [tag](crate::ids::IdGenerator::tag).
    pub fn new(tag: &str, most: usize) -> Self {
        Self { prefix: format!("{EPHEMERAL}{tag}_"), most, valid: Mutex::default() }
    }

    /// Issues a key that is valid for `lifetime` and bound to `session`. `owner` is the API key that asked, one of
    /// `keys`: with several, none may hold more than half of what all may hold.
    pub fn issue(
        &self,
        now: Instant,
        lifetime: Duration,
        session: Arc<Value>,
        owner: Option<KeyId>,
        keys: usize,
    ) -> Result<String, IssueError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(IssueError::Random)?;
        self.issue_as(random, now, lifetime, session, owner, keys)
    }

    /// As [`Self::issue`], with these random bytes in the key.
    pub fn issue_as(
        &self,
        random: [u8; 16],
        now: Instant,
        lifetime: Duration,
        session: Arc<Value>,
        owner: Option<KeyId>,
        keys: usize,
    ) -> Result<String, IssueError> {
        let key = self.key(random);
        let bytes = held_bytes(&session);
        let mut valid = self.valid();
        valid.retain(|_, bound| bound.until > now);
        // Time until there is room, if `shares` ways share what there is.
        let full = |grants: &mut dyn Iterator<Item = &Grant>, shares: usize| {
            let (mut count, mut held, mut first) = (0, bytes, None);
            for grant in grants {
                (count, held) = (count + 1, held + grant.bytes);
                first = Some(first.map_or(grant.until, |first: Instant| first.min(grant.until)));
            }
            let full = count >= (self.most / shares).max(1) || held > MAX_SESSION_BYTES / shares;
            full.then(|| first.unwrap_or(now).saturating_duration_since(now))
        };
        if let Some(retry_after) = full(&mut valid.values(), 1) {
            return Err(IssueError::Full { retry_after });
        }
        if keys > 1
            && let Some(retry_after) = full(&mut valid.values().filter(|grant| grant.owner == owner), 2)
        {
            return Err(IssueError::Share { retry_after });
        }
        valid.insert(hash(&key), Grant { until: now + lifetime, session, bytes, owner });
        Ok(key)
    }

    /// Session of the key with these random bytes; `None` if it has expired or was never issued.
    pub fn session(&self, random: [u8; 16], now: Instant) -> Option<Arc<Value>> {
        self.valid().get(&hash(&self.key(random))).filter(|grant| grant.until > now).map(|grant| grant.session.clone())
    }

    fn key(&self, random: [u8; 16]) -> String {
        format!("{}{}", self.prefix, crate::ids::hex(&random))
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

    /// Number of valid keys of each API key.
    pub fn counts(&self, now: Instant) -> HashMap<Option<KeyId>, usize> {
        let mut counts = HashMap::new();
        for grant in self.valid().values().filter(|grant| grant.until > now) {
            *counts.entry(grant.owner).or_default() += 1;
        }
        counts
    }

    /// Ends the keys of API keys that are not in `keys`.
    pub fn keep_owners(&self, keys: &KeySet) {
        self.valid().retain(|_, grant| grant.owner.is_none_or(|owner| keys.contains(owner)));
    }

    fn valid(&self) -> MutexGuard<'_, HashMap<KeyHash, Grant>> {
        // A panic cannot leave an insertion or removal half done.
        self.valid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that a value holds in memory, about: each node, and the text of keys and strings.
fn held_bytes(value: &Value) -> usize {
    let node = size_of::<Value>();
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => node,
        Value::String(text) => node + text.len(),
        Value::Array(values) => node + values.iter().map(held_bytes).sum::<usize>(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| size_of::<String>() + key.len() + held_bytes(value);
            node + fields.iter().map(field).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MAX_EPHEMERAL: usize = 100;

    #[test]
    fn an_ephemeral_key_expires_with_its_session() {
        let keys = EphemeralKeys::new("0a1b", 10);
        let start = Instant::now();
        let session = Arc::new(json!({"instructions": "secret"}));
        let owner = Some(KeyId(3));
        let key = keys.issue(start, Duration::from_secs(10), session.clone(), owner, 1).unwrap();
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
        let keys = EphemeralKeys::new("t", MAX_EPHEMERAL);
        let start = Instant::now();
        let issue = |now, session: &Arc<Value>| keys.issue(now, Duration::from_secs(60), session.clone(), None, 1);
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
        // Many small values hold more than their text.
        let zeros = Arc::new(json!({"x": vec![0; MAX_SESSION_BYTES / size_of::<Value>()]}));
        let over = over + Duration::from_secs(60);
        assert!(matches!(issue(over, &zeros), Err(IssueError::Full { .. })));
    }

    #[test]
    fn an_api_key_leaves_others_their_share() {
        let set = KeySet::parse("the-first-of-two-keys\nthe-second-of-two-keys").unwrap();
        let [first, second] = ["the-first-of-two-keys", "the-second-of-two-keys"].map(|key| set.find(key));
        let keys = EphemeralKeys::new("t", MAX_EPHEMERAL);
        let (start, empty) = (Instant::now(), Arc::new(json!({})));
        let issue = |owner, count| keys.issue(start, Duration::from_secs(60), empty.clone(), owner, count);
        for _ in 0..MAX_EPHEMERAL / 2 {
            issue(first, 2).unwrap();
        }
        assert!(matches!(issue(first, 2), Err(IssueError::Share { .. })));
        issue(second, 2).unwrap();
        assert_eq!(keys.counts(start), HashMap::from([(first, MAX_EPHEMERAL / 2), (second, 1)]));
        // A single key has all.
        issue(first, 1).unwrap();
    }

    #[test]
    fn a_removed_api_key_ends_its_ephemeral_keys() {
        let set = KeySet::parse("the-first-of-two-keys\nthe-second-of-two-keys").unwrap();
        let [first, second] = ["the-first-of-two-keys", "the-second-of-two-keys"].map(|key| set.find(key));
        let keys = EphemeralKeys::new("t", MAX_EPHEMERAL);
        let (start, empty) = (Instant::now(), Arc::new(json!({})));
        let [ours, theirs, free] = [first, second, None]
            .map(|owner| keys.issue(start, Duration::from_secs(60), empty.clone(), owner, 2).unwrap());
        keys.keep_owners(&KeySet::parse("the-second-of-two-keys").unwrap());
        assert_eq!(keys.look_up(&ours, start), KeyStatus::Expired);
        assert!(matches!(keys.look_up(&theirs, start), KeyStatus::Valid { .. }));
        assert!(matches!(keys.look_up(&free, start), KeyStatus::Valid { .. }));
    }
}
