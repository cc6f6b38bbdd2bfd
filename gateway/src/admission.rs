//! How many calls one caller may have, and how fast it may ask for more. The engine's slots bound all callers together; this keeps
//! one of them from taking every slot. Pure: the time is a parameter.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::auth::KeyId;
use crate::config::Limits;

/// Addresses whose pace is kept in mind. When there are more, those that have been quiet longest are forgotten.
const MAX_PACED: usize = 16_384;
/// When to try again where nobody can know when a call ends.
const CALL_RETRY: Duration = Duration::from_secs(5);

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// From where.
    pub address: IpAddr,
    /// With which key.
    pub key: Option<KeyId>,
}

/// A limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Denied {
    /// Calls with this key.
    #[error("this key has {limit} calls already: end one first")]
    CallsOfKey {
        /// How many there may be.
        limit: u32,
    },
    /// Calls from this address.
    #[error("there are {limit} calls from this address already: end one first")]
    CallsOfAddress {
        /// How many there may be.
        limit: u32,
    },
    /// Too many in a minute.
    #[error("more than {limit} requests for calls in a minute: wait a moment")]
    Pace {
        /// How many there may be in a minute.
        limit: u32,
        /// When there may be another.
        retry_after: Duration,
    },
}

impl Denied {
    /// When it makes sense to try again.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::CallsOfKey { .. } | Self::CallsOfAddress { .. } => CALL_RETRY,
            Self::Pace { retry_after, .. } => *retry_after,
        }
    }

    /// The limit's name in the metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::CallsOfKey { .. } => "key",
            Self::CallsOfAddress { .. } => "address",
            Self::Pace { .. } => "pace",
        }
    }
}

/// Counts who calls.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    by_key: HashMap<KeyId, u32>,
    by_address: HashMap<IpAddr, u32>,
    paces: HashMap<IpAddr, Pace>,
}

/// A bucket that fills with time: what an address may still ask for.
#[derive(Debug, Clone, Copy)]
struct Pace {
    left: f64,
    at: Instant,
}

/// The right to one call; it ends when this is dropped.
#[derive(Debug)]
pub struct Ticket {
    admission: Arc<Admission>,
    key: Option<KeyId>,
    address: Option<IpAddr>,
}

impl Drop for Ticket {
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
    /// Nobody calls yet.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// The right to a call, if its limits allow another. It counts for the pace either way.
    pub fn admit(self: &Arc<Self>, asker: Asker, now: Instant) -> Result<Ticket, Denied> {
        self.pace(asker.address, now)?;
        let address = counted(asker.address);
        let mut counts = self.counts();
        let (of_key, of_address) = (self.limits.calls_per_key, self.limits.calls_per_address);
        if let Some(key) = asker.key
            && of_key > 0
            && counts.by_key.get(&key).is_some_and(|calls| *calls >= of_key)
        {
            return Err(Denied::CallsOfKey { limit: of_key });
        }
        if let Some(address) = address
            && of_address > 0
            && counts.by_address.get(&address).is_some_and(|calls| *calls >= of_address)
        {
            return Err(Denied::CallsOfAddress { limit: of_address });
        }
        if let Some(key) = asker.key {
            *counts.by_key.entry(key).or_default() += 1;
        }
        if let Some(address) = address {
            *counts.by_address.entry(address).or_default() += 1;
        }
        Ok(Ticket { admission: self.clone(), key: asker.key, address })
    }

    /// Counts a request that costs little by itself but opens a door, such as one for an ephemeral key.
    pub fn pace(&self, address: IpAddr, now: Instant) -> Result<(), Denied> {
        let limit = self.limits.opens_per_minute;
        let Some(address) = counted(address).filter(|_| limit > 0) else { return Ok(()) };
        let (full, per_second) = (f64::from(limit), f64::from(limit) / 60.0);
        let mut counts = self.counts();
        if counts.paces.len() >= MAX_PACED && !counts.paces.contains_key(&address) {
            forget(&mut counts.paces, now, full / per_second);
        }
        let pace = counts.paces.entry(address).or_insert(Pace { left: full, at: now });
        let since = now.saturating_duration_since(pace.at).as_secs_f64();
        *pace = Pace { left: (pace.left + since * per_second).min(full), at: now };
        if pace.left < 1.0 {
            let retry_after = Duration::from_secs_f64((1.0 - pace.left) / per_second);
            return Err(Denied::Pace { limit, retry_after });
        }
        pace.left -= 1.0;
        Ok(())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Counting leaves nothing half done.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets addresses whose bucket is full again after `refill` seconds; if there are none, the half that was quiet longest.
fn forget(paces: &mut HashMap<IpAddr, Pace>, now: Instant, refill: f64) {
    paces.retain(|_, pace| now.saturating_duration_since(pace.at).as_secs_f64() < refill);
    if paces.len() >= MAX_PACED {
        let mut times: Vec<_> = paces.values().map(|pace| pace.at).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        paces.retain(|_, pace| pace.at > median);
    }
}

/// What an address counts as: an IPv6 network of one customer is one caller, and this machine itself is not counted.
fn counted(address: IpAddr) -> Option<IpAddr> {
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

    fn limits(calls_per_key: u32, calls_per_address: u32, opens_per_minute: u32) -> Limits {
        Limits { calls_per_key, calls_per_address, opens_per_minute, ..Limits::default() }
    }

    fn from(address: &str) -> Asker {
        Asker { address: address.parse().unwrap(), key: None }
    }

    #[test]
    fn an_address_has_so_many_calls_and_others_do_not_notice() {
        let admission = Admission::new(limits(0, 2, 0));
        let now = Instant::now();
        let first = admission.admit(from("203.0.113.7"), now).unwrap();
        let _second = admission.admit(from("::ffff:203.0.113.7"), now).unwrap();
        let denied = admission.admit(from("203.0.113.7"), now).unwrap_err();
        assert_eq!(denied, Denied::CallsOfAddress { limit: 2 });
        admission.admit(from("203.0.113.8"), now).unwrap();
        drop(first);
        admission.admit(from("203.0.113.7"), now).unwrap();
    }

    #[test]
    fn a_network_of_ipv6_is_one_caller_and_this_machine_none() {
        let admission = Admission::new(limits(0, 1, 1));
        let now = Instant::now();
        let _call = admission.admit(from("2001:db8:1:2::1"), now).unwrap();
        assert!(admission.admit(from("2001:db8:1:2:ffff::9"), now).is_err());
        admission.admit(from("2001:db8:1:3::1"), now).unwrap();
        let own: Vec<_> = (0..50).map(|_| admission.admit(from("127.0.0.1"), now).unwrap()).collect();
        assert_eq!(own.len(), 50);
    }

    #[test]
    fn a_key_has_so_many_calls_wherever_they_come_from() {
        let keys = crate::auth::KeySet::parse("the-first-of-two-keys\nthe-second-of-two-keys").unwrap();
        let key = |name: &str, address: &str| Asker { address: address.parse().unwrap(), key: keys.find(name) };
        let admission = Admission::new(limits(1, 0, 0));
        let now = Instant::now();
        let call = admission.admit(key("the-first-of-two-keys", "203.0.113.7"), now).unwrap();
        let denied = admission.admit(key("the-first-of-two-keys", "127.0.0.1"), now).unwrap_err();
        assert_eq!(denied, Denied::CallsOfKey { limit: 1 });
        admission.admit(key("the-second-of-two-keys", "203.0.113.7"), now).unwrap();
        drop(call);
        admission.admit(key("the-first-of-two-keys", "203.0.113.7"), now).unwrap();
        assert!(admission.counts().by_key.is_empty());
    }

    #[test]
    fn asking_too_fast_is_denied_until_time_has_passed() {
        let admission = Admission::new(limits(0, 0, 6));
        let (start, address) = (Instant::now(), "203.0.113.7".parse().unwrap());
        for _ in 0..6 {
            admission.pace(address, start).unwrap();
        }
        let Err(Denied::Pace { limit: 6, retry_after }) = admission.pace(address, start) else { panic!("denied") };
        assert_eq!(retry_after, Duration::from_secs(10));
        assert!(admission.pace(address, start + retry_after / 2).is_err());
        admission.pace(address, start + retry_after).unwrap();
        assert!(admission.pace(address, start + retry_after).is_err());
    }

    #[test]
    fn a_flood_of_addresses_is_forgotten_from_its_quiet_end() {
        let admission = Admission::new(limits(0, 0, 60));
        let start = Instant::now();
        let pace = |n: u32, ms: u64| {
            admission.pace(std::net::Ipv4Addr::from_bits(0xcb00_0000 + n).into(), start + Duration::from_millis(ms))
        };
        let flood = u32::try_from(MAX_PACED).unwrap() * 3;
        for n in 0..flood {
            pace(n, u64::from(n) / 10).unwrap();
        }
        assert!(admission.counts().paces.len() <= MAX_PACED);
        let last = flood - 1;
        for _ in 0..59 {
            pace(last, u64::from(last) / 10).unwrap();
        }
        assert!(pace(last, u64::from(last) / 10).is_err(), "the newest are remembered");
    }
}
