//! Lateness of the generator's own frames. Above some ms the generator is the limit, not the server.

use std::time::Duration;

/// Width of a histogram bucket.
const STEP: Duration = Duration::from_micros(250);
/// Number of buckets; the last holds everything from one second on.
const BUCKETS: usize = 4_001;

/// Histogram of lateness, of constant size.
#[derive(Debug, Clone)]
pub struct Lateness {
    counts: Vec<u64>,
    total: u64,
    most: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, most: Duration::ZERO }
    }
}

impl Lateness {
    /// Counts one frame.
    pub fn add(&mut self, late: Duration) {
        let bucket = (late.as_micros() / STEP.as_micros()).min(BUCKETS as u128 - 1) as usize;
        self.counts[bucket] += 1;
        self.total += 1;
        self.most = self.most.max(late);
    }

    /// Returns a percentile, to a quarter of a ms; `None` without frames.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let rank = (self.total as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some((STEP * (bucket as u32 + 1)).min(self.most))
    }

    /// Returns the largest lateness.
    pub fn most(&self) -> Duration {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_bucket() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.percentile(50.0), None);
        (1..=1_000).for_each(|n| lateness.add(Duration::from_micros(n * 100)));
        lateness.add(Duration::from_secs(3));
        for (percent, expected) in [(50.0, 50.0), (99.0, 99.0)] {
            let found = lateness.percentile(percent).unwrap().as_secs_f64() * 1e3;
            assert!((found - expected).abs() <= 0.25 + 0.1, "{found}");
        }
        assert_eq!(lateness.most(), Duration::from_secs(3));
    }
}
