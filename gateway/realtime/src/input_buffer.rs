//! Input audio buffer: keeps a preroll before a turn, cuts the turn into slices for the engine, and drops other audio.
//! Offsets count samples received since the session started.

use std::collections::VecDeque;

use super::transcriber::OpenTranscript;

/// Minimum slice length in ms, except a turn's last slice.
const SLICE_MS: usize = 80;
/// Maximum slice length in ms.
const MAX_SLICE_MS: usize = 1_000;
/// Audio held back from slices in ms, so that the end of a turn is exact: more than one piece of input plus one detector
/// frame.
const HOLDBACK_MS: usize = 50;
/// Maximum time in ms from the start of speech to its detection; the preroll holds it in addition to the prefix padding.
const ONSET_MS: u64 = 2_000;

/// Input audio buffer of one session.
#[derive(Debug)]
pub(super) struct InputBuffer {
    /// Samples per millisecond.
    per_ms: f64,
    /// Samples received since the session started.
    received: u64,
    /// Latest audio outside a turn.
    preroll: VecDeque<f32>,
    /// Maximum number of samples in `preroll`.
    preroll_limit: usize,
    turn: Option<OpenTurn>,
}

/// Open turn of the caller.
#[derive(Debug)]
pub(super) struct OpenTurn {
    /// Id of the user item that the turn becomes.
    pub item_id: String,
    /// Number of samples so far.
    pub samples: u64,
    /// Samples not yet submitted to the engine.
    pending: Vec<f32>,
    /// Transcript so far; `None` if nobody listens to the open turn.
    pub transcript: Option<OpenTranscript>,
    /// True if the engine refused a slice; the client gets one error per turn.
    pub refused: bool,
    /// True while the caller pauses: new audio may not belong to the turn, and is not submitted.
    paused: bool,
}

impl InputBuffer {
    pub fn new(rate: u32) -> Self {
        let per_ms = f64::from(rate) / 1_000.0;
        Self { per_ms, received: 0, preroll: VecDeque::new(), preroll_limit: 0, turn: None }
    }

    /// Sets the preroll length for the prefix padding and for a silence that may become a turn.
    pub fn set_preroll(&mut self, prefix_ms: u64, silence_ms: u64) {
        self.preroll_limit = self.samples((prefix_ms + ONSET_MS).max(silence_ms)) as usize;
        self.trim();
    }

    /// True if a turn is open.
    pub fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns the open turn.
    pub fn turn(&mut self) -> Option<&mut OpenTurn> {
        self.turn.as_mut()
    }

    /// Adds audio; returns complete slices of the open turn.
    pub fn push(&mut self, samples: &[f32]) -> Vec<Vec<f32>> {
        self.received += samples.len() as u64;
        match &mut self.turn {
            Some(turn) => {
                turn.samples += samples.len() as u64;
                turn.pending.extend_from_slice(samples);
                self.slices()
            }
            None => {
                self.preroll.extend(samples);
                self.trim();
                Vec::new()
            }
        }
    }

    /// Starts a turn at `start_ms`, or with the entire preroll; returns its first slices.
    pub fn begin_turn(&mut self, item_id: String, start_ms: Option<u64>) -> Vec<Vec<f32>> {
        let kept_from = self.received - self.preroll.len() as u64;
        let start = start_ms.map_or(kept_from, |ms| self.samples(ms));
        let skip = usize::try_from(start.saturating_sub(kept_from)).unwrap_or(usize::MAX).min(self.preroll.len());
        self.preroll.drain(..skip);
        let pending: Vec<f32> = std::mem::take(&mut self.preroll).into();
        let samples = pending.len() as u64;
        self.turn = Some(OpenTurn { item_id, samples, pending, transcript: None, refused: false, paused: false });
        self.slices()
    }

    /// Pauses the open turn at `end_ms`: returns its last slice, if any audio is left, and buffers later audio. `None` if no
    /// open turn can end there.
    pub fn pause_turn(&mut self, end_ms: u64) -> Option<Option<Vec<f32>>> {
        let after = usize::try_from(self.received.saturating_sub(self.samples(end_ms))).unwrap_or(usize::MAX);
        let turn = self.turn.as_mut().filter(|turn| !turn.refused && turn.samples > after as u64)?;
        turn.paused = true;
        let last: Vec<f32> = turn.pending.drain(..turn.pending.len().saturating_sub(after)).collect();
        Some(Some(last).filter(|last| !last.is_empty()))
    }

    /// Resumes a paused turn; returns its complete slices.
    pub fn resume_turn(&mut self) -> Vec<Vec<f32>> {
        if let Some(turn) = &mut self.turn {
            turn.paused = false;
        }
        self.slices()
    }

    /// Audio received since the session started, in ms.
    pub fn received_ms(&self) -> u64 {
        (self.received as f64 / self.per_ms) as u64
    }

    /// Latest position where the open turn can be cut, in ms since the session started; `None` if the part before it is
    /// shorter than `ms`.
    pub fn cut_ms(&self, ms: u32) -> Option<u64> {
        let turn = self.turn.as_ref().filter(|turn| !turn.paused)?;
        let held = self.samples(HOLDBACK_MS as u64);
        let cut = self.received - held.min(self.received);
        (turn.samples >= self.samples(ms.into()) + held).then_some((cut as f64 / self.per_ms) as u64)
    }

    /// Ends the open turn at `end_ms`, or at the end of the received audio; returns it and its last slice.
    pub fn end_turn(&mut self, end_ms: Option<u64>) -> Option<(OpenTurn, Option<Vec<f32>>)> {
        let end = end_ms.map_or(self.received, |ms| self.samples(ms));
        let mut turn = self.turn.take()?;
        let excess = usize::try_from(self.received.saturating_sub(end)).unwrap_or(usize::MAX).min(turn.pending.len());
        // Audio after the end may belong to the next turn.
        self.preroll = turn.pending.split_off(turn.pending.len() - excess).into();
        turn.samples -= excess as u64;
        let last = std::mem::take(&mut turn.pending);
        Some((turn, Some(last).filter(|last| !last.is_empty())))
    }

    /// Drops the open turn and the preroll. Returns true if any of the turn was submitted.
    pub fn clear(&mut self) -> bool {
        self.preroll.clear();
        self.turn.take().is_some_and(|turn| turn.samples > turn.pending.len() as u64)
    }

    /// Duration of the audio that a commit takes, in ms.
    pub fn buffered_ms(&self) -> f64 {
        let samples = self.turn.as_ref().map_or(self.preroll.len() as u64, |turn| turn.samples);
        samples as f64 / self.per_ms
    }

    fn slices(&mut self) -> Vec<Vec<f32>> {
        let [slice, max, held] = [SLICE_MS, MAX_SLICE_MS, HOLDBACK_MS].map(|ms| self.samples(ms as u64) as usize);
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
        let excess = self.preroll.len().saturating_sub(self.preroll_limit);
        self.preroll.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(from: usize, to: usize) -> Vec<f32> {
        (from..to).map(|sample| sample as f32).collect()
    }

    fn run(input: &mut InputBuffer, pieces: &[usize], start_ms: u64, end_ms: u64) -> Vec<f32> {
        let (mut at, mut slices, mut opened) = (0, Vec::new(), false);
        for piece in pieces {
            slices.extend(input.push(&ramp(at, at + piece)));
            at += piece;
            if !opened && at >= start_ms as usize + 100 {
                slices.extend(input.begin_turn("item".into(), Some(start_ms)));
                opened = true;
            }
        }
        let (_, last) = input.end_turn(Some(end_ms)).unwrap();
        slices.extend(last);
        slices.concat()
    }

    #[test]
    fn any_split_cuts_the_same_turn() {
        for pieces in [vec![20; 40], vec![1; 800], vec![7; 115]] {
            let mut input = InputBuffer::new(1_000);
            input.set_preroll(300, 0);
            assert_eq!(run(&mut input, &pieces, 150, 780), ramp(150, 780));
        }
    }

    #[test]
    fn audio_after_the_end_opens_the_next_turn() {
        let mut input = InputBuffer::new(1_000);
        input.set_preroll(300, 0);
        input.push(&ramp(0, 100));
        input.begin_turn("a".into(), Some(0));
        input.push(&ramp(100, 120));
        input.end_turn(Some(110));
        assert!(input.begin_turn("b".into(), Some(105)).is_empty());
        assert_eq!(input.end_turn(None).unwrap().1.unwrap(), ramp(110, 120));
    }

    #[test]
    fn slices_are_80_to_1000_ms() {
        let mut input = InputBuffer::new(1_000);
        input.set_preroll(4_000, 0);
        input.push(&ramp(0, 3_000));
        let mut lengths: Vec<_> = input.begin_turn("a".into(), None).iter().map(Vec::len).collect();
        assert_eq!(lengths, [1_000, 1_000, 950]);
        lengths = (0..20).flat_map(|_| input.push(&ramp(0, 20))).map(|slice| slice.len()).collect();
        assert!(lengths.iter().all(|length| (80..=1_000).contains(length)), "{lengths:?}");
    }

    #[test]
    fn pause_cuts_exactly_and_resume_loses_nothing() {
        for resumes in [false, true] {
            let mut input = InputBuffer::new(1_000);
            input.set_preroll(300, 0);
            input.push(&ramp(0, 200));
            let mut slices = input.begin_turn("a".into(), Some(0));
            slices.extend(input.push(&ramp(200, 400)));
            slices.extend(input.pause_turn(390).unwrap());
            assert_eq!(slices.concat(), ramp(0, 390));
            assert!(input.push(&ramp(400, 900)).is_empty());
            if resumes {
                slices.extend(input.resume_turn());
                slices.extend(input.end_turn(None).unwrap().1);
                assert_eq!(slices.concat(), ramp(0, 900));
            }
        }
    }

    #[test]
    fn preroll_is_bounded() {
        let mut input = InputBuffer::new(1_000);
        input.set_preroll(300, 0);
        for _ in 0..1_000 {
            input.push(&ramp(0, 20));
        }
        assert_eq!(input.preroll.len(), 2_300);
    }
}
