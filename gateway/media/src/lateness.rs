//! Lateness of a stream's packets: networks that deliver in clumps (Wi-Fi in power save, mobile uplinks) are late again and again,
//! and what is late is no pause.

use std::time::{Duration, Instant};

/// Length of a window. The lateness of this one and the one before counts.
const WINDOW: Duration = Duration::from_secs(10);
/// Maximum lateness of a clump. A longer delay is a stall or a pause.
const LONGEST: Duration = Duration::from_millis(500);

/// Second largest lateness of the last 10 to 20 seconds: one hiccup alone does not count.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lateness {
    since: Option<Instant>,
    /// The two largest of this window, and of the one before.
    current: [Duration; 2],
    previous: [Duration; 2],
}

impl Lateness {
    /// Notes that a packet came `late` at `arrival`.
    pub fn note(&mut self, late: Duration, arrival: Instant) {
        let since = *self.since.get_or_insert(arrival);
        if arrival.saturating_duration_since(since) >= WINDOW {
            (self.since, self.previous, self.current) = (Some(arrival), self.current, Default::default());
        }
        if late <= LONGEST && late > self.current[1] {
            self.current[1] = late;
            self.current.sort_by(|a, b| b.cmp(a));
        }
    }

    /// Returns the lateness to expect.
    pub fn expected(&self) -> Duration {
        let ([first, second], [third, fourth]) = (self.current, self.previous);
        // Each pair is in order.
        if first >= third { second.max(third) } else { first.max(fourth) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn repeated_lateness_is_expected() {
        let (mut lateness, start) = (Lateness::default(), Instant::now());
        for (late, at) in [(380, 0), (0, 20), (2, 40), (700, 900)] {
            lateness.note(late * MS, start + at * MS);
        }
        assert_eq!(lateness.expected(), 2 * MS, "one hiccup, and a stall");
        lateness.note(300 * MS, start + 1_000 * MS);
        assert_eq!(lateness.expected(), 300 * MS);
        for at in (11_000..40_000).step_by(20) {
            lateness.note(MS, start + at * MS);
        }
        assert_eq!(lateness.expected(), MS, "it is over");
    }
}
