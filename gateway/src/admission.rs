//! Admission: limits of calls per key and per address, and a rate limit per address. The engine's slots bound all
//! callers together; these limits keep one caller from taking every slot. No clock: the time is a parameter.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::address_rate::{AddressRate, NetworkCounts, Scope};
use crate::auth::KeyId;
use crate::budget::key_limit::KeyLimit;
use crate::config::LimitConfig;

/// `Retry-After` of a call limit.
pub(crate) const CALL_RETRY: Duration = Duration::from_secs(5);

/// Key and address that the limits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientIdentity {
    /// Client's IP address.
    pub address: IpAddr,
    /// API key; `None` if none was sent.
    pub key: Option<KeyId>,
}

/// Calls that a key may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCalls {
    /// Maximum number at once; 0 for no limit.
    pub most: u32,
    /// Number that it has on other servers.
    pub elsewhere: u32,
}

/// Limit that refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AdmissionError {
    /// Too many calls with one key.
    #[error("limits.calls_per_key: this key has {limit} calls already: end one first")]
    KeyLimit {
        /// Maximum number of calls at once.
        limit: u32,
    },
    /// Too many calls from one address.
    #[error("limits.calls_per_address: there are {limit} calls from this address already: end one first")]
    AddressLimit {
        /// Maximum number of calls at once.
        limit: u32,
    },
    /// Too many requests from one address.
    #[error("limits.opens_per_minute: more than {limit} requests for calls in a minute: wait a moment")]
    RateLimit {
        /// Maximum number of requests in a minute.
        limit: u32,
        /// Time until the next request is allowed.
        retry_after: Duration,
    },
}

impl AdmissionError {
    /// Time to wait before the next try.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::KeyLimit { .. } | Self::AddressLimit { .. } => CALL_RETRY,
            Self::RateLimit { retry_after, .. } => *retry_after,
        }
    }

    /// Name of the limit's setting under `limits`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::KeyLimit { .. } => KeyLimit::Calls.name(),
            Self::AddressLimit { .. } => "calls_per_address",
            Self::RateLimit { .. } => "opens_per_minute",
        }
    }

    /// Value of the metrics' label `reason`.
    pub fn label(&self) -> &'static str {
        match self {
            Self::KeyLimit { .. } => "key",
            Self::AddressLimit { .. } => "address",
            Self::RateLimit { .. } => "rate",
        }
    }
}

/// Counts calls and requests per key and per address.
#[derive(Debug)]
pub struct Admission {
    limits: LimitConfig,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// Calls of each key, and those without one.
    by_key: HashMap<Option<KeyId>, u32>,
    by_address: NetworkCounts,
    rate: AddressRate,
}

/// Permit of one call; released when dropped.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    key: Option<KeyId>,
    address: IpAddr,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.admission.counts();
        release(counts.by_key.entry(self.key));
        counts.by_address.remove(self.address);
    }
}

fn release<K>(entry: Entry<'_, K, u32>) {
    if let Entry::Occupied(mut entry) = entry {
        *entry.get_mut() = entry.get().saturating_sub(1);
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}

impl Admission {
    /// Creates an admission without calls.
    pub fn new(limits: LimitConfig) -> Arc<Self> {
        let rate = AddressRate::new(limits.opens_per_minute, Scope::Remote);
        let counts = Counts { by_key: HashMap::new(), by_address: NetworkCounts::default(), rate };
        Arc::new(Self { limits, counts: Mutex::new(counts) })
    }

    /// Returns a permit if the limits allow one more call. The request counts for the rate limit either way.
    pub fn admit(
        self: &Arc<Self>,
        client: ClientIdentity,
        of_key: KeyCalls,
        now: Instant,
    ) -> Result<Permit, AdmissionError> {
        self.check_rate(client.address, now)?;
        let mut counts = self.counts();
        let of_address = self.limits.calls_per_address;
        let of_same = counts.by_key.get(&client.key).copied().unwrap_or_default();
        if of_key.most > 0 && of_same.saturating_add(of_key.elsewhere) >= of_key.most {
            return Err(AdmissionError::KeyLimit { limit: of_key.most });
        }
        if !counts.by_address.add(client.address, of_address) {
            return Err(AdmissionError::AddressLimit { limit: of_address });
        }
        *counts.by_key.entry(client.key).or_default() += 1;
        Ok(Permit { admission: self.clone(), key: client.key, address: client.address })
    }

    /// Takes a token from the address's bucket, for requests that take no slot, such as one for an ephemeral key.
    pub fn check_rate(&self, address: IpAddr, now: Instant) -> Result<(), AdmissionError> {
        let limit = self.limits.opens_per_minute;
        let taken = self.counts().rate.take(address, now);
        taken.map_err(|retry_after| AdmissionError::RateLimit { limit, retry_after })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // A panic cannot leave the counts half changed.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(calls_per_address: u32, opens_per_minute: u32) -> LimitConfig {
        LimitConfig { calls_per_address, opens_per_minute, ..LimitConfig::default() }
    }

    const ONE: KeyCalls = KeyCalls { most: 1, elsewhere: 0 };
    const ANY: KeyCalls = KeyCalls { most: 0, elsewhere: 0 };

    fn from(address: &str) -> ClientIdentity {
        ClientIdentity { address: address.parse().unwrap(), key: None }
    }

    #[test]
    fn calls_are_limited_per_address() {
        let admission = Admission::new(limits(2, 0));
        let now = Instant::now();
        let first = admission.admit(from("203.0.113.7"), ANY, now).unwrap();
        let _second = admission.admit(from("::ffff:203.0.113.7"), ANY, now).unwrap();
        let denied = admission.admit(from("203.0.113.7"), ANY, now).unwrap_err();
        assert_eq!(denied, AdmissionError::AddressLimit { limit: 2 });
        admission.admit(from("203.0.113.8"), ANY, now).unwrap();
        drop(first);
        admission.admit(from("203.0.113.7"), ANY, now).unwrap();
    }

    #[test]
    fn ipv6_counts_by_64_and_loopback_not() {
        let admission = Admission::new(limits(1, 1));
        let now = Instant::now();
        let _call = admission.admit(from("2001:db8:1:2::1"), ANY, now).unwrap();
        assert!(admission.admit(from("2001:db8:1:2:ffff::9"), ANY, now).is_err());
        admission.admit(from("2001:db8:2:3::1"), ANY, now).unwrap();
        let own: Vec<_> = (0..50).map(|_| admission.admit(from("127.0.0.1"), ANY, now).unwrap()).collect();
        assert_eq!(own.len(), 50);
    }

    #[test]
    fn calls_are_limited_per_key() {
        let keys = crate::auth::KeySet::parse("the-first-of-two-keys\nthe-second-of-two-keys").unwrap();
        let key =
            |name: &str, address: &str| ClientIdentity { address: address.parse().unwrap(), key: keys.find(name) };
        let admission = Admission::new(limits(0, 0));
        let now = Instant::now();
        let call = admission.admit(key("the-first-of-two-keys", "203.0.113.7"), ONE, now).unwrap();
        let denied = admission.admit(key("the-first-of-two-keys", "127.0.0.1"), ONE, now).unwrap_err();
        assert_eq!(denied, AdmissionError::KeyLimit { limit: 1 });
        admission.admit(key("the-second-of-two-keys", "203.0.113.7"), ONE, now).unwrap();
        drop(call);
        admission.admit(key("the-first-of-two-keys", "203.0.113.7"), ONE, now).unwrap();
        // Calls without a key count together.
        let without = admission.admit(from("203.0.113.9"), ONE, now).unwrap();
        assert_eq!(admission.admit(from("127.0.0.1"), ONE, now).unwrap_err(), AdmissionError::KeyLimit { limit: 1 });
        drop(without);
        assert!(admission.counts().by_key.is_empty());
        // Two of three are on other servers.
        let three = KeyCalls { most: 3, elsewhere: 2 };
        let _call = admission.admit(key("the-first-of-two-keys", "203.0.113.7"), three, now).unwrap();
        let denied = admission.admit(key("the-first-of-two-keys", "203.0.113.7"), three, now).unwrap_err();
        assert_eq!(denied, AdmissionError::KeyLimit { limit: 3 });
        let unlimited = KeyCalls { most: 0, elsewhere: 90 };
        admission.admit(key("the-first-of-two-keys", "203.0.113.7"), unlimited, now).unwrap();
    }
}
