//! Window of new codes: the codes that they are solved with.

use crate::config::{ConfigError, EngineConfig};

/// Settings of the stage: the fields of [`FlowWindows`].
pub const SETTINGS: [&str; 3] = ["left_codes", "new_codes", "ahead_codes"];
/// Most codes of a window.
pub const MOST_CODES: usize = 1024;

/// Codes of a window, by the stage's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowWindows {
    /// Codes before the new ones, whose latents are known.
    pub left: usize,
    /// New codes, whose latents leave the stage; at least 1.
    pub new: usize,
    /// Codes after them, whose latents come of the next window.
    pub ahead: usize,
}

/// Range of a window among a response's codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowWindow {
    /// First code of the window.
    pub from: usize,
    /// First new code, and the end of the new ones (exclusive).
    pub new: (usize, usize),
    /// End of the window (exclusive).
    pub to: usize,
}

impl FlowWindows {
    /// Reads the settings of `stage`, with `absent` for those that are not set.
    ///
    /// # Errors
    ///
    /// A window has more than [`MOST_CODES`] codes.
    pub fn read(settings: &EngineConfig, stage: &str, absent: Self) -> Result<Self, ConfigError> {
        let value = |name, absent| settings.stage_option(stage, name).unwrap_or(absent);
        let [left, new, ahead] = SETTINGS;
        let sizes =
            Self { left: value(left, absent.left), new: value(new, absent.new), ahead: value(ahead, absent.ahead) };
        for (name, codes) in [(left, sizes.left), (new, sizes.new), (ahead, sizes.ahead)] {
            if sizes.left.saturating_add(sizes.new).saturating_add(sizes.ahead) > MOST_CODES && codes > MOST_CODES / 3 {
                let allowed = format!("at most {MOST_CODES}, with the other codes of a window");
                return Err(ConfigError::new(format!("stages.{stage}.{name}"), codes, allowed));
            }
        }
        Ok(sizes)
    }

    /// Next window after `done` codes, of `codes` so far; `None` if it waits for more. After `ended` it does not wait.
    pub fn next(self, done: usize, codes: usize, ended: bool) -> Option<FlowWindow> {
        let (end, to) = (done + self.new, done + self.new + self.ahead);
        (codes >= to || (ended && codes > done)).then(|| FlowWindow {
            from: done.saturating_sub(self.left),
            new: (done, end.min(codes)),
            to: to.min(codes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: FlowWindows = FlowWindows { left: 6, new: 5, ahead: 2 };

    /// Windows of a response of `total` codes, which arrive `piece` at a time.
    fn windows(total: usize, piece: usize) -> Vec<FlowWindow> {
        let (mut done, mut found) = (0, Vec::new());
        for at in (piece..=total + piece).step_by(piece) {
            while let Some(window) = SIZES.next(done, at.min(total), at >= total) {
                done = window.new.1;
                found.push(window);
            }
        }
        assert_eq!(done, total);
        found
    }

    #[test]
    fn windows_do_not_depend_on_arrival() {
        for total in 0..30 {
            let whole = windows(total, 100);
            for piece in [1, 2, 5, 7] {
                assert_eq!(windows(total, piece), whole, "{total} codes, {piece} at a time");
            }
        }
        let window = |from, new, to| FlowWindow { from, new, to };
        assert_eq!(windows(6, 1), [window(0, (0, 5), 6), window(0, (5, 6), 6)]);
        assert_eq!(windows(13, 4).last(), Some(&window(4, (10, 13), 13)));
    }

    #[test]
    fn windows_that_are_too_long_are_refused() {
        let read = |name: &str, value: usize| {
            let mut config = EngineConfig::default();
            config.stages.entry("flow".to_owned()).or_default().options.insert(name.to_owned(), value);
            FlowWindows::read(&config, "flow", SIZES)
        };
        assert_eq!(read("new_codes", 7).unwrap(), FlowWindows { new: 7, ..SIZES });
        for name in SETTINGS {
            let error = read(name, MOST_CODES).unwrap_err().to_string();
            assert!(error.contains(&format!("stages.flow.{name}")), "{error}");
        }
    }
}
