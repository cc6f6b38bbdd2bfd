//! Echo canceller of a call: joins playback and input by our clock, runs only while an echo may come, and ends where none is found.

use std::time::{Duration, Instant};

use super::echo_canceller::{AUDIBLE, BLOCK, EchoCanceller, RATE};
use super::input_clock::InputClock;
use super::resample::{ResampleError, Resampler};

/// Time after the last audible playback at which the canceller pauses, in blocks: all that it keeps is silent then.
const PAUSE: u32 = 160;
/// Answers without an echo after which it ends.
const ANSWERS: u32 = 2;
/// Least audible playback that tells, in samples.
const TELLING: usize = RATE as usize;
/// Least decibels by which the filter lowers the input for half a second of an answer if there is an echo. A caller who begins to speak
/// as an echo would is taken for one, but hardly lowered.
const LOWERED_DB: f32 = 2.0;
/// Time by which playback is read later than it is due, 20 ms: the driver of a playout clock may be late.
const SLACK: f64 = 0.02 * RATE as f64;
/// Deviation of a piece of playback from the end of the last one that still continues it, in samples.
const SEAM: i64 = 2;

/// An answer that was played while the canceller ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CancelledAnswer {
    /// Decibels of the input that were removed since the echo was found; `None` without an echo.
    pub removed_db: Option<f32>,
}

/// Result of the search for an echo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EchoFinding {
    /// Not known yet.
    #[default]
    Unknown,
    /// There is an echo, which is cancelled.
    Echo,
    /// No echo so far: the input passes as it is until one is found.
    NoEcho,
    /// No echo in two answers: it is sought no more.
    Ended,
}

/// Echo canceller of one call.
#[derive(Debug, Default)]
pub struct CallEcho {
    /// The canceller, from the first audible playback on until it ends.
    canceller: Option<Box<EchoCanceller>>,
    clock: InputClock,
    /// Time of position 0.
    start: Option<Instant>,
    playback: Option<PlaybackRun>,
    /// Converter of the playback, from its rate.
    resampler: Option<(u32, Resampler)>,
    /// End of the playback of a client that plays it at once.
    plays_until: Option<Instant>,
    /// Input processed, in samples.
    processed: u64,
    phase: Phase,
    /// Audible playback of the current answer, and comparisons that had found an echo before it.
    audible: usize,
    found: u32,
    /// Answers in a row without an echo.
    without: u32,
    /// Input that is inside the canceller, in samples, and output that precedes the input.
    inside: usize,
    ahead: usize,
    /// Outputs of the last piece.
    output: Vec<f32>,
    plain: Vec<f32>,
    /// Answer that is over.
    over: Option<CancelledAnswer>,
}

/// Work of the canceller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing plays.
    #[default]
    Paused,
    /// The input passes the canceller.
    Running,
    /// No echo was found for a while: the canceller hears the input, which stays as it is, until it finds one.
    Seeking,
    /// The caller's side cancels the echo, or there is none.
    Ended,
}

/// Playback without a gap.
#[derive(Debug)]
struct PlaybackRun {
    rate: u32,
    /// Position of its begin.
    begin: i64,
    /// Samples in, at `rate`, and out.
    taken: u64,
    given: u64,
}

impl CallEcho {
    /// Creates the canceller of a call that has played nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// True while the input passes the canceller.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// True once two answers had no echo: the canceller is not used again.
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// True if the delay of the echo is known.
    pub fn is_aligned(&self) -> bool {
        self.canceller.as_ref().is_some_and(|canceller| canceller.delay().is_some())
    }

    /// Returns what the search for an echo has found.
    pub fn finding(&self) -> EchoFinding {
        match self.phase {
            Phase::Ended => EchoFinding::Ended,
            Phase::Seeking => EchoFinding::NoEcho,
            Phase::Running if self.is_aligned() => EchoFinding::Echo,
            Phase::Running | Phase::Paused => EchoFinding::Unknown,
        }
    }

    /// Returns the answer that was over at the last [`Self::begin_piece`]; only once.
    pub fn take_answer(&mut self) -> Option<CancelledAnswer> {
        self.over.take()
    }

    /// Adds samples at `rate` Hz that play from `due` on.
    pub fn push_playback(&mut self, samples: &[f32], rate: u32, due: Instant) -> Result<(), ResampleError> {
        if self.has_ended() || samples.is_empty() {
            return Ok(());
        }
        let level = samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len() as f32;
        // A broken sample is no silence.
        let is_audible = level > AUDIBLE || level.is_nan();
        if self.canceller.is_none() && !is_audible {
            return Ok(());
        }
        let position = position(*self.start.get_or_insert(due), due);
        let (processed, offset) = (self.processed as i64, self.clock.offset());
        let canceller =
            self.canceller.get_or_insert_with(|| Box::new(EchoCanceller::starting_at(processed, offset - SLACK)));
        let continues = |run: &PlaybackRun| run.rate == rate && (position - run.end()).abs() <= SEAM;
        let resampler = match self.resampler.take().filter(|(from, _)| *from == rate) {
            Some(kept) => kept,
            None => (rate, Resampler::new(rate, RATE)?),
        };
        let (_, resampler) = self.resampler.insert(resampler);
        let run = match self.playback.take().filter(continues) {
            Some(run) => self.playback.insert(run),
            None => {
                resampler.reset();
                self.playback.insert(PlaybackRun { rate, begin: position, taken: 0, given: 0 })
            }
        };
        let at = run.begin + run.given as i64;
        let converted = resampler.convert(samples)?;
        canceller.push_playback(converted, at);
        run.given += converted.len() as u64;
        run.taken += samples.len() as u64;
        if is_audible {
            self.audible += (samples.len() as u64 * u64::from(RATE) / u64::from(rate.max(1))) as usize;
            if self.phase == Phase::Paused {
                let phase = if canceller.is_unlikely() { Phase::Seeking } else { Phase::Running };
                (self.phase, self.found) = (phase, canceller.found);
                canceller.begin_answer();
                self.ahead = BLOCK;
            }
        }
        Ok(())
    }

    /// Adds samples at `rate` Hz that a client plays behind those before, or at `now` if it has none left.
    pub fn queue_playback(&mut self, samples: &[f32], rate: u32, now: Instant) -> Result<(), ResampleError> {
        let due = self.plays_until.filter(|until| *until > now).unwrap_or(now);
        self.plays_until = due.checked_add(Duration::from_secs_f64(samples.len() as f64 / f64::from(rate.max(1))));
        self.push_playback(samples, rate, due)
    }

    /// Drops the playback from `now` on: the client drops it too.
    pub fn clear_playback(&mut self, now: Instant) {
        self.plays_until = None;
        let Some((canceller, start)) = self.canceller.as_mut().zip(self.start) else { return };
        canceller.clear_playback(position(start, now));
        self.playback = None;
    }

    /// Notes input of `length` that arrived at `now`, before it is processed.
    pub fn note_input(&mut self, length: Duration, now: Instant) {
        if self.has_ended() {
            return;
        }
        let start = *self.start.get_or_insert(now);
        self.clock.arrive(length.as_secs_f64() * f64::from(RATE), position(start, now) as f64);
    }

    /// Begins a piece of the input: true if it passes the canceller, and goes to [`Self::cancel`]. Before a piece that does not, the caller
    /// takes [`Self::flush`]; the piece goes to [`Self::hear`], or to [`Self::skip`] if it was recorded before.
    pub fn begin_piece(&mut self) -> bool {
        let Some(canceller) = &mut self.canceller else { return false };
        if let Some(offset) = self.clock.correction(canceller.warp + SLACK, canceller.begin.is_some()) {
            canceller.warp = offset - SLACK;
        }
        match self.phase {
            Phase::Running | Phase::Seeking if canceller.quiet >= PAUSE => self.end_answer(),
            Phase::Running if canceller.is_unlikely() => self.phase = Phase::Seeking,
            Phase::Seeking if !canceller.is_unlikely() => self.phase = Phase::Running,
            _ => {}
        }
        self.phase == Phase::Running
    }

    /// Ends an answer whose echo can no longer come.
    fn end_answer(&mut self) {
        let Some(canceller) = &mut self.canceller else { return };
        let found = canceller.found > self.found && canceller.lowered_db >= LOWERED_DB;
        let (before, after) = canceller.powers;
        let removed_db = found.then(|| (10.0 * (before.max(1e-12) / after.max(1e-12)).log10()) as f32);
        if self.audible >= TELLING {
            self.without = if found { 0 } else { self.without + 1 };
            self.over = Some(CancelledAnswer { removed_db });
            if !found {
                canceller.forget_path();
            }
        }
        self.audible = 0;
        if self.phase == Phase::Seeking {
            canceller.drop_pending();
        }
        self.phase = if self.without >= ANSWERS { Phase::Ended } else { Phase::Paused };
        if self.has_ended() && self.inside == 0 {
            self.release();
        }
    }

    /// Takes a piece of the input at [`RATE`], and replaces it by what is ready without the echo: 10 to 20 ms less at first. Appends
    /// as much to `plain` for a listener: the same, but as it is until the path of the echo is known.
    pub fn cancel(&mut self, samples: &mut Vec<f32>, plain: &mut Vec<f32>) {
        let Some(canceller) = &mut self.canceller else { return };
        self.processed += samples.len() as u64;
        self.inside += samples.len();
        self.output.clear();
        self.plain.clear();
        canceller.process(samples, &mut self.output, &mut self.plain);
        samples.clear();
        self.give(samples, plain);
    }

    /// Hears a piece of the input at [`RATE`] that does not pass the canceller.
    pub fn hear(&mut self, samples: &[f32]) {
        let Some(canceller) = self.canceller.as_mut().filter(|_| self.phase == Phase::Seeking) else {
            return self.skip(samples.len());
        };
        self.processed += samples.len() as u64;
        self.output.clear();
        self.plain.clear();
        canceller.process(samples, &mut self.output, &mut self.plain);
        // The incomplete block has been given.
        self.ahead = BLOCK + canceller.pending.len();
    }

    /// Notes a piece of the input that has no echo and passes.
    pub fn skip(&mut self, length: usize) {
        self.processed += length as u64;
        let Some(canceller) = &mut self.canceller else { return };
        if self.phase == Phase::Seeking {
            canceller.drop_pending();
            self.ahead = BLOCK;
        }
        canceller.skip(length);
    }

    /// Appends all input that is inside the canceller to `samples`, and for a listener to `plain`.
    pub fn flush(&mut self, samples: &mut Vec<f32>, plain: &mut Vec<f32>) {
        if let Some(canceller) = &mut self.canceller
            && self.inside > 0
        {
            self.output.clear();
            self.plain.clear();
            let missing = BLOCK - canceller.pending.len();
            let padding = [0.0; 2 * BLOCK];
            let padding = &padding[..if missing < BLOCK { missing + BLOCK } else { BLOCK }];
            canceller.process(padding, &mut self.output, &mut self.plain);
            canceller.advance(-(padding.len() as i64));
            self.give(samples, plain);
            self.ahead = BLOCK;
        }
        if self.has_ended() {
            self.release();
        }
    }

    /// Frees what only a canceller needs.
    fn release(&mut self) {
        self.canceller = None;
        (self.playback, self.resampler) = (None, None);
        (self.output, self.plain) = (Vec::new(), Vec::new());
    }

    /// Appends the outputs to `samples` and `plain`, without what precedes the input or follows it.
    fn give(&mut self, samples: &mut Vec<f32>, plain: &mut Vec<f32>) {
        let dropped = self.ahead.min(self.output.len());
        self.ahead -= dropped;
        let given = dropped..self.output.len().min(dropped + self.inside);
        samples.extend_from_slice(&self.output[given.clone()]);
        plain.extend_from_slice(&self.plain[given.clone()]);
        self.inside -= given.len();
    }
}

impl PlaybackRun {
    /// Position of its end.
    fn end(&self) -> i64 {
        self.begin + (self.taken as f64 * f64::from(RATE) / f64::from(self.rate)).round() as i64
    }
}

/// Position of `at`, in samples since `start`.
fn position(start: Instant, at: Instant) -> i64 {
    let samples = |time: Duration| ((time.as_nanos() * u128::from(RATE) + 500_000_000) / 1_000_000_000) as i64;
    match at.checked_duration_since(start) {
        Some(after) => samples(after),
        None => -samples(start.saturating_duration_since(at)),
    }
}

#[cfg(test)]
#[path = "call_echo_tests.rs"]
mod tests;
