//! Shows the progress of the start: a bar on a terminal, else lines in the log.

use std::io::Write;

use repartee_engine::{StartProgress, StartStage};

use super::progress_line::ProgressLine;

/// Number of log lines for each stage of the start.
const QUARTERS: f32 = 4.0;

/// Progress of a start: a line of a terminal, or else lines in the log.
#[derive(Debug)]
pub struct LoadingBar<W: Write> {
    /// Line of the terminal; `None` for the log.
    line: Option<ProgressLine<W>>,
    /// Last logged progress: the stage, and the number of quarters.
    logged: Option<(StartStage, usize)>,
}

impl<W: Write> LoadingBar<W> {
    /// Creates a bar on `out`; `terminal` says that it is a terminal. Otherwise it logs.
    pub fn new(out: W, terminal: bool) -> Self {
        Self { line: terminal.then(|| ProgressLine::new(out)), logged: None }
    }

    /// Shows a progress, if it differs from the shown one.
    pub fn show(&mut self, StartProgress { stage, fraction }: StartProgress) {
        let fraction = fraction.clamp(0.0, 1.0);
        let Some(line) = &mut self.line else {
            let quarter = (stage, (fraction * QUARTERS) as usize);
            if self.logged.replace(quarter) != Some(quarter) {
                let percent = (fraction * 100.0) as u32;
                tracing::info!(stage = stage.name(), percent, "the server is starting");
            }
            return;
        };
        let doing = match stage {
            StartStage::Opening => "Opening the model",
            StartStage::Weights => "Loading the model",
            StartStage::WarmUp => "Warming up",
            StartStage::Voices => "Enrolling voices",
        };
        line.show(doing, fraction);
    }
}

#[cfg(test)]
mod tests {
    use super::super::progress_line::CLEAR;
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
