//! What the encoder does about the network and the machine: bit rate and redundancy follow what the receiver reports, effort follows
//! how late frames leave.

use std::time::Duration;

use super::red::MAX_COPIES;

/// Loss from which each packet carries one copy, two, and three: losses come in bursts, and a copy more covers those of a packet more.
const LOSS_FOR_COPIES: [f64; MAX_COPIES] = [0.02, 0.05, 0.08];
/// Loss that more packets only make worse: the link is full.
const CONGESTED: f64 = 0.35;
/// What a report counts for when the loss goes down; when it goes up, it counts wholly.
const RECOVERY: f64 = 0.25;
/// Bits a second without a copy, with one, two and three: copies are paid for in part by what a listener hardly hears.
const BITRATES: [u32; MAX_COPIES + 1] = [32_000, 28_000, 24_000, 20_000];
/// Bits a second below which a copy goes rather than quality, and the least at all.
const FLOOR_WITH_COPIES: u32 = 16_000;
const FLOOR: u32 = 10_000;
/// Bits a second of the headers of 50 packets: IP, UDP, RTP and SRTP's tag.
const OVERHEAD: u32 = 50 * 8 * (20 + 8 + 12 + 10);

/// How speech is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendPlan {
    /// Bits a second of Opus, copies not counted.
    pub bitrate: u32,
    /// Copies in each packet; see [`super::red`].
    pub copies: usize,
}

impl SendPlan {
    /// For a link of which nothing is known.
    pub const NONE: Self = Self { bitrate: BITRATES[0], copies: 0 };

    /// Bits a second on the wire.
    pub fn on_the_wire(self) -> u32 {
        self.bitrate * (1 + self.copies as u32) + OVERHEAD
    }
}

/// The loss of a link, and how speech is protected against it.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkAdapter {
    loss: f64,
}

impl LinkAdapter {
    /// Takes a receiver's report: the share of packets that it missed, 0 to 1, and the bits a second that it says fit. `copies`:
    /// whether packets may carry any.
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

/// Encoder complexities, from the most that a voice at this bit rate gains from to the least.
const COMPLEXITIES: [i32; 4] = [5, 3, 1, 0];
/// A frame that leaves so late says that the machine has too much to do.
const LATE: Duration = Duration::from_millis(20);
/// Timely frames in a row, 5 s, after which the encoder may work harder again.
const TIMELY: u32 = 250;

/// The encoder's effort: less while frames leave late.
#[derive(Debug, Clone, Copy, Default)]
pub struct ComplexityControl {
    /// Index into [`COMPLEXITIES`].
    step: usize,
    timely: u32,
}

impl ComplexityControl {
    /// The complexity to encode a frame with that leaves `late` after its time.
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
        assert_eq!(effort.complexity(timely), 5);
        assert_eq!([late; 5].map(|late| effort.complexity(late)), [3, 1, 0, 0, 0]);
        let rising: Vec<_> = (0..4 * TIMELY).map(|_| effort.complexity(timely)).collect();
        assert!(rising[..TIMELY as usize - 1].iter().all(|complexity| *complexity == 0), "not before five seconds");
        assert_eq!((rising[TIMELY as usize], rising.last()), (1, Some(&5)));
    }
}
