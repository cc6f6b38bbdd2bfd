//! Admission: limits of calls per key and per address, and a rate limit per address. The engine's slots bound all
//! callers together; these limits keep one caller from taking every slot. No clock: the time is a parameter.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::auth::KeyId;
use crate::config::LimitConfig;

/// Maximum number of token buckets. Beyond it the addresses without requests for the longest time are evicted.
const MAX_BUCKETS: usize = 16_384;
/// `Retry-After` of a call limit.
const CALL_RETRY: Duration = Duration::from_secs(5);

/// Key and address that the limits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientIdentity {
    /// Client's IP address.
    pub address: IpAddr,
    /// API key; `None` if none was sent.
    pub key: Option<KeyId>,
}

/// Limit that refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AdmissionError {
    /// Too many calls with one key.
    #[error("this key has {limit} calls already: end one first")]
    KeyLimit {
        /// Maximum number of calls at once.
        limit: u32,
    },
    /// Too many calls from one address.
    #[error("there are {limit} calls from this address already: end one first")]
    AddressLimit {
        /// Maximum number of calls at once.
        limit: u32,
    },
    /// Too many requests from one address.
    #[error("more than {limit} requests for calls in a minute: wait a moment")]
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

#[derive(Debug, Default)]
struct Counts {
    by_key: HashMap<KeyId, u32>,
    by_address: HashMap<IpAddr, u32>,
    buckets: HashMap<IpAddr, TokenBucket>,
}

/// Token bucket of one address: `left` requests at time `at`.
#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    left: f64,
    at: Instant,
}

/// Permit of one call; released when dropped.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    key: Option<KeyId>,
    address: Option<IpAddr>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.admission.counts();
        if let Some(key) = self.key {
            release(counts.by_key.entry(key));
        }
        if let Some(address) = self.address {
            release(counts.by_address.entry(address));
        }
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
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// Returns a permit if the limits allow one more call. The request counts for the rate limit either way.
    pub fn admit(self: &Arc<Self>, client: ClientIdentity, now: Instant) -> Result<Permit, AdmissionError> {
        self.check_rate(client.address, now)?;
        let address = limited_address(client.address);
        let mut counts = self.counts();
        let (of_key, of_address) = (self.limits.calls_per_key, self.limits.calls_per_address);
        if let Some(key) = client.key
            && of_key > 0
            && counts.by_key.get(&key).is_some_and(|calls| *calls >= of_key)
        {
            return Err(AdmissionError::KeyLimit { limit: of_key });
        }
        if let Some(address) = address
            && of_address > 0
            && counts.by_address.get(&address).is_some_and(|calls| *calls >= of_address)
        {
            return Err(AdmissionError::AddressLimit { limit: of_address });
        }
        if let Some(key) = client.key {
            *counts.by_key.entry(key).or_default() += 1;
        }
        if let Some(address) = address {
            *counts.by_address.entry(address).or_default() += 1;
        }
        Ok(Permit { admission: self.clone(), key: client.key, address })
    }

    /// Takes a token from the address's bucket, for requests that take no slot, such as one for an ephemeral key.
    pub fn check_rate(&self, address: IpAddr, now: Instant) -> Result<(), AdmissionError> {
        let limit = self.limits.opens_per_minute;
        let Some(address) = limited_address(address).filter(|_| limit > 0) else { return Ok(()) };
        let (full, per_second) = (f64::from(limit), f64::from(limit) / 60.0);
        let mut counts = self.counts();
        if counts.buckets.len() >= MAX_BUCKETS && !counts.buckets.contains_key(&address) {
            evict(&mut counts.buckets, now, full / per_second);
        }
        let bucket = counts.buckets.entry(address).or_insert(TokenBucket { left: full, at: now });
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        *bucket = TokenBucket { left: (bucket.left + since * per_second).min(full), at: now };
        if bucket.left < 1.0 {
            let retry_after = Duration::from_secs_f64((1.0 - bucket.left) / per_second);
            return Err(AdmissionError::RateLimit { limit, retry_after });
        }
        bucket.left -= 1.0;
        Ok(())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // A panic cannot leave the counts half changed.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Evicts addresses whose bucket is full again after `refill` seconds; if that is not enough, the older half.
fn evict(buckets: &mut HashMap<IpAddr, TokenBucket>, now: Instant, refill: f64) {
    buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at).as_secs_f64() < refill);
    if buckets.len() >= MAX_BUCKETS {
        let mut times: Vec<_> = buckets.values().map(|bucket| bucket.at).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        buckets.retain(|_, bucket| bucket.at > median);
    }
}

/// Address that limits count: the /64 network of an IPv6 address; `None` for loopback.
pub(crate) fn limited_address(address: IpAddr) -> Option<IpAddr> {
    let address = address.to_canonical();
    match address {
        _ if address.is_loopback() => None,
        IpAddr::V4(_) => Some(address),
        IpAddr::V6(v6) => Some(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(calls_per_key: u32, calls_per_address: u32, opens_per_minute: u32) -> LimitConfig {
        LimitConfig { calls_per_key, calls_per_address, opens_per_minute, ..LimitConfig::default() }
    }

    fn from(address: &str) -> ClientIdentity {
        ClientIdentity { address: address.parse().unwrap(), key: None }
    }

    #[test]
    fn calls_are_limited_per_address() {
        let admission = Admission::new(limits(0, 2, 0));
        let now = Instant::now();
        let first = admission.admit(from("203.0.113.7"), now).unwrap();
        let _second = admission.admit(from("::ffff:203.0.113.7"), now).unwrap();
        let denied = admission.admit(from("203.0.113.7"), now).unwrap_err();
        assert_eq!(denied, AdmissionError::AddressLimit { limit: 2 });
        admission.admit(from("203.0.113.8"), now).unwrap();
        drop(first);
        admission.admit(from("203.0.113.7"), now).unwrap();
    }

    #[test]
    fn ipv6_counts_by_64_and_loopback_not() {
        let admission = Admission::new(limits(0, 1, 1));
        let now = Instant::now();
        let _call = admission.admit(from("2001:db8:1:2::1"), now).unwrap();
        assert!(admission.admit(from("2001:db8:1:2:ffff::9"), now).is_err());
        admission.admit(from("2001:db8:1:3::1"), now).unwrap();
        let own: Vec<_> = (0..50).map(|_| admission.admit(from("127.0.0.1"), now).unwrap()).collect();
        assert_eq!(own.len(), 50);
    }

    #[test]
    fn calls_are_limited_per_key() {
        let keys = crate::auth::KeySet::parse("the-first-of-two-keys\nthe-second-of-two-keys").unwrap();
        let key =
            |name: &str, address: &str| ClientIdentity { address: address.parse().unwrap(), key: keys.find(name) };
        let admission = Admission::new(limits(1, 0, 0));
        let now = Instant::now();
        let call = admission.admit(key("the-first-of-two-keys", "203.0.113.7"), now).unwrap();
        let denied = admission.admit(key("the-first-of-two-keys", "127.0.0.1"), now).unwrap_err();
        assert_eq!(denied, AdmissionError::KeyLimit { limit: 1 });
        admission.admit(key("the-second-of-two-keys", "203.0.113.7"), now).unwrap();
        drop(call);
        admission.admit(key("the-first-of-two-keys", "203.0.113.7"), now).unwrap();
        assert!(admission.counts().by_key.is_empty());
    }

    #[test]
    fn the_rate_limit_refills_with_time() {
        let admission = Admission::new(limits(0, 0, 6));
        let (start, address) = (Instant::now(), "203.0.113.7".parse().unwrap());
        for _ in 0..6 {
            admission.check_rate(address, start).unwrap();
        }
        let Err(AdmissionError::RateLimit { limit: 6, retry_after }) = admission.check_rate(address, start) else {
            panic!("denied")
        };
        assert_eq!(retry_after, Duration::from_secs(10));
        assert!(admission.check_rate(address, start + retry_after / 2).is_err());
        admission.check_rate(address, start + retry_after).unwrap();
        assert!(admission.check_rate(address, start + retry_after).is_err());
    }

    #[test]
    fn a_flood_evicts_the_quietest_addresses() {
        let admission = Admission::new(limits(0, 0, 60));
        let start = Instant::now();
        let check = |n: u32, ms: u64| {
            admission
                .check_rate(std::net::Ipv4Addr::from_bits(0xcb00_0000 + n).into(), start + Duration::from_millis(ms))
        };
        let flood = u32::try_from(MAX_BUCKETS).unwrap() * 3;
        for n in 0..flood {
            check(n, u64::from(n) / 10).unwrap();
        }
        assert!(admission.counts().buckets.len() <= MAX_BUCKETS);
        let last = flood - 1;
        for _ in 0..59 {
            check(last, u64::from(last) / 10).unwrap();
        }
        assert!(check(last, u64::from(last) / 10).is_err(), "the newest are kept");
    }
}
