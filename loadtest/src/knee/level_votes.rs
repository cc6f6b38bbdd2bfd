//! Votes on one number of callers: one bad run may be chance, and a disturbed one is no measurement.

/// Votes that decide.
const ENOUGH: u32 = 2;
/// Disturbed bad runs that are left out. Further ones count: then the machine is never quiet.
const MAX_DISTURBED: u32 = 2;

/// Votes of the runs with one number of callers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LevelVotes {
    good: u32,
    bad: u32,
    disturbed: u32,
}

impl LevelVotes {
    /// Adds a run: `within` if it kept the limits, `disturbed` if others took processor time from it. Returns the
    /// decision once there is one: a first run that is good, or two of three.
    pub fn add(&mut self, within: bool, disturbed: bool) -> Option<bool> {
        if within {
            self.good += 1;
        } else if disturbed && self.disturbed < MAX_DISTURBED {
            self.disturbed += 1;
        } else {
            self.bad += 1;
        }
        match (self.good, self.bad) {
            (1, 0) => Some(true),
            (good, _) if good >= ENOUGH => Some(true),
            (_, bad) if bad >= ENOUGH => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decision after the runs, each good (`+`), bad (`-`) or bad and disturbed (`~`); and the runs that it took.
    fn decided(runs: &str) -> (Option<bool>, usize) {
        let mut votes = LevelVotes::default();
        for (number, run) in runs.chars().enumerate() {
            if let Some(decision) = votes.add(run == '+', run == '~') {
                return (Some(decision), number + 1);
            }
        }
        (None, runs.len())
    }

    #[test]
    fn two_of_three_decide() {
        for (runs, expected) in [
            ("+", (Some(true), 1)),
            ("-", (None, 1)),
            ("--", (Some(false), 2)),
            ("-++", (Some(true), 3)),
            ("-+-", (Some(false), 3)),
            // Disturbed runs are repeated.
            ("~+", (Some(true), 2)),
            ("~~--", (Some(false), 4)),
            ("-~++", (Some(true), 4)),
            // A machine that is never quiet carries fewer.
            ("~~~~", (Some(false), 4)),
        ] {
            assert_eq!(decided(runs), expected, "{runs}");
        }
    }
}
