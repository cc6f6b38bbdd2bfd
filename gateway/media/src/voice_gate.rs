//! Voice gate: refuses the begin of sound that a network may take for a voice but that none makes.
//!
//! - Steady sound: a voice falls to the noise floor between syllables, and rises well above it. The floor is the lowest level of the last
//!   0.8 s, so it follows a noise that begins, and no voice begins near it.
//! - Keys: nearly all of the power is at two frequencies, one of each group of telephone keys.
//! - Tones: hum, ringing, keys and most music keep their frequencies for longer than a voice keeps its pitch ([`Tonality`]).

use std::collections::VecDeque;

use super::pitch;
use super::tonality::{Tonality, TwoPeaks};

/// Frames of the floor, 0.8 s: longer than a syllable.
const FLOOR_FRAMES: usize = 50;
/// Frames before there is a floor, 160 ms.
const FIRST_FRAMES: usize = 10;
/// Least level of a voice above the floor, in dB: many voices at once vary by less.
const ABOVE_FLOOR_DB: f32 = 9.0;
/// Frames over which the level is smoothed, 48 ms.
const SMOOTHED: usize = 3;
/// Windows of the tones, in samples: the short one hears a key of 64 ms, the long one tells 440 and 480 Hz apart.
const WINDOWS: [usize; 2] = [512, 1_024];
/// Longest window.
const RECENT: usize = pitch::WINDOW;
/// Greatest unpredicted share of a tone's power, and of that of what may be a tone.
const TONE: f32 = 0.02;
const MAYBE_TONE: f32 = 0.04;
/// Least share of two peaks in the power of what may be a tone, and in that of a telephone key.
const MAYBE_PEAKS: f32 = 0.97;
const KEY_PEAKS: f32 = 0.85;
/// Frequencies of the two groups of telephone keys as shares of the sampling rate, with 20 Hz on each side.
const KEYS: [std::ops::RangeInclusive<f32>; 2] = [677.0 / RATE..=961.0 / RATE, 1_189.0 / RATE..=1_653.0 / RATE];
/// Sampling rate, in Hz.
const RATE: f32 = 16_000.0;
/// Frames in a row that make a tone, and frames that count as one after it: 32 and 96 ms.
const TONE_FRAMES: usize = 2;
const AFTER_TONE: usize = 6;
/// Least periodicity of a voice with a pitch.
const PITCHED: f32 = 0.6;

/// Gate of one stream in frames of 256 samples at 16 kHz.
#[derive(Debug)]
pub(crate) struct VoiceGate {
    /// Latest samples, for the windows.
    recent: Vec<f32>,
    /// Powers of the latest frames, for the smoothed level.
    powers: VecDeque<f32>,
    /// Smoothed levels of the floor's frames, in dBFS.
    levels: VecDeque<f32>,
    tonalities: [Tonality; 2],
    /// Tonal frames in a row.
    tonal: usize,
    /// True if the latest frame may be one.
    may_be_tone: bool,
    /// Frames that still count as a tone.
    refused: usize,
    /// True if a voice may begin with the latest frame.
    may_begin: bool,
}

impl Default for VoiceGate {
    fn default() -> Self {
        Self {
            recent: vec![0.0; RECENT],
            powers: VecDeque::with_capacity(SMOOTHED + 1),
            levels: VecDeque::with_capacity(FLOOR_FRAMES + 1),
            tonalities: WINDOWS.map(Tonality::new),
            tonal: 0,
            may_be_tone: false,
            refused: 0,
            may_begin: false,
        }
    }
}

impl VoiceGate {
    /// Adds a frame of at most [`RECENT`] finite samples.
    pub fn push(&mut self, frame: &[f32]) {
        // Both keep state, so both get every frame.
        let (rises, sings) = (self.rises_above_floor(frame), self.is_tone(frame));
        self.may_begin = rises && !sings;
    }

    /// True if a voice may begin with the latest frame.
    pub fn may_begin(&self) -> bool {
        self.may_begin
    }

    /// True if the latest frame may be the begin of a tone.
    pub fn may_be_tone(&self) -> bool {
        self.may_be_tone
    }

    /// True if the latest 64 ms have the pitch of a voice.
    pub fn is_pitched(&self) -> bool {
        pitch::periodicity(&self.recent) >= PITCHED
    }

    fn rises_above_floor(&mut self, frame: &[f32]) -> bool {
        let power = frame.iter().map(|sample| sample * sample).sum::<f32>() / frame.len().max(1) as f32;
        push_bounded(&mut self.powers, power, SMOOTHED);
        // -100 dBFS is silence.
        let level = 10.0 * (self.powers.iter().sum::<f32>() / self.powers.len() as f32 + 1e-10).log10();
        let floor = self.levels.iter().copied().fold(level, f32::min);
        push_bounded(&mut self.levels, level, FLOOR_FRAMES);
        self.levels.len() < FIRST_FRAMES || level - floor >= ABOVE_FLOOR_DB
    }

    fn is_tone(&mut self, frame: &[f32]) -> bool {
        self.recent.drain(..frame.len().min(RECENT));
        self.recent.extend_from_slice(frame);
        let recent = &self.recent;
        let shares = self.tonalities.each_mut().map(|tonality| tonality.unpredicted(recent));
        let share = shares[0].min(shares[1]);
        let TwoPeaks { share: peaks, frequencies } = self.tonalities[1].two_peaks();
        let is_key = peaks > KEY_PEAKS && KEYS.iter().zip(&frequencies).all(|(group, at)| group.contains(at));
        self.may_be_tone = share < MAYBE_TONE || peaks > MAYBE_PEAKS;
        self.tonal = if share < TONE || is_key { self.tonal + 1 } else { 0 };
        self.refused = if self.tonal >= TONE_FRAMES { AFTER_TONE } else { self.refused.saturating_sub(1) };
        self.refused > 0
    }
}

fn push_bounded(queue: &mut VecDeque<f32>, value: f32, most: usize) {
    queue.push_back(value);
    if queue.len() > most {
        queue.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use repartee_testkit::random::Random;
    use repartee_testkit::signal::sine;

    use super::*;
    use crate::testdata::speech;

    const FRAME: usize = 256;

    /// True for frames with which a voice may begin.
    fn gated(sound: &[f32]) -> Vec<bool> {
        let mut gate = VoiceGate::default();
        let mut push = |frame: &[f32]| {
            gate.push(frame);
            gate.may_begin()
        };
        sound.chunks_exact(FRAME).map(&mut push).collect()
    }

    /// Share of the frames that pass, in the last second of `sound`.
    fn passed(sound: &[f32]) -> f32 {
        let passed = gated(sound);
        let last = &passed[passed.len() - 62..];
        last.iter().filter(|passes| **passes).count() as f32 / last.len() as f32
    }

    fn noise(samples: usize, gain: f32) -> Vec<f32> {
        let mut random = Random::new(9);
        (0..samples).map(|_| gain * (random.unit() as f32 - 0.5)).collect()
    }

    #[test]
    fn voices_pass_between_their_gaps() {
        for name in ["question", "sentence"] {
            let share = passed(&speech(name));
            assert!(share > 0.4, "{name}: {share}");
        }
    }

    #[test]
    fn begin_of_a_tone_may_be_one() {
        let mut gate = VoiceGate::default();
        let tone = [vec![0.0; 4_096], sine(440.0, 16_000, 1_536)].concat();
        let mut push = |frame: &[f32]| {
            gate.push(frame);
            gate.may_be_tone()
        };
        let maybe: Vec<bool> = tone.chunks_exact(FRAME).map(&mut push).collect();
        assert!(maybe[16 + 3..].iter().all(|maybe| *maybe), "{maybe:?}");
        assert!(maybe[..16].iter().all(|maybe| !maybe), "silence is none");
    }

    #[test]
    fn steady_noise_is_refused_after_a_second() {
        let sound = [vec![0.0; 16_000], noise(32_000, 0.1)].concat();
        assert_eq!(passed(&sound), 0.0);
    }

    #[test]
    fn voices_pass_above_noise_between_them() {
        let voice = speech("sentence");
        let sound: Vec<f32> = voice.iter().zip(noise(voice.len(), 0.02)).map(|(voice, noise)| voice + noise).collect();
        assert!(passed(&sound) > 0.3, "{}", passed(&sound));
    }

    #[test]
    fn tones_that_come_and_go_are_refused() {
        // A key of 120 ms: what is left of it is its begin.
        let tones: Vec<f32> = sine(697.0, 16_000, 48_000)
            .iter()
            .zip(sine(1_209.0, 16_000, 48_000))
            .map(|(low, high)| low + high)
            .collect();
        let keys: Vec<f32> =
            tones.iter().enumerate().map(|(i, tone)| if i % 6_000 < 1_920 { *tone } else { 0.0 }).collect();
        let passes = gated(&keys);
        let sounds = keys.chunks_exact(FRAME).map(|frame| frame.iter().any(|sample| sample.abs() > 0.1));
        let voiced = passes.iter().zip(sounds).skip(20).filter(|(passes, sounds)| **passes && *sounds).count();
        // Seven more keys, of six frames before each is known.
        assert!(voiced <= 7 * 6, "{voiced} frames");
    }
}
