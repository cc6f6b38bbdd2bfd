//! Sessions of ephemeral keys that other nodes have issued, so that a key which opens many calls is asked about once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// Most bytes of JSON of all sessions.
const MAX_BYTES: usize = 16 << 20;
/// Most sessions.
const MAX_SESSIONS: usize = 1_024;

/// Random part of a key.
type Nonce = [u8; 16];

/// Sessions by the random part of their keys.
#[derive(Debug, Default)]
pub struct SessionCache(Mutex<HashMap<Nonce, CachedSession>>);

#[derive(Debug)]
struct CachedSession {
    session: Arc<Value>,
    /// Size in JSON, in bytes.
    bytes: usize,
    /// End of the key, in seconds since 1970.
    until: u64,
}

impl SessionCache {
    /// Returns the session of a key.
    pub fn get(&self, nonce: &Nonce) -> Option<Arc<Value>> {
        self.all().get(nonce).map(|cached| cached.session.clone())
    }

    /// Keeps the session of a key that ends at `until`, of `bytes` bytes of JSON. Evicts those that have ended at `unix`, then
    /// those that end first.
    pub fn put(&self, nonce: Nonce, (session, bytes): (Arc<Value>, usize), until: u64, unix: u64) {
        let mut all = self.all();
        all.retain(|_, cached| cached.until > unix);
        all.insert(nonce, CachedSession { session, bytes, until });
        while all.len() > MAX_SESSIONS || all.values().map(|cached| cached.bytes).sum::<usize>() > MAX_BYTES {
            let Some(first) = all.iter().min_by_key(|(_, cached)| cached.until).map(|(nonce, _)| *nonce) else {
                return;
            };
            all.remove(&first);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Nonce, CachedSession>> {
        // Entries are inserted and removed whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_bounded_and_expire() {
        let cache = SessionCache::default();
        let put =
            |nonce: u8, bytes, until, unix| cache.put([nonce; 16], (Arc::new(Value::from(nonce)), bytes), until, unix);
        let holds = |nonces: &[u8]| nonces.iter().map(|nonce| cache.get(&[*nonce; 16]).is_some()).collect::<Vec<_>>();
        put(1, MAX_BYTES / 2, 200, 100);
        put(2, MAX_BYTES / 2, 150, 100);
        assert_eq!(holds(&[1, 2]), [true, true]);
        put(3, 1, 300, 100);
        assert_eq!(holds(&[1, 2, 3]), [true, false, true], "the one that ends first goes");
        put(4, 1, 900, 250);
        assert_eq!(holds(&[1, 3, 4]), [false, true, true], "the first one has ended");
        put(5, MAX_BYTES + 1, 999, 250);
        assert_eq!(holds(&[3, 4, 5]), [false; 3]);
    }
}
