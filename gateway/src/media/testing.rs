//! Signals and measurements that the tests of the media modules share.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::time::{Duration, Instant};

/// `length` samples of a tone at -6 dBFS peak.
pub fn sine(frequency: f64, rate: u32, length: usize) -> Vec<f32> {
    (0..length).map(|i| (0.5 * (TAU * frequency * i as f64 / f64::from(rate)).sin()) as f32).collect()
}

/// Root mean square in dB of full scale.
pub fn level_db(samples: &[f32]) -> f32 {
    let mean = samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32;
    10.0 * mean.max(1e-12).log10()
}

/// The frequency of a tone, from the times of its first and last rising zero crossing.
pub fn dominant_frequency(samples: &[f32], rate: u32) -> f64 {
    let crossings: Vec<f64> = samples
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[0] < 0.0 && pair[1] >= 0.0)
        .map(|(i, pair)| i as f64 + f64::from(pair[0] / (pair[0] - pair[1])))
        .collect();
    match crossings[..] {
        [first, .., last] => (crossings.len() - 1) as f64 * f64::from(rate) / (last - first),
        _ => 0.0,
    }
}

/// Small reproducible random numbers (xorshift), so that a failure can be repeated.
pub struct Random(u64);

impl Random {
    /// `seed` may be any number.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Uniform in 0..1.
    pub fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What a network does to packets.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    /// Share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// How many packets in a row are lost on average; 1 for losses that know nothing of each other.
    pub burst: f64,
    /// Share of packets that come twice.
    pub duplicates: f64,
    /// Each packet is delayed by up to this much, uniformly; beyond the time between packets, it reorders.
    pub jitter: Duration,
}

impl Network {
    /// Loses, delays and doubles nothing.
    pub const PERFECT: Self = Self { loss: 0.0, burst: 1.0, duplicates: 0.0, jitter: Duration::ZERO };
}

/// One direction of a network: packets go in, and come out when it is their time.
pub struct Link<T> {
    network: Network,
    random: Random,
    /// Within a burst of losses.
    losing: bool,
    /// By arrival; equal ones in the order of sending.
    travelling: BTreeMap<(Instant, u64), T>,
    sent: u64,
    /// Packets that were lost.
    pub lost: u64,
}

impl<T: Clone> Link<T> {
    pub fn new(network: Network, seed: u64) -> Self {
        Self { network, random: Random::new(seed), losing: false, travelling: BTreeMap::new(), sent: 0, lost: 0 }
    }

    pub fn send(&mut self, packet: T, now: Instant) {
        let Network { loss, burst, duplicates, jitter } = self.network;
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
