//! Datagrams in transit through the simulated network, in order of arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Instant;

/// Most datagrams in transit in one call; further ones are dropped.
const MAX_QUEUED: usize = 4_096;

/// Direction of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkDirection {
    /// Towards the server.
    Up,
    /// Towards the caller.
    Down,
}

/// Arrival, order of sending, direction, peer and datagram.
type Entry = (Instant, u64, LinkDirection, SocketAddr, Vec<u8>);

/// Delay queue of one call, in both directions.
#[derive(Debug, Default)]
pub struct DelayQueue {
    queue: BinaryHeap<Reverse<Entry>>,
    sent: u64,
}

impl DelayQueue {
    /// Adds a datagram that arrives at `at`; drops it if the queue is full.
    pub fn push(&mut self, at: Instant, way: LinkDirection, peer: SocketAddr, datagram: Vec<u8>) {
        if self.queue.len() < MAX_QUEUED {
            self.sent += 1;
            self.queue.push(Reverse((at, self.sent, way, peer, datagram)));
        }
    }

    /// Returns the arrival of the next datagram.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// Removes the next datagram that has arrived by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, LinkDirection, SocketAddr, Vec<u8>)> {
        self.queue.peek().filter(|Reverse((at, ..))| *at <= now)?;
        let Reverse((at, _, way, peer, datagram)) = self.queue.pop()?;
        Some((at, way, peer, datagram))
    }
}
