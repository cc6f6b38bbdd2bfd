//! Acoustics of a sound, frame by frame: what tells a voice from steady noise, hum, tones and many voices at once.
//!
//! - Level above the noise floor: a voice falls to the floor between syllables, and rises well above it. The floor is the lowest level of
//!   the last 0.8 s, so it follows a noise that begins.
//! - Tones: hum, ringing and most music keep their frequencies for longer than a voice keeps its pitch (`tonality`). Nearly all of the
//!   power of a telephone key is at two frequencies, one of each group.
//! - Pitch: a syllable has one; noise and many voices rarely do.
//!
//! All of it is measured above 100 Hz: the silence of A-law is a constant sample, and rumble hides the level of a voice.

use std::collections::VecDeque;

use super::pitch;
use super::tonality::{Tonality, TwoPeaks};

/// Frames of the floor, 0.8 s: longer than a syllable.
const FLOOR_FRAMES: usize = 50;
/// Frames of the floor for sound without a pitch, 0.38 s: shorter than such a sound has to last to open a turn, so that it follows a noise
/// in time.
const NEAR_FLOOR_FRAMES: usize = 24;
/// Frames over which the level is smoothed, 48 ms.
const SMOOTHED: usize = 3;
/// Lowest level that counts, in dBFS: the quantisation noise of a telephone line.
const SILENCE_DB: f32 = -72.0;
/// Lowest level of a frame that may be a tone or have a pitch, in dBFS.
const AUDIBLE_DB: f32 = -70.0;
/// Least probability of a voice whose pitch is worth its search.
const WORTH_PITCH: f32 = 0.05;
/// Windows of the tones, in samples: the short one hears a key of 64 ms, the long one tells 440 and 480 Hz apart.
const WINDOWS: [usize; 2] = [512, 1_024];
/// Longest window.
const RECENT: usize = pitch::WINDOW;
/// Greatest unpredicted share of a tone's power, and of that of what may be a tone.
const TONE: f32 = 0.02;
const MAYBE_TONE: f32 = 0.08;
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
/// Pole of each of the two stages of the high-pass filter: 100 Hz.
const HIGH_PASS: f32 = 0.96;

/// Acoustics of one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Acoustics {
    /// Level over the latest 48 ms, in dBFS, at least that of a silent line.
    pub level_db: f32,
    /// Level above the lowest of the last 0.8 s, in dB.
    pub above_floor_db: f32,
    /// Level above the lowest of the last 0.38 s, in dB.
    pub above_near_floor_db: f32,
    /// True for a tone, and for 96 ms after it.
    pub is_tone: bool,
    /// Latest frames in a row that continue a tone.
    pub tonal_frames: usize,
    /// True if the frame may turn out to be a tone within the next ones.
    pub may_be_tone: bool,
    /// True if the latest 64 ms have the pitch of a voice.
    pub is_pitched: bool,
}

impl Acoustics {
    /// Silence, as after a long time without a sound.
    pub const SILENCE: Self = Self {
        level_db: SILENCE_DB,
        above_floor_db: 0.0,
        above_near_floor_db: 0.0,
        is_tone: false,
        tonal_frames: 0,
        may_be_tone: false,
        is_pitched: false,
    };
}

/// Analyzer of one stream in frames of 256 samples at 16 kHz.
#[derive(Debug)]
pub(crate) struct AcousticAnalyzer {
    /// Last input and output of each stage of the high-pass filter.
    stages: [(f32, f32); 2],
    /// Latest filtered samples, for the windows.
    recent: Vec<f32>,
    /// Powers of the latest frames, for the smoothed level.
    powers: VecDeque<f32>,
    /// Smoothed levels of the floor's frames, in dBFS, the latest last.
    levels: VecDeque<f32>,
    tonalities: [Tonality; 2],
    /// Tonal frames in a row, and frames that still count as a tone.
    tonal: usize,
    after_tone: usize,
}

impl Default for AcousticAnalyzer {
    fn default() -> Self {
        Self {
            stages: [(0.0, 0.0); 2],
            recent: vec![0.0; RECENT],
            powers: VecDeque::with_capacity(SMOOTHED + 1),
            levels: VecDeque::with_capacity(FLOOR_FRAMES + 1),
            tonalities: WINDOWS.map(Tonality::new),
            tonal: 0,
            after_tone: 0,
        }
    }
}

impl AcousticAnalyzer {
    /// Adds a frame of at most [`RECENT`] finite samples, with the network's `probability` of a voice.
    pub fn push(&mut self, frame: &[f32], probability: f32) -> Acoustics {
        let power = self.filter(&frame[..frame.len().min(RECENT)]);
        let (level_db, above_floor_db, above_near_floor_db) = self.levels(power);
        let is_audible = decibels(power) >= AUDIBLE_DB;
        let (is_tone, may_be_tone) = self.tone(is_audible);
        let is_pitched = is_audible && probability >= WORTH_PITCH && pitch::periodicity(&self.recent) >= PITCHED;
        Acoustics {
            level_db,
            above_floor_db,
            above_near_floor_db,
            is_tone,
            tonal_frames: self.tonal,
            may_be_tone,
            is_pitched,
        }
    }

    /// Adds the frame without its low frequencies to the latest samples; returns its power.
    fn filter(&mut self, frame: &[f32]) -> f32 {
        let kept = RECENT - frame.len();
        self.recent.copy_within(frame.len().., 0);
        let mut power = 0.0;
        for (to, sample) in self.recent[kept..].iter_mut().zip(frame) {
            let mut value = *sample;
            for (input, output) in &mut self.stages {
                *output = HIGH_PASS * (*output + value - *input);
                *input = value;
                value = *output;
            }
            power += value * value;
            *to = value;
        }
        power / frame.len().max(1) as f32
    }

    /// Returns the smoothed level and the levels above both floors.
    fn levels(&mut self, power: f32) -> (f32, f32, f32) {
        push_bounded(&mut self.powers, power, SMOOTHED);
        let level = decibels(self.powers.iter().sum::<f32>() / self.powers.len() as f32).max(SILENCE_DB);
        let above = |frames: usize| level - self.levels.iter().rev().take(frames).copied().fold(level, f32::min);
        let (above_floor, above_near_floor) = (above(FLOOR_FRAMES), above(NEAR_FLOOR_FRAMES));
        push_bounded(&mut self.levels, level, FLOOR_FRAMES);
        (level, above_floor, above_near_floor)
    }

    /// Returns true for a tone, and true for what may become one.
    fn tone(&mut self, is_audible: bool) -> (bool, bool) {
        let (mut is_tonal, mut may_be_tone) = (false, false);
        if is_audible {
            let recent = &self.recent;
            let shares = self.tonalities.each_mut().map(|tonality| tonality.unpredicted(recent));
            let share = shares[0].min(shares[1]);
            let TwoPeaks { share: peaks, frequencies } = self.tonalities[1].two_peaks();
            let is_key = peaks > KEY_PEAKS && KEYS.iter().zip(&frequencies).all(|(group, at)| group.contains(at));
            may_be_tone = share < MAYBE_TONE || peaks > MAYBE_PEAKS;
            is_tonal = share < TONE || is_key;
        } else {
            self.tonalities.iter_mut().for_each(Tonality::skip);
        }
        self.tonal = if is_tonal { self.tonal + 1 } else { 0 };
        self.after_tone = if self.tonal >= TONE_FRAMES { AFTER_TONE } else { self.after_tone.saturating_sub(1) };
        (self.after_tone > 0, may_be_tone)
    }
}

/// Returns a power in dB of full scale, at least -100.
fn decibels(power: f32) -> f32 {
    10.0 * (power + 1e-10).log10()
}

fn push_bounded(queue: &mut VecDeque<f32>, value: f32, most: usize) {
    queue.push_back(value);
    if queue.len() > most {
        queue.pop_front();
    }
}

#[cfg(test)]
#[path = "acoustics_tests.rs"]
mod tests;
