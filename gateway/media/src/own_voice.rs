//! What the caller's microphone may hear of us: the level of our own voice, as it is being played.
//!
//! A loudspeaker near a microphone gives every word back, some 100 ms later and quieter. Browsers and telephones take most of
//! that out; the rest must not interrupt the answer that it is an echo of. The rule is the one that echo cancellers know
//! for telling speech at the near end (Geigel's): what is much quieter than anything that was played lately is ours.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Levels are kept for stretches of this length.
const STEP: Duration = Duration::from_millis(20);
/// How long ago a sound may have been played whose echo is heard now: the room's answer, the caller's buffers and the way back.
const TAIL: Duration = Duration::from_millis(500);
/// Stretches that are kept at most, 10 minutes; what is made beyond that is not accounted for.
const LIMIT: usize = 30_000;
/// Share of our own level below which a sound is taken for an echo, 14 dB.
const ECHO: f32 = 0.2;

/// Our voice on the caller's loudspeaker. Sound is taken to be played as soon as it is made, without gaps.
#[derive(Debug)]
pub struct OwnVoice {
    /// Samples of one step.
    step: usize,
    /// Root mean squares, step by step.
    levels: VecDeque<f32>,
    /// When the first of them began.
    begin: Option<Instant>,
    /// Samples that do not fill a step yet.
    pending: Vec<f32>,
}

impl OwnVoice {
    /// A voice at `rate` samples a second, of which nothing was heard yet.
    pub fn new(rate: u32) -> Self {
        let step = (u128::from(rate) * STEP.as_millis() / 1_000).max(1) as usize;
        Self { step, levels: VecDeque::new(), begin: None, pending: Vec::new() }
    }

    /// Takes sound that follows what is being played at `now`.
    pub fn speak(&mut self, samples: &[f32], now: Instant) {
        self.forget_before(now);
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
            if self.levels.len() < LIMIT {
                self.levels.push_back(level(step));
            }
        }
    }

    /// Forgets what was not played at `now`.
    pub fn clear(&mut self, now: Instant) {
        self.forget_before(now);
        let played = self.begin.map_or(0, |begin| steps(now.saturating_duration_since(begin)) + 1);
        self.levels.truncate(played);
        self.pending.clear();
    }

    /// The loudest that may be heard of us at `now`, as a root mean square; `None` if nothing of ours can be.
    pub fn level(&mut self, now: Instant) -> Option<f32> {
        self.forget_before(now);
        let begin = self.begin?;
        let played = steps(now.saturating_duration_since(begin)) + 1;
        self.levels.iter().take(played).copied().reduce(f32::max)
    }

    fn end(&self) -> Option<Instant> {
        self.begin.map(|begin| begin + STEP * self.levels.len() as u32)
    }

    fn forget_before(&mut self, now: Instant) {
        let Some(begin) = self.begin else { return };
        let over = steps(now.saturating_duration_since(begin).saturating_sub(TAIL)).min(self.levels.len());
        self.levels.drain(..over);
        self.begin = if self.levels.is_empty() { None } else { Some(begin + STEP * over as u32) };
    }
}

/// Whether `frame` may be an echo of a voice that is played at the level `own`.
pub fn is_echo(frame: &[f32], own: f32) -> bool {
    level(frame) < own * ECHO
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

    fn of(level: f32, ms: usize) -> Vec<f32> {
        vec![level; ms]
    }

    #[test]
    fn sound_is_played_in_its_turn_and_stays_for_the_tail() {
        let start = Instant::now();
        let mut voice = OwnVoice::new(1_000);
        assert_eq!(voice.level(start), None);
        voice.speak(&of(0.125, 1_000), start);
        voice.speak(&of(0.75, 1_000), start + 10 * MS);
        assert_eq!(voice.level(start + 900 * MS), Some(0.125));
        assert_eq!(voice.level(start + 1_100 * MS), Some(0.75));
        assert_eq!(voice.level(start + 2_400 * MS), Some(0.75));
        assert_eq!(voice.level(start + 2_600 * MS), None);
    }

    #[test]
    fn what_was_cleared_is_not_heard() {
        let start = Instant::now();
        let mut voice = OwnVoice::new(1_000);
        voice.speak(&of(0.125, 1_000), start);
        voice.speak(&of(0.75, 1_000), start);
        voice.clear(start + 500 * MS);
        assert_eq!(voice.level(start + 900 * MS), Some(0.125), "the tail of what was played");
        assert_eq!(voice.level(start + 1_200 * MS), None);
        voice.speak(&of(0.25, 100), start + 5_000 * MS);
        assert_eq!(voice.level(start + 5_000 * MS), Some(0.25));
    }

    #[test]
    fn pauses_between_pieces_are_silence() {
        let start = Instant::now();
        let mut voice = OwnVoice::new(1_000);
        voice.speak(&of(0.5, 100), start);
        voice.speak(&of(0.5, 100), start + 400 * MS);
        assert_eq!(voice.level(start + 610 * MS), Some(0.5));
        assert_eq!(voice.level(start + 1_050 * MS), None);
    }

    #[test]
    fn an_endless_answer_does_not_pile_up() {
        let start = Instant::now();
        let mut voice = OwnVoice::new(1_000);
        for _ in 0..100 {
            voice.speak(&of(0.5, 10_000), start);
        }
        assert_eq!(voice.levels.len(), LIMIT);
    }
}
