//! Which sound belongs to a turn: what came just before a turn is kept, what lies inside goes to the engine in slices,
//! the rest is forgotten. Offsets count samples received since the session began.

use std::collections::VecDeque;

/// The shortest slice, in ms, but for a turn's last.
const SLICE_MS: usize = 80;
/// The longest slice, in ms.
const MAX_SLICE_MS: usize = 1_000;
/// Sound held back from slices, in ms, so that a turn's end can still be cut exactly: more than one piece of input and
/// one frame of the detector.
const HELD_MS: usize = 50;
/// What a detector may need, in ms, to be sure that speech began, beside the prefix padding.
const DECISION_MS: u64 = 2_000;

/// The caller's sound.
#[derive(Debug)]
pub(super) struct Hearing {
    /// Samples a millisecond.
    per_ms: f64,
    /// Samples received since the session began.
    received: u64,
    /// The latest sound outside of a turn.
    early: VecDeque<f32>,
    /// Samples that `early` may hold.
    early_limit: usize,
    /// The open turn.
    turn: Option<Turn>,
}

/// Sound that belongs together.
#[derive(Debug)]
pub(super) struct Turn {
    /// The user item that it becomes.
    pub item_id: String,
    /// All of its samples so far.
    pub samples: u64,
    /// Those that were not submitted yet.
    pending: Vec<f32>,
    /// Whether the engine has refused part of it, which the client is told once.
    pub refused: bool,
    /// Its end is suspected: what comes now may not belong to it, and is not submitted.
    paused: bool,
}

impl Hearing {
    pub fn new(rate: u32) -> Self {
        let per_ms = f64::from(rate) / 1_000.0;
        Self { per_ms, received: 0, early: VecDeque::new(), early_limit: 0, turn: None }
    }

    /// Sets how much sound is kept from before a turn, and how much silence may become a turn by itself.
    pub fn keep(&mut self, prefix_ms: u64, silence_ms: u64) {
        self.early_limit = self.samples((prefix_ms + DECISION_MS).max(silence_ms)) as usize;
        self.trim();
    }

    /// Whether a turn is open.
    pub fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// The open turn.
    pub fn turn(&mut self) -> Option<&mut Turn> {
        self.turn.as_mut()
    }

    /// Takes sound; returns slices of the open turn.
    pub fn push(&mut self, samples: &[f32]) -> Vec<Vec<f32>> {
        self.received += samples.len() as u64;
        match &mut self.turn {
            Some(turn) => {
                turn.samples += samples.len() as u64;
                turn.pending.extend_from_slice(samples);
                self.slices()
            }
            None => {
                self.early.extend(samples);
                self.trim();
                Vec::new()
            }
        }
    }

    /// Opens a turn that begins at `start_ms`, or with all the sound that is kept; returns its first slices.
    pub fn open(&mut self, item_id: String, start_ms: Option<u64>) -> Vec<Vec<f32>> {
        let kept_from = self.received - self.early.len() as u64;
        let start = start_ms.map_or(kept_from, |ms| self.samples(ms));
        let skip = usize::try_from(start.saturating_sub(kept_from)).unwrap_or(usize::MAX).min(self.early.len());
        self.early.drain(..skip);
        let pending: Vec<f32> = std::mem::take(&mut self.early).into();
        self.turn = Some(Turn { item_id, samples: pending.len() as u64, pending, refused: false, paused: false });
        self.slices()
    }

    /// Takes the open turn to end at `end_ms`: returns what is left of it until then, and keeps what comes later. `None` if
    /// there is no such turn.
    pub fn pause(&mut self, end_ms: u64) -> Option<Option<Vec<f32>>> {
        let after = usize::try_from(self.received.saturating_sub(self.samples(end_ms))).unwrap_or(usize::MAX);
        let turn = self.turn.as_mut().filter(|turn| !turn.refused && turn.samples > after as u64)?;
        turn.paused = true;
        let last: Vec<f32> = turn.pending.drain(..turn.pending.len().saturating_sub(after)).collect();
        Some(Some(last).filter(|last| !last.is_empty()))
    }

    /// The open turn did not end where it was taken to; returns its slices.
    pub fn go_on(&mut self) -> Vec<Vec<f32>> {
        if let Some(turn) = &mut self.turn {
            turn.paused = false;
        }
        self.slices()
    }

    /// Sound received since the session began, in ms.
    pub fn received_ms(&self) -> u64 {
        (self.received as f64 / self.per_ms) as u64
    }

    /// Ends the open turn at `end_ms`, or with the sound received; returns it and its last slice.
    pub fn close(&mut self, end_ms: Option<u64>) -> Option<(Turn, Option<Vec<f32>>)> {
        let end = end_ms.map_or(self.received, |ms| self.samples(ms));
        let mut turn = self.turn.take()?;
        let excess = usize::try_from(self.received.saturating_sub(end)).unwrap_or(usize::MAX).min(turn.pending.len());
        // What came after the end may be the beginning of the next turn.
        self.early = turn.pending.split_off(turn.pending.len() - excess).into();
        turn.samples -= excess as u64;
        let last = std::mem::take(&mut turn.pending);
        Some((turn, Some(last).filter(|last| !last.is_empty())))
    }

    /// Forgets the open turn and what was kept; whether any of it was submitted.
    pub fn forget(&mut self) -> bool {
        self.early.clear();
        self.turn.take().is_some_and(|turn| turn.samples > turn.pending.len() as u64)
    }

    /// Sound that a commit would take, in ms.
    pub fn buffered_ms(&self) -> f64 {
        let samples = self.turn.as_ref().map_or(self.early.len() as u64, |turn| turn.samples);
        samples as f64 / self.per_ms
    }

    fn slices(&mut self) -> Vec<Vec<f32>> {
        let [slice, max, held] = [SLICE_MS, MAX_SLICE_MS, HELD_MS].map(|ms| self.samples(ms as u64) as usize);
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.paused) else { return Vec::new() };
        let mut slices = Vec::new();
        while turn.pending.len() >= slice + held {
            let length = (turn.pending.len() - held).min(max);
            slices.push(turn.pending.drain(..length).collect());
        }
        slices
    }

    fn samples(&self, ms: u64) -> u64 {
        (ms as f64 * self.per_ms).round() as u64
    }

    fn trim(&mut self) {
        let excess = self.early.len().saturating_sub(self.early_limit);
        self.early.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(from: usize, to: usize) -> Vec<f32> {
        (from..to).map(|sample| sample as f32).collect()
    }

    fn all(hearing: &mut Hearing, pieces: &[usize], start_ms: u64, end_ms: u64) -> Vec<f32> {
        let (mut at, mut heard, mut opened) = (0, Vec::new(), false);
        for piece in pieces {
            heard.extend(hearing.push(&ramp(at, at + piece)));
            at += piece;
            if !opened && at >= start_ms as usize + 100 {
                heard.extend(hearing.open("item".into(), Some(start_ms)));
                opened = true;
            }
        }
        let (_, last) = hearing.close(Some(end_ms)).unwrap();
        heard.extend(last);
        heard.concat()
    }

    #[test]
    fn a_turn_is_cut_exactly_however_the_sound_is_split() {
        for pieces in [vec![20; 40], vec![1; 800], vec![7; 115]] {
            let mut hearing = Hearing::new(1_000);
            hearing.keep(300, 0);
            assert_eq!(all(&mut hearing, &pieces, 150, 780), ramp(150, 780));
        }
    }

    #[test]
    fn sound_after_the_end_may_open_the_next_turn() {
        let mut hearing = Hearing::new(1_000);
        hearing.keep(300, 0);
        hearing.push(&ramp(0, 100));
        hearing.open("a".into(), Some(0));
        hearing.push(&ramp(100, 120));
        hearing.close(Some(110));
        assert!(hearing.open("b".into(), Some(105)).is_empty());
        assert_eq!(hearing.close(None).unwrap().1.unwrap(), ramp(110, 120));
    }

    #[test]
    fn slices_are_80_to_1000_ms() {
        let mut hearing = Hearing::new(1_000);
        hearing.keep(4_000, 0);
        hearing.push(&ramp(0, 3_000));
        let mut lengths: Vec<_> = hearing.open("a".into(), None).iter().map(Vec::len).collect();
        assert_eq!(lengths, [1_000, 1_000, 950]);
        lengths = (0..20).flat_map(|_| hearing.push(&ramp(0, 20))).map(|slice| slice.len()).collect();
        assert!(lengths.iter().all(|length| (80..=1_000).contains(length)), "{lengths:?}");
    }

    #[test]
    fn a_pause_cuts_exactly_and_going_on_loses_nothing() {
        for goes_on in [false, true] {
            let mut hearing = Hearing::new(1_000);
            hearing.keep(300, 0);
            hearing.push(&ramp(0, 200));
            let mut heard = hearing.open("a".into(), Some(0));
            heard.extend(hearing.push(&ramp(200, 400)));
            heard.extend(hearing.pause(390).unwrap());
            assert_eq!(heard.concat(), ramp(0, 390));
            assert!(hearing.push(&ramp(400, 900)).is_empty());
            if goes_on {
                heard.extend(hearing.go_on());
                heard.extend(hearing.close(None).unwrap().1);
                assert_eq!(heard.concat(), ramp(0, 900));
            }
        }
    }

    #[test]
    fn silence_before_a_turn_does_not_pile_up() {
        let mut hearing = Hearing::new(1_000);
        hearing.keep(300, 0);
        for _ in 0..1_000 {
            hearing.push(&ramp(0, 20));
        }
        assert_eq!(hearing.early.len(), 2_300);
    }
}
