//! Steps between the RTP timestamps of consecutive packets, for senders that count time in other units than RFC 7587 says: some
//! count the samples of both channels, so that a packet of 20 ms steps by 1920.

/// Equal steps after which a surplus is the sender's way to count.
const STEADY: u8 = 3;
/// Maximum surplus of a step, in durations of its packet. A pause (DTX) is longer, or not the same again and again.
const MAX_SURPLUS: u64 = 2;

/// Measures the steps of one stream. Timestamps and durations are extended RTP ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TimestampSteps {
    /// Sequence number of the next packet, and timestamp of the end of the last one.
    last: Option<(u64, u64)>,
    /// Surplus of the last step, and the number of equal ones.
    candidate: (u64, u8),
    surplus: u64,
}

impl TimestampSteps {
    /// Ticks that each packet's timestamp steps beyond its duration; zero for a sender that counts as it should.
    pub fn surplus(&self) -> u64 {
        self.surplus
    }

    /// Notes a released packet. True if it continues the previous one: no packet is missing between, and no time.
    pub fn release(&mut self, sequence: u64, timestamp: u64, duration: u64) -> bool {
        let Some((next, end)) = self.last.replace((sequence + 1, timestamp.saturating_add(duration))) else {
            return false;
        };
        if next != sequence {
            return false;
        }
        let surplus = timestamp.saturating_sub(end);
        let (before, count) = self.candidate;
        self.candidate = (surplus, if surplus == before { count.saturating_add(1) } else { 1 });
        if self.candidate.1 >= STEADY && surplus <= MAX_SURPLUS * duration {
            self.surplus = surplus;
        }
        surplus == self.surplus
    }

    /// Notes a number without audio.
    pub fn skip(&mut self, sequence: u64) {
        if let Some((next, _)) = &mut self.last
            && *next == sequence
        {
            *next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Surplus after packets of 960 ticks with these steps between them.
    fn surplus(steps: &[u64]) -> u64 {
        let (mut measured, mut timestamp) = (TimestampSteps::default(), 1 << 32);
        measured.release(0, timestamp, 960);
        for (index, step) in steps.iter().enumerate() {
            timestamp += step;
            measured.release(index as u64 + 1, timestamp, 960);
        }
        measured.surplus()
    }

    #[test]
    fn steady_surplus_is_the_senders_count() {
        assert_eq!(surplus(&[1920; 3]), 960);
        assert_eq!(surplus(&[2880; 3]), 1920);
        assert_eq!(surplus(&[960; 9]), 0);
        assert_eq!(surplus(&[0, 1, 160, 320, 480]), 0);
        assert_eq!(surplus(&[1920, 1920, 1920, 960, 960, 960]), 0, "it counts as it should again");
        assert_eq!(surplus(&[1920, 1920, 1920, 960, 5_000, 1920]), 960);
    }

    #[test]
    fn pauses_are_no_surplus() {
        assert_eq!(surplus(&[19_200; 9]), 0, "DTX every 400 ms");
        assert_eq!(surplus(&[1920, 960, 1920, 960, 1920]), 0);
    }
}
