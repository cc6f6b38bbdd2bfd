//! Shows the progress of the start: a bar on a terminal, else lines in the log.

use std::io::Write;

use repartee_engine::{StartProgress, StartStage};

/// Width of the bar, in characters.
const WIDTH: usize = 30;
/// Number of log lines for each stage of the start.
const QUARTERS: f32 = 4.0;
/// Moves to the beginning of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Progress bar of a start. Dropping it clears the line.
#[derive(Debug)]
pub struct LoadingBar<W: Write> {
    out: W,
    /// True if `out` is a terminal.
    terminal: bool,
    /// Last shown progress: the stage, and the number of characters or quarters.
    shown: Option<(StartStage, usize)>,
}

impl<W: Write> LoadingBar<W> {
    /// Creates a bar on `out`; `terminal` says that it is a terminal. Otherwise it logs.
    pub fn new(out: W, terminal: bool) -> Self {
        Self { out, terminal, shown: None }
    }

    /// Shows a progress, if it differs from the shown one.
    pub fn show(&mut self, StartProgress { stage, fraction }: StartProgress) {
        let fraction = fraction.clamp(0.0, 1.0);
        let steps = if self.terminal { WIDTH as f32 } else { QUARTERS };
        let step = (fraction * steps) as usize;
        if self.shown == Some((stage, step)) {
            return;
        }
        self.shown = Some((stage, step));
        if !self.terminal {
            let percent = (fraction * 100.0) as u32;
            tracing::info!(stage = stage.name(), percent, "the server is starting");
            return;
        }
        let doing = match stage {
            StartStage::Opening => "Opening the model",
            StartStage::Weights => "Loading the model",
            StartStage::WarmUp => "Warming up",
            StartStage::Voices => "Enrolling voices",
        };
        let (full, empty) = ("█".repeat(step), "░".repeat(WIDTH - step));
        // A closed terminal does not stop the start.
        let _ = write!(self.out, "{CLEAR}{doing:<17} {full}{empty} {:3.0} %", fraction * 100.0);
        let _ = self.out.flush();
    }
}

impl<W: Write> Drop for LoadingBar<W> {
    fn drop(&mut self) {
        if self.terminal && self.shown.is_some() {
            let _ = write!(self.out, "{CLEAR}");
            let _ = self.out.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(terminal: bool, steps: &[(StartStage, f32)]) -> String {
        let mut out = Vec::new();
        let mut bar = LoadingBar::new(&mut out, terminal);
        for &(stage, fraction) in steps {
            bar.show(StartProgress { stage, fraction });
        }
        drop(bar);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_terminal_gets_a_bar_that_is_cleared() {
        let steps = [(StartStage::Weights, 0.5), (StartStage::Weights, 0.501), (StartStage::WarmUp, 1.0)];
        let said = shown(true, &steps);
        let lines: Vec<&str> = said.split(CLEAR).collect();
        let half = format!("Loading the model {}{}  50 %", "█".repeat(15), "░".repeat(15));
        let full = format!("Warming up        {} 100 %", "█".repeat(30));
        assert_eq!(lines, ["", &half, &full, ""]);
    }

    #[test]
    fn only_a_terminal_gets_a_bar() {
        assert_eq!(shown(false, &[(StartStage::Weights, 0.5)]), "");
        assert_eq!(shown(true, &[]), "");
    }
}
