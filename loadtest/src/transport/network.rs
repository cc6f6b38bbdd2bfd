//! A simulated bad network between a caller and the server: burst loss, jitter, reordering, duplicates and a stall. It
//! computes the arrival of each datagram and has neither clock nor socket.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Extra delay of a reordered datagram.
const HELD_BACK: Duration = Duration::from_millis(45);

/// Impairments of the network, in either direction. All fields are zero by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Impairment {
    /// Share of lost datagrams, 0 to 0.9.
    pub loss: f64,
    /// Mean length of a loss burst, in datagrams; 1 or 0 for independent losses.
    pub burst: f64,
    /// Delay of every datagram, in ms.
    pub delay_ms: f64,
    /// Additional random delay, uniform from 0 to this many ms. It does not reorder.
    pub jitter_ms: f64,
    /// Share of reordered datagrams: later ones overtake them.
    pub reorder: f64,
    /// Share of datagrams that arrive twice.
    pub duplicate: f64,
    /// Start of a stall, in seconds from the beginning of the call.
    pub stall_at_s: f64,
    /// Duration of the stall, in seconds; datagrams sent during it arrive at its end.
    pub stall_s: f64,
}

impl Impairment {
    /// Checks all fields.
    ///
    /// # Errors
    /// A field is out of bounds.
    pub fn check(&self) -> Result<()> {
        let share = |value: f64, most: f64| (0.0..=most).contains(&value);
        ensure!(share(self.loss, 0.9), "network.loss: 0 to 0.9");
        ensure!(share(self.burst, 1_000.0), "network.burst: 0 to 1000 datagrams");
        ensure!(share(self.delay_ms, 5_000.0) && share(self.jitter_ms, 5_000.0), "network: at most 5000 ms of delay");
        ensure!(share(self.reorder, 1.0) && share(self.duplicate, 1.0), "network.reorder, network.duplicate: 0 to 1");
        ensure!(share(self.stall_at_s, 3_600.0) && share(self.stall_s, 30.0), "network.stall_s: at most 30 s");
        Ok(())
    }
}

/// One direction of a call's simulated network.
#[derive(Debug)]
pub struct ImpairedLink {
    impairment: Impairment,
    random: Random,
    /// True during a loss burst.
    losing: bool,
    /// Latest arrival of a datagram that is not reordered.
    latest: Duration,
}

impl ImpairedLink {
    /// Creates one direction; the same `seed` repeats its behaviour.
    pub fn new(impairment: Impairment, seed: u64) -> Self {
        Self { impairment, random: Random::new(seed), losing: false, latest: Duration::ZERO }
    }

    /// Returns the arrivals of a datagram sent at `now`: none, one or two. Times count from the beginning of the call.
    pub fn carry(&mut self, now: Duration) -> [Option<Duration>; 2] {
        if self.is_lost() {
            return [None, None];
        }
        let first = self.arrival(now);
        let second = self.random.chance(self.impairment.duplicate).then(|| self.arrival(now));
        [Some(first), second]
    }

    /// Gilbert model: a two-state Markov chain in which one state loses every datagram.
    fn is_lost(&mut self) -> bool {
        let Impairment { loss, burst, .. } = self.impairment;
        if loss == 0.0 {
            return false;
        }
        let leave = 1.0 / burst.max(1.0);
        let enter = (loss * leave / (1.0 - loss)).min(1.0);
        self.losing = if burst <= 1.0 {
            self.random.chance(loss)
        } else if self.losing {
            !self.random.chance(leave)
        } else {
            self.random.chance(enter)
        };
        self.losing
    }

    fn arrival(&mut self, now: Duration) -> Duration {
        let Impairment { delay_ms, jitter_ms, reorder, stall_at_s, stall_s, .. } = self.impairment;
        let delay = delay_ms + jitter_ms * self.random.unit();
        let mut at = now + Duration::from_secs_f64(delay / 1e3);
        let begin = Duration::from_secs_f64(stall_at_s);
        let end = begin + Duration::from_secs_f64(stall_s);
        if (begin..end).contains(&now) {
            at = at.max(end);
        }
        if self.random.chance(reorder) {
            return at.max(self.latest) + HELD_BACK;
        }
        self.latest = at.max(self.latest);
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Duration = Duration::from_millis(20);

    /// Returns the arrivals of `count` datagrams, sent every 20 ms.
    fn carried(impairment: Impairment, count: u32) -> Vec<[Option<Duration>; 2]> {
        let mut network = ImpairedLink::new(impairment, 3);
        (0..count).map(|n| network.carry(PACKET * n)).collect()
    }

    #[test]
    fn good_network_changes_nothing() {
        let arrivals = carried(Impairment::default(), 100);
        assert!(arrivals.iter().zip(0..).all(|(found, n)| *found == [Some(PACKET * n), None]));
    }

    #[test]
    fn losses_have_share_and_burst_length() {
        for (burst, expected) in [(0.0, 1.0 / 0.9), (4.0, 4.0)] {
            let lost: Vec<bool> = carried(Impairment { loss: 0.1, burst, ..Impairment::default() }, 200_000)
                .iter()
                .map(|found| found[0].is_none())
                .collect();
            let count = lost.iter().filter(|lost| **lost).count();
            let share = count as f64 / lost.len() as f64;
            assert!((share - 0.1).abs() < 0.005, "{share}");
            let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
            let length = count as f64 / bursts as f64;
            assert!((length / expected - 1.0).abs() < 0.05, "{length} in place of {expected}");
        }
    }

    #[test]
    fn jitter_keeps_order_and_bound() {
        let arrivals = carried(Impairment { delay_ms: 30.0, jitter_ms: 50.0, ..Impairment::default() }, 10_000);
        let times: Vec<Duration> = arrivals.iter().map(|found| found[0].unwrap()).collect();
        assert!(times.is_sorted());
        let delays: Vec<f64> = times.iter().zip(0..).map(|(at, n)| (*at - PACKET * n).as_secs_f64()).collect();
        let most = delays.iter().copied().fold(0.0, f64::max);
        assert!(delays.iter().all(|delay| (0.03..=0.08).contains(delay)) && most > 0.079, "{most}");
    }

    #[test]
    fn reordered_datagrams_are_overtaken() {
        let arrivals = carried(Impairment { reorder: 0.05, ..Impairment::default() }, 20_000);
        let times: Vec<Duration> = arrivals.iter().map(|found| found[0].unwrap()).collect();
        let overtaken = times.windows(2).filter(|pair| pair[1] < pair[0]).count() as f64 / times.len() as f64;
        // Two consecutive reordered datagrams do not overtake each other.
        assert!((overtaken - 0.05 * 0.95).abs() < 0.006, "{overtaken}");
    }

    #[test]
    fn duplicates_arrive_twice() {
        let arrivals = carried(Impairment { duplicate: 0.2, ..Impairment::default() }, 20_000);
        let twice = arrivals.iter().filter(|found| found[1].is_some()).count() as f64 / arrivals.len() as f64;
        assert!((twice - 0.2).abs() < 0.01, "{twice}");
    }

    #[test]
    fn stall_holds_everything_to_its_end() {
        let arrivals = carried(Impairment { stall_at_s: 1.0, stall_s: 1.0, ..Impairment::default() }, 150);
        for (found, n) in arrivals.iter().zip(0..) {
            let sent = PACKET * n;
            let stalled = (50..100).contains(&n);
            assert_eq!(found[0], Some(if stalled { Duration::from_secs(2) } else { sent }), "datagram {n}");
        }
    }

    #[test]
    fn impossible_networks_are_refused() {
        for bad in [
            Impairment { loss: 1.0, ..Impairment::default() },
            Impairment { jitter_ms: f64::INFINITY, ..Impairment::default() },
            Impairment { stall_s: 60.0, ..Impairment::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
