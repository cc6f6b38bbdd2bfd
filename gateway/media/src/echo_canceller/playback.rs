//! Played samples by position, read back at positions between two samples.

use std::collections::VecDeque;

/// Samples kept behind the end of the played sound at most, 60 s: a client without a playout clock gets its sound ahead of time.
const KEPT: usize = 60 * super::units::RATE as usize;
/// Samples kept before the position that was read last, 1 s.
const BEHIND: usize = super::units::RATE as usize;
/// Taps of the interpolation on each side.
const TAPS: i64 = 4;

/// Played samples. Positions count samples on the caller's time axis, and nothing plays where nothing was pushed.
#[derive(Debug, Default)]
pub(super) struct PlayedSamples {
    samples: VecDeque<f32>,
    /// Position of the first of them.
    begin: i64,
}

impl PlayedSamples {
    /// Position after the last sample.
    pub fn end(&self) -> i64 {
        self.begin + self.samples.len() as i64
    }

    /// Adds samples that play from `position` on, at the earliest behind what was pushed before.
    pub fn push(&mut self, samples: &[f32], position: i64) {
        let gap = usize::try_from(position - self.end()).unwrap_or(0);
        if self.samples.is_empty() {
            self.begin = position;
        } else if self.samples.len().saturating_add(gap) < KEPT {
            self.samples.extend(std::iter::repeat_n(0.0, gap));
        } else {
            return;
        }
        let room = KEPT.saturating_sub(self.samples.len());
        self.samples.extend(samples.iter().take(room).map(|sample| super::units::finite(*sample)));
    }

    /// Drops what plays from `position` on.
    pub fn truncate(&mut self, position: i64) {
        self.samples.truncate(usize::try_from(position - self.begin).unwrap_or(0));
    }

    /// Returns the samples around `position`, which may lie between two.
    pub fn at(&self, position: f64) -> f32 {
        let whole = position.floor();
        let index = whole as i64 - self.begin;
        if index < -TAPS || index >= self.samples.len() as i64 + TAPS {
            return 0.0;
        }
        let share = (position - whole) as f32;
        if share == 0.0 {
            return self.get(index);
        }
        // A sinc within a window of Hann.
        let sine = (std::f32::consts::PI * share).sin();
        let mut sum = 0.0;
        for tap in 1 - TAPS..=TAPS {
            let x = share - tap as f32;
            let sign = if tap % 2 == 0 { 1.0 } else { -1.0 };
            let window = 0.5 + 0.5 * (std::f32::consts::PI * x / TAPS as f32).cos();
            let weight = if x.abs() < 1e-6 { 1.0 } else { sign * sine / (std::f32::consts::PI * x) };
            sum += self.get(index + tap) * weight * window;
        }
        sum
    }

    /// Drops what lies more than a second before `position`.
    pub fn drop_before(&mut self, position: i64) {
        let old = usize::try_from(position - BEHIND as i64 - self.begin).unwrap_or(0).min(self.samples.len());
        self.samples.drain(..old);
        self.begin += old as i64;
    }

    fn get(&self, index: i64) -> f32 {
        usize::try_from(index).ok().and_then(|index| self.samples.get(index)).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_kept_at_most() {
        let mut played = PlayedSamples::default();
        let second = super::super::units::RATE as usize;
        for number in 0..100 {
            played.push(&vec![number as f32 / 100.0; second], (number * second) as i64);
        }
        assert_eq!(played.samples.len(), KEPT);
        // Beyond it a gap takes no memory either, and what was played before stays at its place.
        played.push(&[0.5; 320], 1_000 * second as i64);
        assert_eq!(played.samples.len(), KEPT);
        assert_eq!(played.at(59.5 * second as f64), 0.59);
        played.drop_before(50 * second as i64);
        played.push(&vec![0.7; second], 100 * second as i64);
        assert_eq!(played.at(100.5 * second as f64), 0.7);
        assert_eq!(played.at(80.5 * second as f64), 0.0, "what did not fit");
    }
}
