//! Echo guard: keeps the echo of our playback in the caller's microphone from counting as speech.
//!
//! A loudspeaker near a microphone returns every word, some 100 ms later and quieter. Browsers and telephones cancel most of
//! that; the rest must not interrupt the response that it is an echo of. The rule is Geigel's double-talk detector: input that
//! is much quieter than anything played lately is echo.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Resolution of the recorded levels.
const STEP: Duration = Duration::from_millis(20);
/// Longest delay between playback and its echo in the input: the room, the caller's buffers and the way back.
const TAIL: Duration = Duration::from_millis(500);
/// Most steps recorded ahead, 10 minutes; playback beyond that is not accounted for.
const MAX_STEPS: usize = 30_000;
/// Ratio to the playback level below which input counts as echo, -14 dB.
const ECHO_RATIO: f32 = 0.2;

/// Recent and coming levels of our playback. Audio is assumed to play as soon as it is pushed, without gaps.
#[derive(Debug)]
pub struct EchoGuard {
    /// Samples of one step.
    step: usize,
    /// Root mean squares, step by step.
    levels: VecDeque<f32>,
    /// When the first of them began to play.
    begin: Option<Instant>,
    /// Samples that do not fill a step yet.
    pending: Vec<f32>,
}

impl EchoGuard {
    /// A guard for playback at `rate` samples a second, silent so far.
    pub fn new(rate: u32) -> Self {
        let step = (u128::from(rate) * STEP.as_millis() / 1_000).max(1) as usize;
        Self { step, levels: VecDeque::new(), begin: None, pending: Vec::new() }
    }

    /// Adds audio that plays after everything pushed before, or at `now`.
    pub fn push(&mut self, samples: &[f32], now: Instant) {
        self.drop_before(now);
        if self.end().is_none_or(|end| end + TAIL < now) {
            self.levels.clear();
            self.begin = Some(now);
        }
        // A gap shorter than the tail.
        while self.end().is_some_and(|end| end + STEP <= now) {
            self.levels.push_back(0.0);
        }
        self.pending.extend_from_slice(samples);
        let whole = self.pending.len() / self.step * self.step;
        for step in self.pending.drain(..whole).as_slice().chunks_exact(self.step) {
            if self.levels.len() < MAX_STEPS {
                self.levels.push_back(level(step));
            }
        }
    }

    /// Drops what has not been played at `now`.
    pub fn clear(&mut self, now: Instant) {
        self.drop_before(now);
        let played = self.begin.map_or(0, |begin| steps(now.saturating_duration_since(begin)) + 1);
        self.levels.truncate(played);
        self.pending.clear();
    }

    /// The highest level whose echo may be in the input at `now`, as a root mean square; `None` if none can be.
    pub fn playback_level(&mut self, now: Instant) -> Option<f32> {
        self.drop_before(now);
        let begin = self.begin?;
        let played = steps(now.saturating_duration_since(begin)) + 1;
        self.levels.iter().take(played).copied().reduce(f32::max)
    }

    fn end(&self) -> Option<Instant> {
        self.begin.map(|begin| begin + STEP * self.levels.len() as u32)
    }

    fn drop_before(&mut self, now: Instant) {
        let Some(begin) = self.begin else { return };
        let past = steps(now.saturating_duration_since(begin).saturating_sub(TAIL)).min(self.levels.len());
        self.levels.drain(..past);
        self.begin = if self.levels.is_empty() { None } else { Some(begin + STEP * past as u32) };
    }
}

/// Whether `frame` may be an echo of playback at the level `playback`.
pub(crate) fn is_echo(frame: &[f32], playback: f32) -> bool {
    level(frame) < playback * ECHO_RATIO
}

fn steps(duration: Duration) -> usize {
    (duration.as_micros() / STEP.as_micros()) as usize
}

fn level(samples: &[f32]) -> f32 {
    let sum: f32 = samples.iter().filter(|sample| sample.is_finite()).map(|sample| sample * sample).sum();
    (sum / samples.len().max(1) as f32).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn constant(level: f32, ms: usize) -> Vec<f32> {
        vec![level; ms]
    }

    #[test]
    fn playback_level_lasts_for_the_echo_tail() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        assert_eq!(guard.playback_level(start), None);
        guard.push(&constant(0.125, 1_000), start);
        guard.push(&constant(0.75, 1_000), start + 10 * MS);
        assert_eq!(guard.playback_level(start + 900 * MS), Some(0.125));
        assert_eq!(guard.playback_level(start + 1_100 * MS), Some(0.75));
        assert_eq!(guard.playback_level(start + 2_400 * MS), Some(0.75));
        assert_eq!(guard.playback_level(start + 2_600 * MS), None);
    }

    #[test]
    fn cleared_playback_leaves_only_its_tail() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        guard.push(&constant(0.125, 1_000), start);
        guard.push(&constant(0.75, 1_000), start);
        guard.clear(start + 500 * MS);
        assert_eq!(guard.playback_level(start + 900 * MS), Some(0.125), "the tail of what was played");
        assert_eq!(guard.playback_level(start + 1_200 * MS), None);
        guard.push(&constant(0.25, 100), start + 5_000 * MS);
        assert_eq!(guard.playback_level(start + 5_000 * MS), Some(0.25));
    }

    #[test]
    fn gaps_between_pieces_are_silence() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        guard.push(&constant(0.5, 100), start);
        guard.push(&constant(0.5, 100), start + 400 * MS);
        assert_eq!(guard.playback_level(start + 610 * MS), Some(0.5));
        assert_eq!(guard.playback_level(start + 1_050 * MS), None);
    }

    #[test]
    fn recorded_levels_are_bounded() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        for _ in 0..100 {
            guard.push(&constant(0.5, 10_000), start);
        }
        assert_eq!(guard.levels.len(), MAX_STEPS);
    }
}
