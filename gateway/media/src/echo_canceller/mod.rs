//! Echo canceller: removes our playback from the caller's input, whatever their delay up to 800 ms and the drift of their clocks.
//!
//! | file | contents |
//! |---|---|
//! | `playback` | the played samples by position |
//! | `alignment` | delay of the echo and drift of the clocks |
//! | `filter` | adaptive filter of the echo path |
//! | `bound` | upper bound of an echo whose delay is not known |
//! | `units` | rate, block and bands |
//! | `suppressor` | suppression of what the filter leaves |
//!
//! Sound is mono at 16 kHz. The played samples have positions on the input's time axis: a sample at position 0 left our playout clock when
//! the first input sample arrived. Output is 10 ms late.
//!
//! There are two outputs. Until the path of the echo is known, the suppressor takes all for an echo that may be one, as a detector of voices
//! needs it; that would cost a listener words of a caller without an echo, so the plain output has the input as it is. Then they are the same.

use std::collections::VecDeque;

use self::alignment::{Alignment, Found, LONGEST, WINDOW};
use self::filter::{EchoFilter, PARTITIONS};
use self::playback::PlayedSamples;
use self::suppressor::{Block, Suppressor};
pub(crate) use self::units::BLOCK;
pub use self::units::RATE;
use self::units::finite;

mod alignment;
mod bound;
#[cfg(test)]
mod chosen_tests;
mod filter;
mod playback;
mod suppressor;
#[cfg(test)]
pub(crate) mod tests;
mod units;

/// Time before the found delay that the filter covers: the sound that is found may not be the first.
const BEFORE: usize = BLOCK;
/// Input on which a new filter learns at once.
const REPLAYED: usize = 50 * BLOCK;
/// Reference that is kept: delay, filter and replayed input.
const KEPT: usize = LONGEST + REPLAYED + (PARTITIONS + 2) * BLOCK;
/// Blocks between two comparisons.
const EVERY: u32 = 12;
/// Audible playback without a found echo, in blocks, after which there hardly is one and the input passes.
const UNLIKELY: u32 = 120;
/// Time after the last sound played during which an echo may come, in blocks.
const TAIL: u32 = 120;
/// Least power of a played or received sample, -66 dBFS, that tells anything.
pub(crate) const AUDIBLE: f32 = 2.5e-7;
/// Drift that is compensated, and the most that is believed.
const LEAST_DRIFT: f64 = 3e-5;
const MOST_DRIFT: f64 = 1e-3;
/// Blocks of a stretch in which the filter shows that an echo is one.
const STRETCH: u32 = 50;
/// Blocks in a row in which the filter made the input louder, after which its path has changed.
const WRONG: u32 = 20;

/// Echo canceller of one call.
#[derive(Debug)]
pub struct EchoCanceller {
    played: PlayedSamples,
    /// Latest input, and reference at no delay.
    input: VecDeque<f32>,
    reference: VecDeque<f32>,
    /// Input samples of an incomplete block.
    pub(crate) pending: Vec<f32>,
    /// Input samples processed.
    position: i64,
    /// Distance in samples between the axes of playback and input, and its growth a sample.
    pub(crate) warp: f64,
    drift: f64,
    alignment: Alignment,
    filter: EchoFilter,
    /// Delay at which the filter begins; `None` without a known path.
    pub(crate) begin: Option<usize>,
    suppressor: Suppressor,
    /// True if the path was known in the last block.
    was_known: bool,
    /// Blocks since something was played, and since the last comparison.
    pub(crate) quiet: u32,
    since: u32,
    wrong: u32,
    /// Blocks with audible playback since the begin or the last comparison that found an echo.
    sought: u32,
    /// Comparisons that found an echo.
    pub(crate) found: u32,
    /// Sums of the powers of blocks with a known echo: of the input, and of what is left of it.
    pub(crate) powers: (f64, f64),
    /// Current stretch of blocks with a known echo: the powers of the input and of what the filter leaves of it, and its length.
    stretch: (f64, f64, u32),
    /// Most decibels by which the filter lowered a stretch of the answer.
    pub(crate) lowered_db: f32,
}

impl Default for EchoCanceller {
    fn default() -> Self {
        Self::new()
    }
}

impl EchoCanceller {
    /// Creates a canceller at the begin of a call.
    pub fn new() -> Self {
        Self::starting_at(0, 0.0)
    }

    /// Creates a canceller whose first input sample is at `position`; its playback is `warp` samples further.
    pub(crate) fn starting_at(position: i64, warp: f64) -> Self {
        Self {
            played: PlayedSamples::default(),
            input: std::iter::repeat_n(0.0, REPLAYED).collect(),
            reference: std::iter::repeat_n(0.0, KEPT).collect(),
            pending: Vec::with_capacity(BLOCK),
            position,
            warp,
            drift: 0.0,
            alignment: Alignment::new(),
            filter: EchoFilter::new(),
            begin: None,
            suppressor: Suppressor::new(),
            was_known: false,
            quiet: TAIL,
            since: 0,
            wrong: 0,
            sought: 0,
            found: 0,
            powers: (0.0, 0.0),
            stretch: (0.0, 0.0, 0),
            lowered_db: 0.0,
        }
    }

    /// Skips input without an echo, of which nothing is kept.
    pub(crate) fn skip(&mut self, samples: usize) {
        self.advance(samples as i64);
        self.played.drop_before(self.position + self.warp as i64);
    }

    /// Moves the position by samples of the input, which may go back.
    pub(crate) fn advance(&mut self, samples: i64) {
        self.position += samples;
        self.warp += self.drift * samples as f64;
    }

    /// Adds played samples from `position` on, in input samples.
    pub fn push_playback(&mut self, samples: &[f32], position: i64) {
        self.played.push(samples, position);
        // What comes late was read as silence; its echo is still to come.
        let read = self.position + self.warp as i64;
        let late = usize::try_from(read - position).unwrap_or(0);
        if let Some(from) = KEPT.checked_sub(late) {
            for (to, sample) in self.reference.range_mut(from..).zip(samples) {
                *to = finite(*sample);
            }
        }
    }

    /// Drops the playback from `position` on: it was cleared.
    pub fn clear_playback(&mut self, position: i64) {
        self.played.truncate(position);
    }

    /// Number of input samples so far.
    pub fn position(&self) -> i64 {
        self.position + self.pending.len() as i64
    }

    /// Delay of the echo in samples, if one was found.
    pub fn delay(&self) -> Option<usize> {
        self.begin.map(|begin| begin + BEFORE)
    }

    /// True if no echo was found for a while: the input passes until one is.
    pub(crate) fn is_unlikely(&self) -> bool {
        self.begin.is_none() && self.sought > UNLIKELY
    }

    /// Drops the samples of an incomplete block.
    pub(crate) fn drop_pending(&mut self) {
        self.advance(self.pending.len() as i64);
        self.pending.clear();
    }

    /// Takes input, and appends whole blocks without the echo to `out`, and to `plain` the same as it is until the path of the echo is known.
    pub fn process(&mut self, input: &[f32], out: &mut Vec<f32>, plain: &mut Vec<f32>) {
        let mut rest = input;
        while !rest.is_empty() {
            let (taken, after) = rest.split_at(rest.len().min(BLOCK - self.pending.len()));
            self.pending.extend(taken.iter().map(|sample| finite(*sample)));
            rest = after;
            if let Ok(block) = <&[f32; BLOCK]>::try_from(self.pending.as_slice()) {
                let block = *block;
                self.pending.clear();
                let cleaned = self.block(&block);
                out.extend_from_slice(&cleaned);
                plain.extend_from_slice(&self.plain(&cleaned));
            }
        }
    }

    fn block(&mut self, input: &[f32; BLOCK]) -> [f32; BLOCK] {
        let mut played = [0.0; BLOCK];
        for sample in &mut played {
            *sample = self.played.at(self.position as f64 + self.warp);
            self.position += 1;
            self.warp += self.drift;
        }
        self.played.drop_before(self.position + self.warp as i64);
        replace(&mut self.input, input);
        replace(&mut self.reference, &played);
        self.quiet = if power(&played) > AUDIBLE { 0 } else { self.quiet.saturating_add(1) };
        self.sought += u32::from(self.quiet == 0);
        let mut out = [0.0; BLOCK];
        if self.quiet >= TAIL {
            self.suppressor.pass(input, &mut out);
            return out;
        }
        // Lost packets are silent to the last bit.
        let is_lost = input.iter().all(|sample| *sample == 0.0);
        self.since += 1;
        if self.since >= EVERY && !is_lost {
            self.since = 0;
            self.align();
        }
        let Some(begin) = self.begin else {
            if self.is_unlikely() {
                self.suppressor.reset();
                self.suppressor.pass(input, &mut out);
            } else {
                let block = Block { input, cleaned: input, echo: None, played: &played };
                self.suppressor.suppress(block, is_lost, &mut out);
            }
            return out;
        };
        let (mut echo, mut cleaned) = ([0.0; BLOCK], [0.0; BLOCK]);
        let reference = self.reference_block(begin, 0);
        self.filter.predict(&reference, &mut echo);
        for (cleaned, (input, echo)) in cleaned.iter_mut().zip(input.iter().zip(&echo)) {
            *cleaned = input - echo;
        }
        let (before, after) = (power(input), power(&cleaned));
        if is_lost || !after.is_finite() {
            cleaned = *input;
            if !is_lost {
                self.forget_path();
            }
        } else {
            if after < 4.0 * before {
                self.filter.adapt(&cleaned);
            }
            self.wrong = if after > before.max(AUDIBLE) { self.wrong + 1 } else { 0 };
            if self.wrong >= WRONG {
                self.wrong = 0;
                self.filter.loosen(self.filter.gain().max(1e-3));
            }
            if after > before {
                cleaned = *input;
            }
        }
        if before > AUDIBLE {
            self.note_lowered(before, power(&cleaned));
        }
        let block = Block { input, cleaned: &cleaned, echo: Some(&echo), played: &played };
        self.suppressor.suppress(block, is_lost, &mut out);
        self.powers.0 += f64::from(before);
        self.powers.1 += f64::from(power(&out));
        out
    }

    /// Notes the powers of an audible block before and after the filter.
    fn note_lowered(&mut self, before: f32, after: f32) {
        let (all, left, blocks) = &mut self.stretch;
        *all += f64::from(before);
        *left += f64::from(after);
        *blocks += 1;
        if *blocks == STRETCH {
            self.lowered_db = self.lowered_db.max(10.0 * (*all / left.max(1e-12)).log10() as f32);
            self.stretch = (0.0, 0.0, 0);
        }
    }

    /// Returns the plain output beside `out`, the output for the latest block.
    fn plain(&mut self, out: &[f32; BLOCK]) -> [f32; BLOCK] {
        let is_known = self.begin.is_some();
        let was_known = std::mem::replace(&mut self.was_known, is_known);
        let unsuppressed = self.suppressor.unsuppressed();
        std::array::from_fn(|at| {
            let rise = (at as f32 + 0.5) / BLOCK as f32;
            let share = match (was_known, is_known) {
                (false, false) => 0.0,
                (false, true) => rise,
                (true, false) => 1.0 - rise,
                (true, true) => 1.0,
            };
            unsuppressed[at] + share * (out[at] - unsuppressed[at])
        })
    }

    /// Compares the latest input with what was played.
    fn align(&mut self) {
        let near = self.input.range(REPLAYED - WINDOW..);
        if near.clone().map(|sample| sample * sample).sum::<f32>() < 2.0 * AUDIBLE * WINDOW as f32 {
            return;
        }
        let far = self.reference.range(KEPT - WINDOW - LONGEST..);
        match self.alignment.compare(near.copied(), far.copied(), self.position as f64) {
            Found::Nothing => {}
            Found::Same => {
                (self.found, self.sought) = (self.found + 1, 0);
                let Some(drift) = self.alignment.drift() else { return };
                self.alignment.restart_drift();
                let drift = (self.drift - drift).clamp(-MOST_DRIFT, MOST_DRIFT);
                if (drift - self.drift).abs() > LEAST_DRIFT {
                    self.drift = drift;
                    self.filter.loosen(0.03 * self.filter.gain());
                }
            }
            Found::New(delay) => {
                (self.found, self.sought) = (self.found + 1, 0);
                self.begin = Some(delay.saturating_sub(BEFORE));
                self.suppressor.reset_filter();
                self.learn();
            }
        }
    }

    /// Teaches a new filter the input so far.
    fn learn(&mut self) {
        let Some(begin) = self.begin else { return };
        let heard = self.input.range(REPLAYED - WINDOW..).map(|sample| sample * sample).sum::<f32>();
        let from = KEPT - WINDOW - begin;
        let played = self.reference.range(from..from + WINDOW).map(|sample| sample * sample).sum::<f32>();
        self.filter.reset((heard / played.max(1e-6)).clamp(1e-4, 4.0));
        let (mut echo, mut error) = ([0.0; BLOCK], [0.0; BLOCK]);
        // The current block follows.
        for ago in (1..REPLAYED / BLOCK + PARTITIONS).rev() {
            let reference = self.reference_block(begin, ago);
            self.filter.predict(&reference, &mut echo);
            let Some(from) = REPLAYED.checked_sub((ago + 1) * BLOCK) else { continue };
            let input = self.input.range(from..from + BLOCK);
            let mut is_lost = true;
            for (error, (input, echo)) in error.iter_mut().zip(input.zip(&echo)) {
                is_lost &= *input == 0.0;
                *error = input - echo;
            }
            if !is_lost {
                self.filter.adapt(&error);
            }
        }
    }

    /// Block of the reference at `delay`, `ago` blocks before the newest.
    fn reference_block(&self, delay: usize, ago: usize) -> [f32; BLOCK] {
        let from = KEPT.saturating_sub((ago + 1) * BLOCK + delay);
        let mut block = [0.0; BLOCK];
        block.iter_mut().zip(self.reference.range(from..)).for_each(|(to, from)| *to = *from);
        block
    }

    /// Begins an answer of a call.
    pub(crate) fn begin_answer(&mut self) {
        self.quiet = 0;
        self.powers = (0.0, 0.0);
        self.stretch = (0.0, 0.0, 0);
        self.lowered_db = 0.0;
    }

    /// Forgets the path of the echo.
    pub(crate) fn forget_path(&mut self) {
        self.begin = None;
        self.alignment.reset();
        self.suppressor.reset_filter();
    }
}

/// Mean square of a block.
fn power(block: &[f32; BLOCK]) -> f32 {
    block.iter().map(|sample| sample * sample).sum::<f32>() / BLOCK as f32
}

/// Replaces the oldest samples by a block.
fn replace(kept: &mut VecDeque<f32>, block: &[f32; BLOCK]) {
    kept.drain(..BLOCK);
    kept.extend(block);
}
