//! Datagrams on their way through a bad network, in the order in which they arrive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Instant;

/// More datagrams than this are not under way in one call; the network drops the rest.
const MAX_QUEUED: usize = 4_096;

/// Which way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkDirection {
    /// To the server.
    Up,
    /// To the caller.
    Down,
}

/// Arrival, order of sending, way, and the other end.
type Entry = (Instant, u64, LinkDirection, SocketAddr, Vec<u8>);

/// The queue of one call, both ways.
#[derive(Debug, Default)]
pub struct DelayQueue {
    queue: BinaryHeap<Reverse<Entry>>,
    sent: u64,
}

impl DelayQueue {
    /// Adds a datagram that arrives at `at`.
    pub fn push(&mut self, at: Instant, way: LinkDirection, peer: SocketAddr, datagram: Vec<u8>) {
        if self.queue.len() < MAX_QUEUED {
            self.sent += 1;
            self.queue.push(Reverse((at, self.sent, way, peer, datagram)));
        }
    }

    /// When the next one arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next one that has arrived by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, LinkDirection, SocketAddr, Vec<u8>)> {
        self.queue.peek().filter(|Reverse((at, ..))| *at <= now)?;
        let Reverse((at, _, way, peer, datagram)) = self.queue.pop()?;
        Some((at, way, peer, datagram))
    }
}
