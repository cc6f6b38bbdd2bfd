//! Rate limit of input audio: audio that arrives faster than real time is encoded after all other audio.

use std::time::{Duration, Instant};

/// Bucket size: audio may be ahead of real time by this much, because clients send in bursts.
const BURST: Duration = Duration::from_secs(1);

/// Token bucket of audio: it fills with time.
#[derive(Debug, Default)]
pub(super) struct AudioRateLimiter {
    /// Tokens left and the time of the last audio; `None` before the first.
    left: Option<(Duration, Instant)>,
}

impl AudioRateLimiter {
    /// Takes `sound`; true if it is within the rate. Audio beyond the rate takes no tokens.
    pub(super) fn admit(&mut self, sound: Duration, now: Instant) -> bool {
        let (left, at) = self.left.unwrap_or((BURST, now));
        let left = (left + now.saturating_duration_since(at)).min(BURST);
        let rest = left.checked_sub(sound);
        self.left = Some((rest.unwrap_or(left), now));
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn sound_at_real_time_is_in_time() {
        let (mut real_time, start) = (AudioRateLimiter::default(), Instant::now());
        // Pieces of 400 ms, each of which arrives when it has been spoken, up to 300 ms later.
        for number in 1..200_u32 {
            let late = (number * 7_919 % 4) * 100 * MS;
            assert!(real_time.admit(400 * MS, start + number * 400 * MS + late), "piece {number}");
        }
    }

    #[test]
    fn faster_sound_is_early_at_no_later_cost() {
        let (mut real_time, start) = (AudioRateLimiter::default(), Instant::now());
        let burst: Vec<_> = (0..20).map(|_| real_time.admit(200 * MS, start)).collect();
        assert_eq!(burst.iter().filter(|timely| **timely).count(), 5, "a second of it: {burst:?}");
        assert!(burst.is_sorted_by(|before, after| before >= after), "{burst:?}");
        for number in 1..20 {
            assert!(real_time.admit(200 * MS, start + number * 200 * MS), "live again");
        }
    }
}
