//! Networks that limits by address count, and rate limits of them. No clock: the time is a parameter.
//!
//! An IPv4 address counts alone. Who has an IPv6 address has a network of them: its /64, its /56 and its /48 count, the
//! larger ones with a multiple of the limit, because several customers may share them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};

/// Prefix lengths of IPv6 networks, and the multiple of the limit that each may reach.
const IPV6_NETWORKS: [(u8, u32); 3] = [(64, 1), (56, 2), (48, 4)];
/// Maximum number of token buckets. Beyond it the networks without requests for the longest time are evicted.
const MAX_BUCKETS: usize = 16_384;

/// Networks of an address that limits count, each with the multiple of the limit that it may reach.
pub(crate) fn networks(address: IpAddr) -> impl Iterator<Item = (IpNet, u32)> {
    let (v4, v6) = match address.to_canonical() {
        IpAddr::V4(_) => (Some((IpNet::from(address.to_canonical()), 1)), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    };
    let networks = v6.into_iter().flat_map(|v6| {
        // The prefix lengths are valid.
        IPV6_NETWORKS.into_iter().filter_map(move |(length, multiple)| {
            let network = Ipv6Net::new(v6, length).ok()?;
            Some((IpNet::from(network.trunc()), multiple))
        })
    });
    v4.into_iter().chain(networks)
}

/// As [`networks`], but none for loopback, from which many clients may come.
pub(crate) fn remote_networks(address: IpAddr) -> impl Iterator<Item = (IpNet, u32)> {
    let remote = !address.to_canonical().is_loopback();
    networks(address).filter(move |_| remote)
}

/// Counts of something held by networks.
#[derive(Debug, Default)]
pub(crate) struct NetworkCounts(HashMap<IpNet, u32>);

impl NetworkCounts {
    /// Adds one for a remote address, unless a network of it has reached its share of `limit`; false then. A limit of 0
    /// means none.
    pub fn add(&mut self, address: IpAddr, limit: u32) -> bool {
        let full = |(network, multiple): (IpNet, u32)| {
            limit > 0 && self.0.get(&network).is_some_and(|held| *held >= limit.saturating_mul(multiple))
        };
        if remote_networks(address).any(full) {
            return false;
        }
        remote_networks(address).for_each(|(network, _)| *self.0.entry(network).or_default() += 1);
        true
    }

    /// Takes one of an address away.
    pub fn remove(&mut self, address: IpAddr) {
        for (network, _) in remote_networks(address) {
            if let Some(held) = self.0.get_mut(&network) {
                *held = held.saturating_sub(1);
                if *held == 0 {
                    self.0.remove(&network);
                }
            }
        }
    }

    /// True if nothing is held.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Addresses that a rate limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All but loopback.
    Remote,
    /// Loopback too.
    All,
}

/// Rate limit by address: token buckets in a bounded table.
#[derive(Debug)]
pub(crate) struct AddressRate {
    per_minute: u32,
    scope: Scope,
    buckets: HashMap<IpNet, TokenBucket>,
}

/// Token bucket of one network: `left` requests at time `at`.
#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    left: f64,
    at: Instant,
}

impl AddressRate {
    /// Creates a limit of `per_minute` for an address; 0 for no limit.
    pub fn new(per_minute: u32, scope: Scope) -> Self {
        Self { per_minute, scope, buckets: HashMap::new() }
    }

    /// Takes a token from the buckets of the address; fails with the time until there is one.
    pub fn take(&mut self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let counted = self.per_minute > 0 && (self.scope == Scope::All || !address.to_canonical().is_loopback());
        if !counted {
            return Ok(());
        }
        let mut wait = 0.0_f64;
        for (network, multiple) in networks(address) {
            let full = f64::from(self.per_minute) * f64::from(multiple);
            let per_second = full / 60.0;
            if self.buckets.len() >= MAX_BUCKETS && !self.buckets.contains_key(&network) {
                evict(&mut self.buckets, now);
            }
            let bucket = self.buckets.entry(network).or_insert(TokenBucket { left: full, at: now });
            let since = now.saturating_duration_since(bucket.at).as_secs_f64();
            *bucket = TokenBucket { left: (bucket.left + since * per_second).min(full), at: now };
            wait = wait.max((1.0 - bucket.left) / per_second);
        }
        if wait > 0.0 {
            return Err(Duration::from_secs_f64(wait));
        }
        for (network, _) in networks(address) {
            if let Some(bucket) = self.buckets.get_mut(&network) {
                bucket.left -= 1.0;
            }
        }
        Ok(())
    }

    /// Number of buckets.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.buckets.len()
    }
}

/// Evicts networks whose bucket is full again, after a minute; if that is not enough, the older half.
fn evict(buckets: &mut HashMap<IpNet, TokenBucket>, now: Instant) {
    buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < Duration::from_secs(60));
    if buckets.len() >= MAX_BUCKETS {
        let mut times: Vec<_> = buckets.values().map(|bucket| bucket.at).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        buckets.retain(|_, bucket| bucket.at > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_of_an_address_count_together() {
        let named = |text| networks(address(text)).map(|(network, _)| network.to_string()).collect::<Vec<_>>();
        assert_eq!(named("203.0.113.7"), ["203.0.113.7/32"]);
        assert_eq!(named("::ffff:203.0.113.7"), ["203.0.113.7/32"]);
        let ours = ["2001:db8:1:2345::/64", "2001:db8:1:2300::/56", "2001:db8:1::/48"];
        assert_eq!(named("2001:db8:1:2345::9"), ours);
        let mut held = NetworkCounts::default();
        // A /64 has the limit, a /56 twice and a /48 four times as much.
        let took = |held: &mut NetworkCounts, part: &str| {
            let taken = |n: &u32| held.add(address(&format!("2001:db8:1:{part}{n:02x}::1")), 2);
            (0..20).filter(taken).count()
        };
        assert!(held.add(address("2001:db8:1:1::1"), 2) && held.add(address("2001:db8:1:1::2"), 2));
        assert!(!held.add(address("2001:db8:1:1::3"), 2));
        assert_eq!([took(&mut held, "00"), took(&mut held, "01"), took(&mut held, "02")], [2, 4, 0]);
        assert!(held.add(address("2001:db8:2::1"), 2));
        for _ in 0..50 {
            assert!(held.add(address("127.0.0.1"), 2));
        }
        held.remove(address("2001:db8:2::1"));
        assert!(!held.is_empty());
    }

    #[test]
    fn the_rate_refills_with_time() {
        let (start, caller) = (Instant::now(), address("203.0.113.7"));
        let mut rate = AddressRate::new(6, Scope::Remote);
        for _ in 0..6 {
            rate.take(caller, start).unwrap();
        }
        let wait = rate.take(caller, start).unwrap_err();
        assert_eq!(wait, Duration::from_secs(10));
        assert!(rate.take(caller, start + wait / 2).is_err());
        rate.take(caller, start + wait).unwrap();
        assert!(rate.take(caller, start + wait).is_err());
        let own = address("127.0.0.1");
        assert!((0..50).all(|_| rate.take(own, start).is_ok()));
        let mut all = AddressRate::new(6, Scope::All);
        assert_eq!((0..50).filter(|_| all.take(own, start).is_ok()).count(), 6);
    }

    #[test]
    fn a_flood_evicts_the_quietest_addresses() {
        let (start, mut rate) = (Instant::now(), AddressRate::new(60, Scope::All));
        let mut check = |n: u32, ms: u64| {
            let address = std::net::Ipv4Addr::from_bits(0xcb00_0000 + n).into();
            rate.take(address, start + Duration::from_millis(ms))
        };
        let flood = u32::try_from(MAX_BUCKETS).unwrap() * 3;
        for n in 0..flood {
            check(n, u64::from(n) / 10).unwrap();
        }
        let last = flood - 1;
        for _ in 0..59 {
            check(last, u64::from(last) / 10).unwrap();
        }
        assert!(check(last, u64::from(last) / 10).is_err(), "the newest are kept");
        assert!(rate.len() <= MAX_BUCKETS);
    }
}
