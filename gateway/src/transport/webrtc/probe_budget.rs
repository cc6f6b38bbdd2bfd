//! Rate limit of STUN to addresses that are not validated. A caller could put any address on its own checks, so the
//! datagrams to each address are bounded, for all ports and calls together.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::address_rate::remote_networks;

/// Datagrams that may go to an address at once.
const BURST: f64 = 200.0;
/// Refill rate of an address, in datagrams a second.
const PER_SECOND: f64 = 100.0;
/// Maximum tracked networks. At the limit, a new address gets nothing until an entry is idle for the time of a refill.
const MAX_ADDRESSES: usize = 4_096;

/// Token bucket for each network of an address; larger networks have multiples of the budget.
#[derive(Debug, Default)]
pub(super) struct ProbeBudget(HashMap<IpNet, Bucket>);

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl ProbeBudget {
    /// Takes a token for one datagram to `address`; false if there is none. Loopback has no limit.
    pub fn take(&mut self, address: IpAddr, now: Instant) -> bool {
        let refill = Duration::from_secs_f64(BURST / PER_SECOND);
        let mut enough = true;
        for (network, multiple) in remote_networks(address) {
            if self.0.len() >= MAX_ADDRESSES && !self.0.contains_key(&network) {
                self.0.retain(|_, bucket| now.saturating_duration_since(bucket.at) < refill);
                if self.0.len() >= MAX_ADDRESSES {
                    return false;
                }
            }
            let (burst, per_second) = (BURST * f64::from(multiple), PER_SECOND * f64::from(multiple));
            let bucket = self.0.entry(network).or_insert(Bucket { left: burst, at: now });
            let since = now.saturating_duration_since(bucket.at).as_secs_f64();
            *bucket = Bucket { left: (bucket.left + since * per_second).min(burst), at: now };
            enough &= bucket.left >= 1.0;
        }
        if enough {
            for (network, _) in remote_networks(address) {
                if let Some(bucket) = self.0.get_mut(&network) {
                    bucket.left -= 1.0;
                }
            }
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_its_budget() {
        let mut budget = ProbeBudget::default();
        let (now, victim) = (Instant::now(), IpAddr::from([192, 0, 2, 9]));
        let sent = |budget: &mut ProbeBudget, now| (0..10_000).filter(|_| budget.take(victim, now)).count();
        assert_eq!(sent(&mut budget, now), BURST as usize);
        assert_eq!(sent(&mut budget, now + Duration::from_secs(1)), PER_SECOND as usize);
        assert!(budget.take([192, 0, 2, 10].into(), now), "others have their own");
        assert!((0..10_000).all(|_| budget.take([127, 0, 0, 1].into(), now)));
    }

    #[test]
    fn a_network_has_a_budget_too() {
        let mut budget = ProbeBudget::default();
        let now = Instant::now();
        let victims = (0..256u32).map(|n| IpAddr::from([0x2001, 0xdb8, 1, n as u16, 0, 0, 0, 1]));
        let sent: usize = victims.map(|victim| (0..200).filter(|_| budget.take(victim, now)).count()).sum();
        assert_eq!(sent, 2 * BURST as usize, "a /56 has twice the budget of an address");
    }

    #[test]
    fn counted_addresses_are_bounded() {
        let mut budget = ProbeBudget::default();
        let now = Instant::now();
        let taken = (0..2 * MAX_ADDRESSES as u32)
            .filter(|n| budget.take(std::net::Ipv4Addr::from(0xc000_0000 + n).into(), now));
        assert_eq!(taken.count(), MAX_ADDRESSES);
        assert!(budget.take([203, 0, 113, 7].into(), now + Duration::from_secs(3)), "quiet ones make room");
        assert_eq!(budget.0.len(), 1);
    }
}
