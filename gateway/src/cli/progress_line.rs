//! Progress as one line of a terminal that is drawn again.

use std::io::Write;

/// Width of the bar, in characters.
const WIDTH: usize = 30;
/// Moves to the beginning of the line and clears it.
pub const CLEAR: &str = "\r\x1b[K";

/// Line with a label, a bar and a percentage. Dropping it clears the line.
#[derive(Debug)]
pub struct ProgressLine<W: Write> {
    out: W,
    /// Last shown label, and the number of full characters.
    shown: Option<(String, usize)>,
}

impl<W: Write> ProgressLine<W> {
    /// Creates a line on `out`, a terminal.
    pub fn new(out: W) -> Self {
        Self { out, shown: None }
    }

    /// Shows a share of 0 to 1, if it differs from the shown one by a character.
    pub fn show(&mut self, label: &str, share: f32) {
        let share = share.clamp(0.0, 1.0);
        let full = (share * WIDTH as f32) as usize;
        if self.shown.as_ref().is_some_and(|(shown, at)| shown == label && *at == full) {
            return;
        }
        self.shown = Some((label.to_owned(), full));
        let (full, empty) = ("█".repeat(full), "░".repeat(WIDTH - full));
        // A closed terminal does not stop the work.
        let _ = write!(self.out, "{CLEAR}{label:<17} {full}{empty} {:3.0} %", share * 100.0);
        let _ = self.out.flush();
    }
}

impl<W: Write> Drop for ProgressLine<W> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(self.out, "{CLEAR}");
            let _ = self.out.flush();
        }
    }
}
