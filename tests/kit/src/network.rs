//! A simulated network on a virtual clock: loss, bursts, duplicates, jitter and reordering.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::random::Random;

/// What a network does to packets.
#[derive(Debug, Clone, Copy)]
pub struct NetworkConditions {
    /// Share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// How many packets in a row are lost on average; 1 for losses that know nothing of each other.
    pub burst: f64,
    /// Share of packets that come twice.
    pub duplicates: f64,
    /// Each packet is delayed by up to this much, uniformly; beyond the time between packets, it reorders.
    pub jitter: Duration,
}

impl NetworkConditions {
    /// Loses, delays and doubles nothing.
    pub const PERFECT: Self = Self { loss: 0.0, burst: 1.0, duplicates: 0.0, jitter: Duration::ZERO };
}

/// One direction of a network: packets go in, and come out when it is their time.
pub struct SimulatedLink<T> {
    network: NetworkConditions,
    random: Random,
    /// Within a burst of losses.
    losing: bool,
    /// By arrival; equal ones in the order of sending.
    travelling: BTreeMap<(Instant, u64), T>,
    sent: u64,
    /// Packets that were lost.
    pub lost: u64,
}

impl<T: Clone> SimulatedLink<T> {
    /// An empty link; `seed` fixes what becomes of each packet.
    pub fn new(network: NetworkConditions, seed: u64) -> Self {
        Self { network, random: Random::new(seed), losing: false, travelling: BTreeMap::new(), sent: 0, lost: 0 }
    }

    /// Sends a packet at `now`.
    pub fn send(&mut self, packet: T, now: Instant) {
        let NetworkConditions { loss, burst, duplicates, jitter } = self.network;
        // Two states (Gilbert): a burst goes on with 1 - 1/burst, and begins so often that the share of losses is right.
        let likely = match self.losing {
            _ if burst <= 1.0 => loss,
            true => 1.0 - 1.0 / burst,
            false => loss / burst / (1.0 - loss),
        };
        self.losing = self.random.unit() < likely;
        if self.losing {
            self.lost += 1;
            return;
        }
        let copies = if self.random.unit() < duplicates { 2 } else { 1 };
        for _ in 0..copies {
            let arrival = now + jitter.mul_f64(self.random.unit());
            self.sent += 1;
            self.travelling.insert((arrival, self.sent), packet.clone());
        }
    }

    /// When the next packet arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.travelling.keys().next().map(|(arrival, _)| *arrival)
    }

    /// The next packet that has arrived at `now`.
    pub fn receive(&mut self, now: Instant) -> Option<(Instant, T)> {
        let entry = self.travelling.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((arrival, _), packet) = entry.remove_entry();
        Some((arrival, packet))
    }
}
