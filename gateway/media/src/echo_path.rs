//! Echo path of one call: gain and delay of our playback in the caller's input, estimated from the levels of both.
//!
//! The input is never quieter than the echo in it; a speaking caller only makes it louder. The estimator takes, for each delay, a low
//! quantile of the ratio of input to playback over the last 2 s. At the delay of the echo this quantile is the gain of the echo; at
//! other delays it is lower, because loud input meets quiet playback. Steady noise is subtracted first.

use std::collections::VecDeque;

/// Number of candidate delays, in steps.
pub(crate) const LAGS: usize = 26;
/// Gain before the first estimate, -9 dB: a loudspeaker beside a microphone.
pub(crate) const DEFAULT_GAIN: f32 = 0.35;
/// Window in steps of playback, 2 s: the estimate follows an automatic gain within 1 s.
const STEPS: usize = 100;
/// Steps before the first estimate, 400 ms, and between two estimates.
const LEAST: usize = 20;
const EVERY: usize = 5;
/// Steps after which the estimate is settled, 0.9 s.
const SETTLED: usize = 45;
/// Share of the ratios below the estimate. The caller may speak for the rest of the time.
const QUANTILE: f32 = 0.4;
/// Minimum playback level as a share of its mean: below it, noise and reverberation prevail.
const LOUD: f32 = 0.5;
/// Minimum audible level, -60 dB.
const FLOOR: f32 = 1e-3;
/// Maximum gain of an echo: if input is louder, the caller repeats the played speech.
const LOUDEST: f32 = 1.5;

/// Current estimate of the echo.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EchoEstimate {
    /// Ratio of the echo level to the playback level.
    pub gain: f32,
    /// Delay in steps; `None` before the first estimate.
    pub lag: Option<usize>,
    /// First of the longest delays of which nothing is known yet: too little has been played before them. An echo may still come after
    /// any of them.
    pub unknown_from: usize,
}

/// Estimator of the echo path of one call.
#[derive(Debug, Clone)]
pub(crate) struct EchoPathEstimator {
    /// Latest steps with playback: the input level, and the playback level for each delay.
    steps: VecDeque<(f32, [f32; LAGS])>,
    /// Steps since the last estimate.
    since: usize,
    echo: EchoEstimate,
    /// Lowest input level in the window.
    noise: f32,
}

impl Default for EchoPathEstimator {
    fn default() -> Self {
        Self {
            steps: VecDeque::new(),
            since: 0,
            echo: EchoEstimate { gain: DEFAULT_GAIN, lag: None, unknown_from: 0 },
            noise: 0.0,
        }
    }
}

impl EchoPathEstimator {
    /// Adds a step: `near` is the input level, `far` the playback level for each delay.
    pub fn step(&mut self, near: f32, far: &[f32; LAGS]) {
        if far.iter().all(|level| *level < FLOOR) || !near.is_finite() {
            return;
        }
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back((near, *far));
        self.since += 1;
        if self.since >= EVERY && self.steps.len() >= LEAST {
            self.since = 0;
            self.update_estimate();
        }
    }

    /// True if there was enough playback for a stable estimate.
    pub fn is_settled(&self) -> bool {
        self.steps.len() >= SETTLED
    }

    /// Level of steady noise in the input.
    pub fn noise(&self) -> f32 {
        self.noise
    }

    /// Current estimate of the echo.
    pub fn estimate(&self) -> EchoEstimate {
        self.echo
    }

    fn update_estimate(&mut self) {
        let noise = self.steps.iter().map(|(near, _)| *near).fold(f32::INFINITY, f32::min);
        self.noise = noise;
        let mut ratios = Vec::with_capacity(STEPS);
        let mut found: Option<EchoEstimate> = None;
        let mut unknown_from = 0;
        for lag in 0..LAGS {
            let mean = self.steps.iter().map(|(_, far)| far[lag]).sum::<f32>() / self.steps.len() as f32;
            let loud = (mean * LOUD).max(FLOOR);
            ratios.clear();
            let louder = self.steps.iter().filter(|(_, far)| far[lag] >= loud);
            // Powers add, not levels.
            ratios.extend(louder.map(|(near, far)| (near * near - noise * noise).max(0.0).sqrt() / far[lag]));
            if ratios.len() < LEAST / 2 {
                continue;
            }
            unknown_from = lag + 1;
            let at = (ratios.len() as f32 * QUANTILE) as usize;
            let (_, gain, _) = ratios.select_nth_unstable_by(at, f32::total_cmp);
            if found.is_none_or(|found| *gain > found.gain) {
                found = Some(EchoEstimate { gain: gain.min(LOUDEST), lag: Some(lag), unknown_from: 0 });
            }
        }
        // After the window's length every delay has had its chance.
        let unknown_from = if self.steps.len() < STEPS { unknown_from } else { LAGS };
        self.echo = EchoEstimate { unknown_from, ..found.unwrap_or(self.echo) };
    }
}

#[cfg(test)]
mod tests {
    use repartee_testkit::random::Random;

    use super::*;

    /// Estimate after `steps` of random playback levels, with an echo of `gain` after `lag` steps and a simultaneous `voice`.
    fn after(steps: usize, gain: f32, lag: usize, mut voice: impl FnMut(usize) -> f32) -> EchoEstimate {
        let (mut path, mut random) = (EchoPathEstimator::default(), Random::new(3));
        let played: Vec<f32> = (0..steps + LAGS).map(|_| 0.2 * random.unit() as f32).collect();
        for step in 0..steps {
            let far = std::array::from_fn(|lag| played[step + LAGS - 1 - lag]);
            path.step((gain * far[lag]).hypot(voice(step)), &far);
        }
        path.estimate()
    }

    #[test]
    fn gain_and_delay_are_found() {
        for (gain, lag) in [(0.05, 2), (0.2, 9), (0.5, 20), (1.0, 5)] {
            let echo = after(60, gain, lag, |_| 0.001);
            assert_eq!(echo.lag, Some(lag));
            assert!((gain * 0.95..gain * 1.05).contains(&echo.gain), "{gain}: {echo:?}");
        }
    }

    #[test]
    fn headphones_leave_no_echo() {
        let mut random = Random::new(4);
        let echo = after(100, 0.0, 0, |_| 0.01 + 0.002 * random.unit() as f32);
        assert!(echo.gain < 0.06, "{echo:?}");
    }

    #[test]
    fn callers_who_speak_are_no_echo() {
        let mut random = Random::new(5);
        // As loud as the playback, in four of ten steps.
        let echo = after(200, 0.05, 6, |step| if step % 10 < 4 { 0.2 * random.unit() as f32 } else { 0.001 });
        assert!(echo.gain < 0.1, "{echo:?}");
    }

    #[test]
    fn gain_that_changes_is_followed() {
        let (mut path, mut random) = (EchoPathEstimator::default(), Random::new(6));
        let played: Vec<f32> = (0..300).map(|_| 0.2 * random.unit() as f32).collect();
        for step in LAGS..300 {
            let far = std::array::from_fn(|lag| played[step - lag]);
            path.step(if step < 200 { 0.1 } else { 0.6 } * far[4], &far);
        }
        let echo = path.estimate();
        assert!((0.5..0.7).contains(&echo.gain) && echo.lag == Some(4), "{echo:?}");
    }

    #[test]
    fn nothing_is_known_at_first() {
        assert_eq!(after(10, 0.01, 3, |_| 0.0), EchoEstimate { gain: DEFAULT_GAIN, lag: None, unknown_from: 0 });
        let mut silent = EchoPathEstimator::default();
        (0..1_000).for_each(|_| silent.step(0.1, &[0.0; LAGS]));
        assert_eq!(silent.estimate().lag, None, "silence tells nothing");
    }
}
