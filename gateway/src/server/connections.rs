//! Limits of the number of connections: all together and from one address, so that a few silent clients never lock out
//! the others.
//!
//! Beyond the limit there is a reserve. Its connections get health checks only, so monitoring sees that the process
//! lives. Trusted proxies and this machine have no share, because many clients come from there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::client_addr::trusts;
use crate::admission::limited_address;

/// Number of reserve connections beyond the limit.
pub(super) const RESERVE: u32 = 64;
/// Maximum reserve connections from one address.
const RESERVE_SHARE: u32 = 8;

/// Counts and limits the connections of one server.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    limit: u32,
    share: u32,
    trusted: Vec<IpNet>,
    /// One permit for each connection, including the reserve.
    permits: Arc<Semaphore>,
    open: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    /// Number of connections without the reserve.
    total: u32,
    by_address: HashMap<IpAddr, u32>,
    reserve_by_address: HashMap<IpAddr, u32>,
}

/// Counted connection; released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    connections: Arc<ConnectionLimiter>,
    address: Option<IpAddr>,
    /// True if the connection belongs to the reserve and gets health checks only.
    pub reserve: bool,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimiter {
    /// Creates limits of `limit` connections in total and `share` from one address; a `share` of 0 means no limit.
    pub fn new(limit: u32, share: u32, trusted: Vec<IpNet>) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(limit.saturating_add(RESERVE) as usize));
        Arc::new(Self { limit, share, trusted, permits, open: Mutex::default() })
    }

    /// Waits until one more connection can be accepted.
    pub async fn acquire(&self) -> OwnedSemaphorePermit {
        match self.permits.clone().acquire_owned().await {
            Ok(permit) => permit,
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Counts a connection from `address`; `None` if the address has reached its share.
    pub fn admit(self: &Arc<Self>, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<ConnectionPermit> {
        let address = limited_address(address).filter(|_| !trusts(&self.trusted, address));
        let mut open = self.open();
        let reserve = open.total >= self.limit;
        if let Some(address) = address {
            let (by_address, share) = match reserve {
                true => (&mut open.reserve_by_address, RESERVE_SHARE),
                false => (&mut open.by_address, if self.share == 0 { u32::MAX } else { self.share }),
            };
            let held = by_address.entry(address).or_default();
            if *held >= share {
                return None;
            }
            *held += 1;
        }
        open.total += u32::from(!reserve);
        Some(ConnectionPermit { connections: self.clone(), address, reserve, _permit: permit })
    }

    fn open(&self) -> MutexGuard<'_, ConnectionCounts> {
        // A panic cannot leave the counts half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.total -= u32::from(!self.reserve);
        let by_address = if self.reserve { &mut open.reserve_by_address } else { &mut open.by_address };
        if let Some(address) = self.address
            && let Some(held) = by_address.get_mut(&address)
        {
            *held -= 1;
            if *held == 0 {
                by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn connect(connections: &Arc<ConnectionLimiter>, address: &str) -> Option<ConnectionPermit> {
        connections.admit(address.parse().unwrap(), connections.acquire().await)
    }

    #[tokio::test]
    async fn one_address_leaves_room_for_others() {
        let connections = ConnectionLimiter::new(100, 3, vec!["10.0.0.0/8".parse().unwrap()]);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(connect(&connections, "2001:db8:1:2::1").await.unwrap());
        }
        assert!(connect(&connections, "2001:db8:1:2::9").await.is_none(), "the network has its share");
        connect(&connections, "203.0.113.8").await.unwrap();
        held.pop();
        connect(&connections, "2001:db8:1:2::9").await.unwrap();
        // Trusted proxies and loopback have no share.
        for address in ["10.1.2.3", "127.0.0.1", "::ffff:10.1.2.3"] {
            for _ in 0..10 {
                held.push(connect(&connections, address).await.unwrap());
            }
        }
        drop(held);
        assert_eq!(connections.open().total, 0);
        assert!(connections.open().by_address.is_empty());
    }

    #[tokio::test]
    async fn beyond_the_limit_is_a_bounded_reserve() {
        let connections = ConnectionLimiter::new(1, 0, Vec::new());
        let first = connect(&connections, "203.0.113.7").await.unwrap();
        assert!(!first.reserve);
        let mut reserved = Vec::new();
        for _ in 0..RESERVE_SHARE {
            reserved.push(connect(&connections, "203.0.113.7").await.unwrap());
        }
        assert!(reserved.iter().all(|place| place.reserve));
        assert!(connect(&connections, "203.0.113.7").await.is_none());
        while reserved.len() < RESERVE as usize {
            reserved.push(connect(&connections, "127.0.0.1").await.unwrap());
        }
        assert!(futures_util::FutureExt::now_or_never(connections.acquire()).is_none());
        drop(first);
        assert!(!connect(&connections, "203.0.113.7").await.unwrap().reserve);
    }
}
