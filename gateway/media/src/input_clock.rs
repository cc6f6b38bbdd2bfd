//! Time of the input's samples on our clock. A sample counts from the moment at which it can have arrived at the earliest.

use super::echo_canceller::RATE;

/// Window in which the earliest arrival counts, in samples.
const WINDOW: f64 = RATE as f64;
/// Deviation of the arrivals from the assumed time that is corrected while an echo is known, 60 ms: its delay absorbs less.
const FAR: f64 = 0.06 * RATE as f64;
/// Deviation that is corrected otherwise, 5 ms.
const NEAR: f64 = 0.005 * RATE as f64;
/// Time without input after which it begins anew, in samples.
const GAP: f64 = RATE as f64;

/// Clock of one call's input. Times are in samples at [`RATE`].
#[derive(Debug, Default)]
pub(crate) struct InputClock {
    /// Input so far.
    received: f64,
    /// Last arrival.
    last: Option<f64>,
    /// Begin of the current window, its least lateness, and that of the window before it.
    begin: f64,
    least: f64,
    before: f64,
}

impl InputClock {
    /// Takes input of `length` that arrived at `now`.
    pub fn arrive(&mut self, length: f64, now: f64) {
        self.received += length;
        let lateness = now - self.received;
        match self.last {
            Some(last) if now - last < GAP => {
                self.least = self.least.min(lateness);
                if now - self.begin >= WINDOW {
                    (self.before, self.least, self.begin) = (self.least, lateness, now);
                }
            }
            _ => (self.least, self.before, self.begin) = (lateness, lateness, now),
        }
        self.last = Some(now);
    }

    /// Time at which the input began if it has flowed evenly to its end: add a sample's number for the time of the sample.
    pub fn offset(&self) -> f64 {
        self.least.min(self.before)
    }

    /// Returns the offset if it is too far from the `assumed` one.
    pub fn correction(&self, assumed: f64, has_echo: bool) -> Option<f64> {
        let apart = (self.offset() - assumed).abs();
        (apart > if has_echo { FAR } else { NEAR }).then(|| self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: f64 = 320.0;

    /// Takes packets that are `late`, from the packet `from` on.
    fn arrive(clock: &mut InputClock, from: usize, late: &[f64]) {
        for (number, late) in (from..).zip(late) {
            clock.arrive(PACKET, (number + 1) as f64 * PACKET + late);
        }
    }

    #[test]
    fn earliest_packet_of_two_seconds_counts() {
        let mut clock = InputClock::default();
        arrive(&mut clock, 0, &[500.0, 180.0, 90.0, 400.0]);
        assert_eq!(clock.offset(), 90.0);
        arrive(&mut clock, 4, &[300.0; 110]);
        assert_eq!(clock.offset(), 300.0, "the early one is forgotten");
    }

    #[test]
    fn input_that_pauses_begins_anew() {
        let mut clock = InputClock::default();
        arrive(&mut clock, 0, &[10.0; 20]);
        arrive(&mut clock, 20, &[40_000.0]);
        assert_eq!(clock.offset(), 40_000.0);
    }

    #[test]
    fn small_deviations_stay_with_a_known_echo() {
        let mut clock = InputClock::default();
        arrive(&mut clock, 0, &[500.0; 3]);
        assert_eq!(clock.correction(0.0, true), None);
        assert_eq!(clock.correction(0.0, false), Some(500.0));
        assert_eq!(clock.correction(480.0, false), None);
        assert_eq!(clock.correction(2_000.0, true), Some(500.0));
    }
}
