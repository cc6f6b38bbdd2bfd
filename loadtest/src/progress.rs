//! Progress on standard error: one line that is overwritten, or a line every ten seconds without a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use crate::measure::log::ScenarioLog;
use crate::report::percentile;
use crate::scenario::Scenario;

/// Seconds between two lines without a terminal.
const EVERY: u64 = 10;

/// Progress display on standard error.
#[derive(Debug, Clone, Copy)]
pub struct ProgressDisplay {
    shown: bool,
    terminal: bool,
}

impl ProgressDisplay {
    /// Creates a display; it prints nothing unless `shown`.
    pub fn new(shown: bool) -> Self {
        Self { shown, terminal: std::io::stderr().is_terminal() }
    }

    /// Prints the current state of a scenario.
    pub fn show(&self, scenario: &Scenario, at: Duration, log: &ScenarioLog) {
        if !self.shown || !(self.terminal || at.as_secs().is_multiple_of(EVERY)) {
            return;
        }
        let line = summary(scenario, at, log);
        // A closed terminal must not stop the run.
        let _ = if self.terminal {
            write!(std::io::stderr(), "\r\x1b[K{line}")
        } else {
            writeln!(std::io::stderr(), "{line}")
        };
    }

    /// Prints the final state of a scenario.
    pub fn done(&self, scenario: &Scenario, log: &ScenarioLog) {
        if self.shown {
            let clear = if self.terminal { "\r\x1b[K" } else { "" };
            let at = log.calls.iter().map(|call| call.ended).max().unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "{clear}{}", summary(scenario, at, log));
        }
    }
}

fn summary(scenario: &Scenario, at: Duration, log: &ScenarioLog) -> String {
    let sounds = log.sorted(|turn| Some(turn.to_sound));
    let ms = |percent| percentile(&sounds, percent).map_or("-".to_owned(), |time| time.as_millis().to_string());
    let sample = log.samples.last().copied().unwrap_or_default();
    let server = sample.server_cores.map_or("-".to_owned(), |cores| format!("{cores:.2}"));
    format!(
        "{:<16} {:>4} s  {:>4} calls  {:>5} turns  to sound p50 {} p95 {} ms  gaps {:.1} %  errors {}  cores {server} + {:.2}",
        scenario.name,
        at.as_secs(),
        log.active,
        log.turns.len(),
        ms(50),
        ms(95),
        log.gap_share() * 100.0,
        log.error_count(),
        sample.own_cores,
    )
}
