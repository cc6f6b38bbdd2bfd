//! Echo guard: prevents the echo of our playback in the caller's microphone from counting as speech.
//!
//! A microphone near a loudspeaker picks up every word, about 100 ms later and quieter. Browsers and telephones cancel most of
//! this echo; the rest must not interrupt the response. `echo_path` estimates gain and delay from the levels of input and playback:
//! input no louder than the expected echo counts as echo. The estimate follows an automatic gain or a loud loudspeaker, and
//! does not mask a quiet caller with headphones.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::echo_path::{DEFAULT_GAIN, EchoEstimate, EchoPathEstimator, LAGS};
use super::level::rms;
use super::playout::MAX_PAUSE;

/// Resolution of the recorded levels.
const STEP: Duration = Duration::from_millis(20);
/// Maximum delay between playback and its echo in the input: the room, the caller's buffers and the network.
const TAIL: Duration = Duration::from_millis(500);
/// Maximum number of recorded steps, 10 minutes; later playback is ignored.
const MAX_STEPS: usize = 30_000;
/// Age up to which played levels are kept: the input arrives in pieces, and each part needs the tail before it.
const KEPT: Duration = Duration::from_millis(1_000);
/// Steps around the echo's delay whose playback is audible in one step of input: before it, because the delay is approximate, and
/// after it, because rooms ring.
const BEFORE: usize = 1;
const RING: usize = 2;
/// Decay factor of reverberation per step, 60 dB in a third of a second; and its maximum length in steps.
const DECAY: f32 = 0.65;
const TAIL_STEPS: usize = 10;
/// Margin of the echo above its estimate, 3 dB: a voice's spectrum changes from word to word, and rooms are not flat.
const MARGIN: f32 = 1.4;

/// Maximum delay of input in transit, after which it may catch up.
const LATE: Duration = Duration::from_millis(300);
/// Lead over real time from which input counts as prerecorded.
const AHEAD: Duration = Duration::from_millis(500);

/// Expected echo in the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EchoLevel {
    /// Maximum root mean square of the echo.
    pub loudest: f32,
    /// Maximum root mean square of single frames, including the room's reverberation.
    pub reverberant: f32,
    /// Root mean square of steady noise in the input.
    pub noise: f32,
    /// True if the estimates are stable.
    pub settled: bool,
}

impl EchoLevel {
    /// No echo in the input.
    pub const NONE: Self = Self { loudest: 0.0, reverberant: 0.0, noise: 0.0, settled: true };
}

/// Recent and future levels of our playback. Audio is assumed to play when pushed, without gaps except pauses.
#[derive(Debug)]
pub struct EchoGuard {
    /// Playback samples per step.
    step: usize,
    /// Root mean square of each step.
    levels: VecDeque<f32>,
    /// Start of playback of the first level.
    begin: Option<Instant>,
    /// Samples of an incomplete step.
    pending: Vec<f32>,
    /// Incomplete step of the input: number of samples, and the sum of their squares.
    input: (usize, f32),
    path: EchoPathEstimator,
    /// Start of a pause of the playback.
    paused: Option<Instant>,
    /// End of the input, if it was spoken in real time.
    input_until: Option<Instant>,
}

impl EchoGuard {
    /// Creates a guard for playback at `rate` Hz, silent so far.
    pub fn new(rate: u32) -> Self {
        let step = (u128::from(rate) * STEP.as_millis() / 1_000).max(1) as usize;
        let (levels, pending) = (VecDeque::new(), Vec::new());
        Self {
            step,
            levels,
            begin: None,
            pending,
            input: (0, 0.0),
            path: EchoPathEstimator::default(),
            paused: None,
            input_until: None,
        }
    }

    /// Adds audio that plays after all earlier audio, or at `now`.
    pub fn push_playback(&mut self, samples: &[f32], now: Instant) {
        self.end_pause(now);
        self.drop_before(now);
        if self.end().is_none_or(|end| end + KEPT < now) {
            self.levels.clear();
            self.begin = Some(now);
        }
        // Fills a gap shorter than the tail with silence.
        while self.paused.is_none() && self.end().is_some_and(|end| end + STEP <= now) {
            self.levels.push_back(0.0);
        }
        self.pending.extend_from_slice(samples);
        let whole = self.pending.len() / self.step * self.step;
        for step in self.pending.drain(..whole).as_slice().chunks_exact(self.step) {
            if self.levels.len() < MAX_STEPS {
                self.levels.push_back(rms(step));
            }
        }
    }

    /// Drops the audio that is unplayed at `now`.
    pub fn clear(&mut self, now: Instant) {
        self.drop_before(now);
        let played = self.paused.take().unwrap_or(now);
        let played = self.begin.map_or(0, |begin| steps(played.saturating_duration_since(begin)) + 1);
        self.levels.truncate(played);
        self.pending.clear();
    }

    /// Pauses the playback at `now` until [`Self::resume`], for [`MAX_PAUSE`] at most.
    pub fn pause(&mut self, now: Instant) {
        self.paused.get_or_insert(now);
    }

    /// Resumes the playback at `now`.
    pub fn resume(&mut self, now: Instant) {
        let (Some(paused), Some(begin)) = (self.paused.take(), self.begin) else { return };
        // The current step plays to its end.
        let at = steps(paused.saturating_duration_since(begin)) + 1;
        if at >= self.levels.len() {
            return;
        }
        let behind = self.levels.split_off(at);
        let silent = steps(now.min(paused + MAX_PAUSE).saturating_duration_since(paused));
        self.levels.extend(std::iter::repeat_n(0.0, silent));
        self.levels.extend(behind);
    }

    fn end_pause(&mut self, now: Instant) {
        if let Some(end) = self.paused.map(|paused| paused + MAX_PAUSE).filter(|end| *end <= now) {
            self.resume(end);
        }
    }

    /// Adds input at `rate` Hz that arrived at `now`, and updates the estimate of the echo path.
    pub fn push_input(&mut self, samples: &[f32], rate: u32, now: Instant) {
        let length = Duration::from_secs_f64(samples.len() as f64 / f64::from(rate.max(1)));
        // The start of a piece is at least as old as the piece is long, and it may have been delayed in transit.
        let earliest = now.checked_sub(length.max(LATE)).unwrap_or(now);
        self.input_until = Some(self.input_until.map_or(earliest, |until| until.max(earliest)) + length);
        if self.begin.is_none() || self.is_ahead(now) {
            return;
        }
        self.end_pause(now);
        let step = (u128::from(rate) * STEP.as_millis() / 1_000).max(1) as usize;
        let mut left = samples.len();
        let mut rest = samples;
        while !rest.is_empty() {
            let (filled, energy) = &mut self.input;
            let (piece, after) = rest.split_at(rest.len().min(step.saturating_sub(*filled).max(1)));
            *filled += piece.len();
            *energy += piece.iter().filter(|sample| sample.is_finite()).map(|sample| sample * sample).sum::<f32>();
            (left, rest) = (left - piece.len(), after);
            if *filled < step {
                break;
            }
            let level = (*energy / *filled as f32).sqrt();
            self.input = (0, 0.0);
            // The steps of one piece have different times.
            let ago = Duration::from_secs_f64(left as f64 / f64::from(rate.max(1)));
            let Some(at) = now.checked_sub(ago) else { continue };
            let far = std::array::from_fn(|lag| self.level_at(at, lag));
            self.path.step(level, &far);
        }
    }

    /// True if the input arrives faster than real time: it is prerecorded and contains no echo of the current playback.
    pub fn is_ahead(&self, now: Instant) -> bool {
        self.input_until.is_some_and(|until| until > now + AHEAD)
    }

    /// Returns the expected echo of our playback in the input at `now`; `None` if there can be none.
    pub fn echo_level(&mut self, now: Instant) -> Option<EchoLevel> {
        if self.is_ahead(now) {
            return None;
        }
        self.end_pause(now);
        self.drop_before(now);
        let (begin, end) = (self.begin?, self.end()?);
        if end + TAIL < now || begin > now {
            return None;
        }
        let EchoEstimate { gain, lag, unknown_from } = self.path.estimate();
        let lags = lag.map_or(0..LAGS, |lag| lag.saturating_sub(BEFORE)..lag + RING + 1);
        // After that, the room's reverberation decays.
        let tail = lag.into_iter().flat_map(|lag| (1..=TAIL_STEPS).map(move |step| (lag + RING + step, step)));
        let tail = tail.map(|(lag, step)| self.level_at(now, lag) * DECAY.powi(step as i32));
        let played = lags.map(|lag| self.level_at(now, lag)).fold(0.0, f32::max);
        let unknown = (unknown_from..LAGS).map(|lag| self.level_at(now, lag)).fold(0.0, f32::max) * DEFAULT_GAIN;
        let [loudest, reverberant] =
            [played, tail.fold(played, f32::max)].map(|played| (played * gain).max(unknown) * MARGIN);
        let (noise, settled) = (self.path.noise(), self.path.is_settled());
        Some(EchoLevel { loudest, reverberant, noise, settled })
    }

    /// Returns the level played `lag` steps before `at`.
    fn level_at(&self, at: Instant, lag: usize) -> f32 {
        let since = |at: Instant| self.begin.and_then(|begin| at.checked_duration_since(begin));
        let lagged = STEP * lag as u32;
        let is_paused = self.paused.is_some_and(|paused| at.checked_sub(lagged).is_some_and(|at| at > paused + STEP));
        let step = since(at).filter(|_| !is_paused).and_then(|played| steps(played).checked_sub(lag));
        step.and_then(|step| self.levels.get(step)).copied().unwrap_or(0.0)
    }

    fn end(&self) -> Option<Instant> {
        self.begin.map(|begin| begin + STEP * self.levels.len() as u32)
    }

    fn drop_before(&mut self, now: Instant) {
        let Some(begin) = self.begin else { return };
        let past = steps(now.saturating_duration_since(begin).saturating_sub(KEPT)).min(self.levels.len());
        self.levels.drain(..past);
        self.begin = if self.levels.is_empty() { None } else { Some(begin + STEP * past as u32) };
    }
}

fn steps(duration: Duration) -> usize {
    (duration.as_micros() / STEP.as_micros()) as usize
}

#[cfg(test)]
mod tests {
    use repartee_testkit::random::Random;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn constant(level: f32, ms: usize) -> Vec<f32> {
        vec![level; ms]
    }

    /// Playback level derived from the guard's expected echo before an estimate.
    fn played(guard: &mut EchoGuard, now: Instant) -> Option<f32> {
        guard.echo_level(now).map(|level| (level.loudest / MARGIN / DEFAULT_GAIN * 1_000.0).round() / 1_000.0)
    }

    #[test]
    fn echo_may_come_for_the_tail() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        assert_eq!(played(&mut guard, start), None);
        guard.push_playback(&constant(0.125, 1_000), start);
        guard.push_playback(&constant(0.75, 1_000), start + 10 * MS);
        assert_eq!(played(&mut guard, start + 900 * MS), Some(0.125));
        assert_eq!(played(&mut guard, start + 1_100 * MS), Some(0.75));
        assert_eq!(played(&mut guard, start + 2_400 * MS), Some(0.75));
        assert_eq!(played(&mut guard, start + 2_600 * MS), None);
    }

    #[test]
    fn cleared_playback_leaves_only_its_tail() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        guard.push_playback(&constant(0.125, 1_000), start);
        guard.push_playback(&constant(0.75, 1_000), start);
        guard.clear(start + 500 * MS);
        assert_eq!(played(&mut guard, start + 900 * MS), Some(0.125), "the tail of what was played");
        assert_eq!(played(&mut guard, start + 1_200 * MS), None);
        guard.push_playback(&constant(0.25, 100), start + 5_000 * MS);
        assert_eq!(played(&mut guard, start + 5_000 * MS), Some(0.25));
    }

    #[test]
    fn paused_playback_goes_on_later() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        guard.push_playback(&constant(0.125, 1_000), start);
        guard.push_playback(&constant(0.75, 1_000), start);
        guard.pause(start + 800 * MS);
        assert_eq!(played(&mut guard, start + 900 * MS), Some(0.125));
        assert_eq!(guard.level_at(start + 900 * MS, 0), 0.0, "nothing plays");
        assert_eq!(guard.level_at(start + 900 * MS, 6), 0.125, "its echo is still to come");
        guard.resume(start + 1_100 * MS);
        assert_eq!(guard.level_at(start + 1_100 * MS, 0), 0.0);
        assert_eq!(guard.level_at(start + 1_180 * MS, 0), 0.125, "a fifth was left to play");
        assert_eq!(guard.level_at(start + 1_340 * MS, 0), 0.75);
        assert_eq!(played(&mut guard, start + 2_700 * MS), Some(0.75));
        assert_eq!(played(&mut guard, start + 2_900 * MS), None);
    }

    #[test]
    fn pauses_end_by_themselves() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        guard.push_playback(&constant(0.125, 2_000), start);
        guard.pause(start + 500 * MS);
        assert_eq!(played(&mut guard, start + 1_200 * MS), Some(0.125));
        assert_eq!(guard.level_at(start + 1_200 * MS, 0), 0.125);
        guard.pause(start + 1_200 * MS);
        guard.clear(start + 1_300 * MS);
        assert_eq!(guard.level_at(start + 1_300 * MS, 0), 0.0);
        guard.push_playback(&constant(0.5, 1_000), start + 5_000 * MS);
        assert_eq!(guard.level_at(start + 5_100 * MS, 0), 0.5, "a cleared playback is not paused");
    }

    #[test]
    fn gaps_between_pieces_are_silence() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        guard.push_playback(&constant(0.5, 100), start);
        guard.push_playback(&constant(0.5, 100), start + 400 * MS);
        assert_eq!(played(&mut guard, start + 610 * MS), Some(0.5));
        assert_eq!(played(&mut guard, start + 950 * MS), Some(0.5), "the second piece came after the gap");
        assert_eq!(played(&mut guard, start + 1_050 * MS), None);
    }

    /// Signal whose level changes at each step, like a voice.
    fn wave(samples: usize) -> Vec<f32> {
        let mut random = Random::new(8);
        let levels: Vec<f32> = (0..samples.div_ceil(20)).map(|_| 0.3 * random.unit() as f32).collect();
        (0..samples).map(|sample| levels[sample / 20]).collect()
    }

    #[test]
    fn pieces_of_any_size_give_the_same_estimate() {
        let start = Instant::now();
        let far = wave(3_000);
        let estimate = |piece: usize| {
            let mut guard = EchoGuard::new(1_000);
            guard.push_playback(&far, start);
            // An echo of a quarter of the level, 100 ms later.
            let near: Vec<f32> = (0..3_000).map(|at| if at < 100 { 0.0 } else { far[at - 100] / 4.0 }).collect();
            for (number, near) in near.chunks(piece).enumerate() {
                guard.push_input(near, 1_000, start + ((number * piece + near.len()) as u32) * MS);
            }
            guard.path.estimate()
        };
        for piece in [20, 7, 60, 400] {
            let EchoEstimate { gain, lag, .. } = estimate(piece);
            assert!((0.23..0.27).contains(&gain) && lag == Some(6), "{piece}: {gain} {lag:?}");
        }
    }

    #[test]
    fn late_echo_of_a_first_answer_is_expected() {
        let (start, far) = (Instant::now(), wave(3_000));
        for delay in [40, 120, 220, 320, 460] {
            let mut guard = EchoGuard::new(1_000);
            guard.push_playback(&far, start);
            for at in (20..3_000).step_by(20) {
                let near: Vec<f32> =
                    (at - 20..at).map(|at| if at < delay { 0.0 } else { far[at - delay] / 10.0 }).collect();
                let now = start + at as u32 * MS;
                guard.push_input(&near, 1_000, now);
                let EchoLevel { loudest, .. } = guard.echo_level(now).unwrap();
                assert!(rms(&near) <= loudest, "{} above {loudest} at {at} ms, {delay} ms behind", rms(&near));
            }
        }
    }

    #[test]
    fn sound_faster_than_time_is_no_echo() {
        let start = Instant::now();
        // Pieces of `ms`, which arrive every `every` ms.
        let echoed = |ms: usize, every: u32| {
            let mut guard = EchoGuard::new(1_000);
            guard.push_playback(&constant(0.5, 9_000), start);
            for number in 1..=10 {
                guard.push_input(&constant(0.1, ms), 1_000, start + number * every * MS);
            }
            guard.echo_level(start + 10 * every * MS).is_some()
        };
        assert_eq!([echoed(100, 100), echoed(800, 800), echoed(60, 20)], [true; 3]);
        assert_eq!([echoed(300, 20), echoed(800, 0)], [false; 2]);
    }

    #[test]
    fn recorded_levels_are_bounded() {
        let start = Instant::now();
        let mut guard = EchoGuard::new(1_000);
        for _ in 0..100 {
            guard.push_playback(&constant(0.5, 10_000), start);
        }
        assert_eq!(guard.levels.len(), MAX_STEPS);
    }
}
