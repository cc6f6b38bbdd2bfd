//! File descriptors of the process: each connection takes one, and so do files, timers and the sockets of calls. A process
//! that has used up its descriptors answers nobody; spare ones let it answer health checks even then.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that are kept for everything but connections and sessions: files, the runtimes, uploads.
const OTHERS: u64 = 192;
/// Number of spare descriptors.
const SPARES: u64 = 8;

/// Raises the process's limit of descriptors as far as the system lets it; returns the limit, or `None` if the system
/// does not tell it.
pub(super) fn raise_limit() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    match soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        true => Some(hard),
        false => Some(soft),
    }
}

/// Shares of the descriptors of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DescriptorShares {
    /// Number of connections.
    pub connections: u32,
    /// Number of further connections that get health checks only.
    pub reserve: u32,
    /// Number of spare descriptors.
    pub spares: u32,
}

impl DescriptorShares {
    /// Divides `limit` descriptors: at most `connections` and `reserve`, beside `sessions` with a websocket each. A tiny
    /// limit is shared evenly.
    pub fn of(limit: u64, connections: u32, reserve: u32, sessions: u32) -> Self {
        let most = |wanted: u32, share: u64| wanted.min(u32::try_from(share).unwrap_or(u32::MAX));
        let reserve = most(reserve, limit / 8);
        let left = limit.saturating_sub(OTHERS + SPARES + u64::from(reserve) + u64::from(sessions));
        Self { connections: most(connections, left.max(limit / 4)), reserve, spares: most(SPARES as u32, limit / 16) }
    }
}

/// Open descriptors that are closed when a connection has to be accepted and none is left.
#[derive(Debug)]
pub(super) struct SpareDescriptors {
    held: Mutex<Vec<File>>,
    count: usize,
}

impl SpareDescriptors {
    /// Opens `count` descriptors, as far as there are any.
    pub fn new(count: u32) -> Arc<Self> {
        let spares = Self { held: Mutex::default(), count: count as usize };
        spares.refill();
        Arc::new(spares)
    }

    /// Closes one; false if none is left.
    pub fn spend(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).pop().is_some()
    }

    /// Opens the spent ones again, as far as descriptors are free.
    pub fn refill(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while held.len() < self.count {
            let Ok(spare) = File::open("/dev/null") else { return };
            held.push(spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(limit: u64, connections: u32) -> (u32, u32, u32) {
        let DescriptorShares { connections, reserve, spares } = DescriptorShares::of(limit, connections, 64, 64);
        (connections, reserve, spares)
    }

    #[test]
    fn connections_leave_descriptors_for_the_rest() {
        assert_eq!(shares(1 << 20, 512), (512, 64, 8));
        assert_eq!(shares(1024, 1024), (696, 64, 8));
        assert_eq!(shares(256, 1024), (64, 32, 8));
        assert_eq!(shares(64, 1024), (16, 8, 4));
        assert_eq!(shares(u64::MAX, u32::MAX), (u32::MAX, 64, 8));
        // A server for more sessions has fewer connections.
        assert_eq!(DescriptorShares::of(1024, 1024, 64, 512).connections, 256);
    }

    #[test]
    fn limit_is_raised_as_far_as_allowed() {
        let raised = raise_limit().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (raised, raised));
    }

    #[test]
    fn spares_are_spent_and_opened_again() {
        let spares = SpareDescriptors::new(2);
        assert_eq!([spares.spend(), spares.spend(), spares.spend()], [true, true, false]);
        spares.refill();
        assert_eq!([spares.spend(), spares.spend(), spares.spend()], [true, true, false]);
    }
}
