//! Limits of the number of connections: all together and from one address, so that a few silent clients never lock out
//! the others.
//!
//! Beyond the limit there is a reserve. Its connections get health checks only, so monitoring sees that the process
//! lives. The newest connection evicts the oldest of a full reserve: a flood of silent ones does not keep a health check
//! waiting. Each has some time to send its request before that, and the newest waits for it in the system's queue: else
//! a burst would evict a health check between its connection and its request. Trusted proxies and this machine have no
//! share, because many clients come from there.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::client_addr::trusts;
use crate::address_rate::NetworkCounts;

/// Number of reserve connections beyond the limit. With [`REQUEST_TIME`] it accepts 25,600 connections in a second.
pub(super) const RESERVE: u32 = 512;
/// Maximum reserve connections from one address.
const RESERVE_SHARE: u32 = 8;
/// Time in which a connection of the reserve cannot be evicted by a newer one: its client sends the request.
const REQUEST_TIME: Duration = Duration::from_millis(20);

/// Counts and limits the connections of one server.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    limit: u32,
    share: u32,
    reserve: usize,
    trusted: Vec<IpNet>,
    open: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    /// Number of connections without the reserve.
    total: u32,
    by_address: NetworkCounts,
    reserve_by_address: NetworkCounts,
    /// Connections of the reserve, oldest first.
    reserve: VecDeque<ReservePlace>,
    /// Id of the next reserve connection.
    next: u64,
}

/// Connection of the reserve.
#[derive(Debug)]
struct ReservePlace {
    id: u64,
    /// Earliest time of its eviction by a newer connection.
    evictable: Instant,
    /// Evicts when dropped.
    _evict: oneshot::Sender<()>,
}

/// Reason why a connection is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    /// Its address has reached its share.
    Share,
    /// The reserve has a place at this time.
    Until(Instant),
}

/// Counted connection; released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    connections: Arc<ConnectionLimiter>,
    address: Option<IpAddr>,
    /// Place in the reserve: id, and the signal of its eviction.
    reserve: Option<(u64, oneshot::Receiver<()>)>,
}

impl ConnectionLimiter {
    /// Creates limits of `limit` connections in total, `share` from one address and `reserve` beyond the limit; a `share`
    /// of 0 means no limit.
    pub fn new(limit: u32, share: u32, reserve: u32, trusted: Vec<IpNet>) -> Arc<Self> {
        Arc::new(Self { limit, share, reserve: reserve.max(1) as usize, trusted, open: Mutex::default() })
    }

    /// Counts a connection from `address`. It belongs to the reserve if the limit is reached, or if `cramped`; a full
    /// reserve evicts its oldest connection.
    ///
    /// # Errors
    /// The address has reached its share, or no connection of the full reserve can be evicted yet.
    pub fn admit(self: &Arc<Self>, address: IpAddr, cramped: bool) -> Result<ConnectionPermit, NotAdmitted> {
        let address = Some(address).filter(|address| !trusts(&self.trusted, *address));
        let mut open = self.open();
        let beyond = cramped || open.total >= self.limit;
        let (by_address, share) = match beyond {
            true => (&mut open.reserve_by_address, RESERVE_SHARE),
            false => (&mut open.by_address, self.share),
        };
        if address.is_some_and(|address| !by_address.add(address, share)) {
            return Err(NotAdmitted::Share);
        }
        let permit = |reserve| ConnectionPermit { connections: self.clone(), address, reserve };
        if !beyond {
            open.total += 1;
            return Ok(permit(None));
        }
        let now = Instant::now();
        let full = open.reserve.len() >= self.reserve;
        if let Some(oldest) = open.reserve.front().filter(|_| full) {
            let evictable = oldest.evictable;
            if evictable > now {
                if let Some(address) = address {
                    open.reserve_by_address.remove(address);
                }
                return Err(NotAdmitted::Until(evictable));
            }
            open.reserve.pop_front();
        }
        let (evict, evicted) = oneshot::channel();
        let id = open.next;
        open.next += 1;
        open.reserve.push_back(ReservePlace { id, evictable: now + REQUEST_TIME, _evict: evict });
        Ok(permit(Some((id, evicted))))
    }

    /// Evicts the oldest connection of the reserve, if there is one.
    pub fn evict_oldest(&self) {
        self.open().reserve.pop_front();
    }

    fn open(&self) -> MutexGuard<'_, ConnectionCounts> {
        // A panic cannot leave the counts half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// True if the connection belongs to the reserve and gets health checks only.
    pub fn is_reserve(&self) -> bool {
        self.reserve.is_some()
    }

    /// Completes when the connection has to make room in the reserve.
    pub async fn evicted(&mut self) {
        match &mut self.reserve {
            // The sender is only dropped.
            Some((_, evicted)) => drop(evicted.await),
            None => std::future::pending().await,
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        let beyond = self.reserve.take();
        if let Some((id, _)) = &beyond {
            open.reserve.retain(|place| place.id != *id);
        } else {
            open.total -= 1;
        }
        let by_address = if beyond.is_some() { &mut open.reserve_by_address } else { &mut open.by_address };
        if let Some(address) = self.address {
            by_address.remove(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn connect(connections: &Arc<ConnectionLimiter>, address: &str) -> Result<ConnectionPermit, NotAdmitted> {
        connections.admit(address.parse().unwrap(), false)
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let connections = ConnectionLimiter::new(100, 3, RESERVE, vec!["10.0.0.0/8".parse().unwrap()]);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(connect(&connections, "2001:db8:1:2::1").unwrap());
        }
        let refused = connect(&connections, "2001:db8:1:2::9").unwrap_err();
        assert_eq!(refused, NotAdmitted::Share, "the network has its share");
        connect(&connections, "203.0.113.8").unwrap();
        held.pop();
        connect(&connections, "2001:db8:1:2::9").unwrap();
        // Trusted proxies and loopback have no share.
        for address in ["10.1.2.3", "127.0.0.1", "::ffff:10.1.2.3"] {
            for _ in 0..10 {
                held.push(connect(&connections, address).unwrap());
            }
        }
        drop(held);
        assert_eq!(connections.open().total, 0);
        assert!(connections.open().by_address.is_empty());
    }

    #[test]
    fn beyond_the_limit_is_a_bounded_reserve() {
        let connections = ConnectionLimiter::new(1, 0, RESERVE, Vec::new());
        let first = connect(&connections, "203.0.113.7").unwrap();
        assert!(!first.is_reserve());
        let mut reserved = Vec::new();
        for _ in 0..RESERVE_SHARE {
            reserved.push(connect(&connections, "203.0.113.7").unwrap());
        }
        assert!(reserved.iter().all(ConnectionPermit::is_reserve));
        let refused = connect(&connections, "203.0.113.7").unwrap_err();
        assert_eq!(refused, NotAdmitted::Share, "its share of the reserve is taken");
        drop(first);
        assert!(!connect(&connections, "203.0.113.7").unwrap().is_reserve());
        drop(reserved);
        let open = connections.open();
        assert!(open.reserve_by_address.is_empty() && open.reserve.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn newest_evicts_oldest_of_a_full_reserve() {
        let connections = ConnectionLimiter::new(0, 0, 2, Vec::new());
        let [mut first, mut second] = [1, 2].map(|_| connect(&connections, "127.0.0.1").unwrap());
        let begun = Instant::now();
        let until = NotAdmitted::Until(begun + REQUEST_TIME);
        assert_eq!(connect(&connections, "127.0.0.1").unwrap_err(), until, "the oldest has time for its request");
        // That took nothing of an address's share.
        for _ in 0..=RESERVE_SHARE {
            assert_eq!(connect(&connections, "203.0.113.7").unwrap_err(), until);
        }
        advance(REQUEST_TIME).await;
        let third = connect(&connections, "127.0.0.1").unwrap();
        first.evicted().await;
        connections.evict_oldest();
        second.evicted().await;
        drop((first, second));
        assert_eq!(connections.open().reserve.len(), 1);
        drop(third);
        assert!(connections.open().reserve.is_empty());
    }

    #[test]
    fn cramped_process_has_only_the_reserve() {
        let connections = ConnectionLimiter::new(10, 0, 2, Vec::new());
        assert!(connections.admit("127.0.0.1".parse().unwrap(), true).unwrap().is_reserve());
        assert_eq!(connections.open().total, 0);
    }
}
