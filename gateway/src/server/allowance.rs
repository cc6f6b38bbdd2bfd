//! Processor time that some work may take, whatever it is spent on.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Longest pause, after which whoever waits can notice that it is to end.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Processor time that may be taken, which grows with time.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Seconds left; negative where more was taken.
    pub left: f64,
    /// Most seconds that are saved up.
    pub most: f64,
    /// Seconds that each second adds.
    pub share: f64,
    /// Time of the last change.
    pub at: Instant,
}

impl Allowance {
    /// Creates an allowance of `share` seconds a second, with all saved up that it saves: `most` seconds.
    pub fn full(most: f64, share: f64) -> Self {
        Self { left: most, most, share, at: Instant::now() }
    }

    /// Takes `took` and returns the seconds left.
    pub fn take(&mut self, took: Duration, now: Instant) -> f64 {
        let grown = self.share * now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        let left = (self.left + grown).min(self.most) - took.as_secs_f64();
        self.left = left.max(-self.share * LONGEST_PAUSE.as_secs_f64());
        self.left
    }

    /// Takes `took` and returns the pause after which it is paid for; zero if there was enough.
    pub fn pause_after(&mut self, took: Duration) -> Duration {
        let left = self.take(took, Instant::now());
        Duration::try_from_secs_f64(-left / self.share).unwrap_or_default()
    }
}

/// Processor time of this thread; zero, which bounds nothing, where the system does not count it.
pub(super) fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn endless_work_gets_its_share() {
        let mut allowance = Allowance::full(0.02, 0.1);
        let begun = Instant::now();
        for _ in 0..500 {
            sleep(allowance.pause_after(Duration::from_millis(1))).await;
        }
        // Each pause of the paused clock is rounded up to a millisecond.
        let took = begun.elapsed().as_secs_f64();
        assert!((4.7..5.4).contains(&took), "0.5 s of work took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn rare_work_never_waits() {
        let mut allowance = Allowance::full(0.02, 0.1);
        for _ in 0..100 {
            assert_eq!(allowance.pause_after(Duration::from_millis(1)), Duration::ZERO);
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(allowance.pause_after(Duration::from_secs(60)), LONGEST_PAUSE);
    }

    #[test]
    fn time_of_this_thread_grows_with_work() {
        let begun = thread_time();
        let mut sum = 0u64;
        while thread_time() == begun {
            sum = std::hint::black_box(sum + 1);
        }
    }
}
