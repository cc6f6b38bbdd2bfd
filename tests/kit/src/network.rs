//! A simulated network on a virtual clock: loss, bursts, duplicates, jitter and reordering.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::random::Random;

/// Impairments of a simulated network.
#[derive(Debug, Clone, Copy)]
pub struct NetworkConditions {
    /// Share of lost packets, 0 to 1.
    pub loss: f64,
    /// Mean length of a loss burst, in packets; 1 for independent losses.
    pub burst: f64,
    /// Share of packets that arrive twice, 0 to 1.
    pub duplicates: f64,
    /// Largest random delay of a packet, uniform from 0. It reorders if it is longer than the time between packets.
    pub jitter: Duration,
}

impl NetworkConditions {
    /// A network without loss, delay or duplicates.
    pub const PERFECT: Self = Self { loss: 0.0, burst: 1.0, duplicates: 0.0, jitter: Duration::ZERO };
}

/// One direction of a network: delivers packets at their arrival time.
pub struct SimulatedLink<T> {
    network: NetworkConditions,
    random: Random,
    /// True during a loss burst.
    losing: bool,
    /// Packets in transit, ordered by arrival, then by order of sending.
    travelling: BTreeMap<(Instant, u64), T>,
    sent: u64,
    /// Number of lost packets.
    pub lost: u64,
}

impl<T: Clone> SimulatedLink<T> {
    /// Creates an empty link; the same `seed` repeats its behaviour.
    pub fn new(network: NetworkConditions, seed: u64) -> Self {
        Self { network, random: Random::new(seed), losing: false, travelling: BTreeMap::new(), sent: 0, lost: 0 }
    }

    /// Sends a packet at `now`.
    pub fn send(&mut self, packet: T, now: Instant) {
        let NetworkConditions { loss, burst, duplicates, jitter } = self.network;
        // Gilbert model: a burst continues with probability 1 - 1/burst; its start probability follows from the share
        // of losses.
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

    /// Returns the arrival of the next packet.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.travelling.keys().next().map(|(arrival, _)| *arrival)
    }

    /// Removes the next packet that has arrived by `now`.
    pub fn receive(&mut self, now: Instant) -> Option<(Instant, T)> {
        let entry = self.travelling.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((arrival, _), packet) = entry.remove_entry();
        Some((arrival, packet))
    }
}
