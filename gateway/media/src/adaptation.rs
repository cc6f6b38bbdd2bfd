//! Adaptation of the encoder: bit rate and redundancy follow the receiver's reports, complexity follows the delay of sent frames.

use std::time::Duration;

use super::opus::COMPLEXITY;
use super::red::MAX_COPIES;

/// Minimum loss for one, two and three copies per packet: losses come in bursts, and each copy covers a longer burst.
const LOSS_FOR_COPIES: [f64; MAX_COPIES] = [0.02, 0.05, 0.08];
/// Loss of a congested link, which more data only increases.
const CONGESTED: f64 = 0.35;
/// Weight of a report with lower loss; a report with higher loss applies fully.
const RECOVERY: f64 = 0.25;
/// Bits per second without a copy, with one, two and three: a lower bit rate, hardly audible, pays for part of the copies.
const BITRATES: [u32; MAX_COPIES + 1] = [32_000, 28_000, 24_000, 20_000];
/// Bits per second below which a copy is dropped instead of quality, and the minimum.
const FLOOR_WITH_COPIES: u32 = 16_000;
const FLOOR: u32 = 10_000;
/// Bits per second of the headers of 50 packets: IP, UDP, RTP and the SRTP tag.
const OVERHEAD: u32 = 50 * 8 * (20 + 8 + 12 + 10);

/// Bit rate and redundancy of sent speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendPlan {
    /// Bits per second of Opus, without copies.
    pub bitrate: u32,
    /// Number of copies in each packet; see [`super::red`].
    pub copies: usize,
}

impl SendPlan {
    /// Default for an unknown link.
    pub const NONE: Self = Self { bitrate: BITRATES[0], copies: 0 };

    /// Bits per second on the wire, with copies and headers.
    pub fn on_the_wire(self) -> u32 {
        self.bitrate * (1 + self.copies as u32) + OVERHEAD
    }
}

/// Chooses [`SendPlan`] from the reported loss of a link.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkAdapter {
    loss: f64,
}

impl LinkAdapter {
    /// Loss of the link, 0 to 1: it rises with a report at once, and falls with several.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// Handles a receiver's report: the share of lost packets, 0 to 1, and the available bits per second. `copies`: true if
    /// packets may carry copies.
    pub fn report(&mut self, loss: f64, available: Option<u32>, copies: bool) -> SendPlan {
        let loss = if loss.is_finite() { loss.clamp(0.0, 1.0) } else { 0.0 };
        self.loss = if loss > self.loss { loss } else { self.loss + (loss - self.loss) * RECOVERY };
        let wanted = LOSS_FOR_COPIES.iter().filter(|least| self.loss >= **least).count();
        let mut plan = match copies {
            _ if self.loss >= CONGESTED => SendPlan { bitrate: FLOOR_WITH_COPIES, copies: usize::from(copies) },
            true => SendPlan { bitrate: BITRATES[wanted], copies: wanted },
            false => SendPlan::NONE,
        };
        if let Some(available) = available {
            while plan.copies > 0
                && (SendPlan { bitrate: FLOOR_WITH_COPIES.min(plan.bitrate), ..plan }).on_the_wire() > available
            {
                plan.copies -= 1;
            }
            let speech = available.saturating_sub(OVERHEAD) / (1 + plan.copies as u32);
            plan.bitrate = plan.bitrate.min(speech).max(FLOOR);
        }
        plan
    }
}

/// Encoder complexities, from the highest that improves a voice at this bit rate to the lowest.
const COMPLEXITIES: [i32; 4] = [COMPLEXITY, 3, 1, 0];
/// Delay of a frame that signals an overloaded machine.
const LATE: Duration = Duration::from_millis(20);
/// Consecutive timely frames, 5 s, before the complexity rises by one step.
const TIMELY: u32 = 250;

/// Complexity control of the encoder: lower while frames leave late.
#[derive(Debug, Clone, Copy, Default)]
pub struct ComplexityControl {
    /// Index into [`COMPLEXITIES`].
    step: usize,
    timely: u32,
}

impl ComplexityControl {
    /// Returns the complexity for a frame that leaves `late` after its due time.
    pub fn complexity(&mut self, late: Duration) -> i32 {
        if late >= LATE {
            (self.step, self.timely) = ((self.step + 1).min(COMPLEXITIES.len() - 1), 0);
        } else {
            self.timely += 1;
            if self.timely == TIMELY {
                (self.step, self.timely) = (self.step.saturating_sub(1), 0);
            }
        }
        COMPLEXITIES[self.step]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_follow_the_reported_loss() {
        let mut link = LinkAdapter::default();
        let mut copies = |loss: f64| link.report(loss, None, true).copies;
        assert_eq!([copies(0.0), copies(0.01), copies(0.03), copies(0.06), copies(0.1)], [0, 0, 1, 2, 3], "up at once");
        let down: Vec<_> = (0..10).map(|_| copies(0.0)).collect();
        assert_eq!((down[0], down[9]), (2, 0), "down step by step: {down:?}");
        assert!(down.is_sorted_by(|before, after| before >= after), "{down:?}");
    }

    #[test]
    fn links_that_are_full_get_less() {
        let mut link = LinkAdapter::default();
        let lossy = link.report(0.2, None, true);
        let full = link.report(0.5, None, true);
        assert!(full.on_the_wire() < lossy.on_the_wire() * 2 / 3, "{full:?} after {lossy:?}");
        assert!(full.on_the_wire() <= SendPlan::NONE.on_the_wire());
    }

    #[test]
    fn estimates_of_the_receiver_are_kept_to() {
        for (loss, available) in
            [(0.0, 60_000), (0.0, 40_000), (0.1, 90_000), (0.1, 70_000), (0.1, 40_000), (0.5, 45_000)]
        {
            let plan = LinkAdapter::default().report(loss, Some(available), true);
            assert!(plan.on_the_wire() <= available, "{plan:?} for {available}");
            assert!(plan.on_the_wire() > available / 2, "{plan:?} leaves half of {available} unused");
        }
        let least = LinkAdapter::default().report(0.1, Some(0), true);
        assert_eq!(least, SendPlan { bitrate: FLOOR, copies: 0 }, "speech goes on");
    }

    #[test]
    fn links_without_copies_keep_their_bit_rate() {
        for loss in [0.0, 0.03, 0.2, f64::NAN] {
            assert_eq!(LinkAdapter::default().report(loss, None, false), SendPlan::NONE);
        }
    }

    #[test]
    fn effort_falls_at_once_and_rises_slowly() {
        let mut effort = ComplexityControl::default();
        let (timely, late) = (Duration::from_millis(5), Duration::from_millis(30));
        assert_eq!(effort.complexity(timely), 6);
        assert_eq!([late; 5].map(|late| effort.complexity(late)), [3, 1, 0, 0, 0]);
        let rising: Vec<_> = (0..4 * TIMELY).map(|_| effort.complexity(timely)).collect();
        assert!(rising[..TIMELY as usize - 1].iter().all(|complexity| *complexity == 0), "not before five seconds");
        assert_eq!((rising[TIMELY as usize], rising.last()), (1, Some(&6)));
    }
}
