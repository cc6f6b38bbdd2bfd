//! The echo path of one call: how loud our playback comes back in the caller's input, and how late, estimated from both levels.
//!
//! Input is never quieter than the echo in it, and a caller who speaks only makes it louder. So for each delay the ratio of input to
//! playback is looked at over the last seconds, and of it a low quantile: at the echo's delay that is its gain, at
//! others it is lower, because loud input meets quiet playback. Steady noise is taken off first.

use std::collections::VecDeque;

/// Delays, in steps, at which an echo is looked for.
pub(crate) const LAGS: usize = 26;
/// Gain until the echo is known, -9 dB: a loudspeaker beside a microphone.
pub(crate) const DEFAULT_GAIN: f32 = 0.35;
/// Steps of playback that are looked at, 2 s: an automatic gain is followed within one.
const STEPS: usize = 100;
/// Steps that it takes to know anything, 400 ms, and between two looks.
const LEAST: usize = 20;
const EVERY: usize = 5;
/// Steps after which the estimate is settled, 0.9 s.
const SETTLED: usize = 45;
/// The share of the ratios that lie below the estimate. A caller may speak for the rest of the time.
const QUANTILE: f32 = 0.4;
/// Playback below this share of its mean tells nothing: noise and reverberation prevail.
const LOUD: f32 = 0.5;
/// Levels below this were not heard by anybody, -60 dB.
const FLOOR: f32 = 1e-3;
/// No loudspeaker comes back louder: beyond it, the caller repeats what is played.
const LOUDEST: f32 = 1.5;

/// The echo as it is known now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EchoEstimate {
    /// Ratio of the echo's level to that of the playback.
    pub gain: f32,
    /// Its delay in steps; `None` while nothing is known.
    pub lag: Option<usize>,
}

/// The estimate of one call.
#[derive(Debug, Clone)]
pub(crate) struct EchoPathEstimator {
    /// The last steps with playback: the input's level, and by delay what was played.
    steps: VecDeque<(f32, [f32; LAGS])>,
    /// Steps since the last look.
    since: usize,
    echo: EchoEstimate,
    /// The quietest input of the last steps.
    noise: f32,
}

impl Default for EchoPathEstimator {
    fn default() -> Self {
        Self { steps: VecDeque::new(), since: 0, echo: EchoEstimate { gain: DEFAULT_GAIN, lag: None }, noise: 0.0 }
    }
}

impl EchoPathEstimator {
    /// Takes a step: the input's level, and by delay what was played.
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

    /// Whether the echo has been heard for long enough that no other estimate is to be expected soon.
    pub fn is_settled(&self) -> bool {
        self.steps.len() >= SETTLED
    }

    /// The level of steady noise in the input.
    pub fn noise(&self) -> f32 {
        self.noise
    }

    /// The echo as it is known now.
    pub fn estimate(&self) -> EchoEstimate {
        self.echo
    }

    fn update_estimate(&mut self) {
        let noise = self.steps.iter().map(|(near, _)| *near).fold(f32::INFINITY, f32::min);
        self.noise = noise;
        let mut ratios = Vec::with_capacity(STEPS);
        let mut found: Option<EchoEstimate> = None;
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
            let at = (ratios.len() as f32 * QUANTILE) as usize;
            let (_, gain, _) = ratios.select_nth_unstable_by(at, f32::total_cmp);
            if found.is_none_or(|found| *gain > found.gain) {
                found = Some(EchoEstimate { gain: gain.min(LOUDEST), lag: Some(lag) });
            }
        }
        self.echo = found.unwrap_or(self.echo);
    }
}

#[cfg(test)]
mod tests {
    use repartee_testkit::random::Random;

    use super::*;

    /// What is known after `steps` of random playback levels, of which `gain` comes back after `lag` steps, with `voice` beside it.
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
        // As loud as what is played, for four of ten steps.
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
        assert_eq!(after(10, 0.01, 3, |_| 0.0), EchoEstimate { gain: DEFAULT_GAIN, lag: None });
        let mut silent = EchoPathEstimator::default();
        (0..1_000).for_each(|_| silent.step(0.1, &[0.0; LAGS]));
        assert_eq!(silent.estimate().lag, None, "silence tells nothing");
    }
}
