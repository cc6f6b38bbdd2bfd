//! Begin of a turn: the voice that opens one.
//!
//! With probabilities alone, voice that lasts for [`ONSET`] and is clear once opens a turn. With the acoustics of the frames, sound near the
//! noise floor and tones do not count, and what may be a tone or has no pitch has to last longer. A pitch well above the floor makes up for a
//! low probability: the network knows soft voices of a telephone line less well.

use std::time::Duration;

use super::acoustics::Acoustics;
use super::voice_detector::RATE;

/// Voice that starts a turn; a click or a knock is shorter.
const ONSET: Duration = Duration::from_millis(64);
/// Voice that starts a turn where it may be a tone: a tone is known by then.
const TONAL_ONSET: Duration = Duration::from_millis(224);
/// Sound without a pitch that starts a turn, as a whisper is: noise that begins has become the floor by then.
const UNPITCHED_ONSET: Duration = Duration::from_millis(400);
/// Margin above the threshold that one frame of a turn must reach: a voice soon does, but on new steady noise, such as a fan or a
/// street, the network hovers around the middle for some tenths of a second.
const CLEAR_VOICE: f32 = 0.2;
/// Least level of a voice above the floor, in dB: steady noise varies by less.
const ABOVE_FLOOR_DB: f32 = 9.0;
/// Frames with a pitch that make a voice: a single one may be chance.
const PITCHED_FRAMES: usize = 2;
/// Margin below the threshold for frames with a pitch that are this far above the floor, in dB, and the number of them that needs no clear
/// frame.
const STRONG: f32 = 0.2;
const STRONG_ABOVE_DB: f32 = 12.0;
const STRONG_FRAMES: usize = 8;

/// Voice that may open a turn; positions in samples of the session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TurnOnset {
    /// Begin of the voice.
    since: u64,
    /// Samples of voice less those of silence.
    voiced: u64,
    /// Highest probability.
    peak: f32,
    /// Frames with a pitch, and those of them well above the floor.
    pitched: usize,
    strong: usize,
    /// Voice that it has to have.
    needed: Duration,
}

impl TurnOnset {
    /// No voice yet, as after silence and after each turn.
    pub const NONE: Self = Self { since: 0, voiced: 0, peak: 0.0, pitched: 0, strong: 0, needed: ONSET };

    /// Begin of the voice.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Length of the voice, in samples.
    pub fn voiced(&self) -> u64 {
        self.voiced
    }

    /// Adds a frame of `length` samples from `start` on; `acoustics` if they are to count. Returns true if it is a voice.
    pub fn push(
        &mut self,
        probability: f32,
        threshold: f32,
        acoustics: Option<Acoustics>,
        start: u64,
        length: u64,
    ) -> bool {
        let is_pitched = acoustics.is_none_or(|acoustics| acoustics.is_pitched);
        let is_strong = acoustics.is_some_and(|acoustics| {
            acoustics.is_pitched && !acoustics.may_be_tone && acoustics.above_floor_db >= STRONG_ABOVE_DB
        });
        let least = if is_strong { threshold - STRONG.min(threshold / 2.0) } else { threshold };
        let is_refused = acoustics.is_some_and(|acoustics| {
            let pitched = if self.voiced == 0 { 0 } else { self.pitched };
            let is_noise = pitched < PITCHED_FRAMES && !is_pitched;
            let above_db = if is_noise { acoustics.above_near_floor_db } else { acoustics.above_floor_db };
            acoustics.is_tone || above_db < ABOVE_FLOOR_DB
        });
        if probability < least || is_refused {
            self.voiced = self.voiced.saturating_sub(length);
            return false;
        }
        if self.voiced == 0 {
            *self = Self { since: start, ..Self::NONE };
        }
        self.voiced += length;
        self.peak = self.peak.max(probability);
        self.pitched += usize::from(is_pitched);
        self.strong += usize::from(is_strong);
        self.needed = match acoustics {
            Some(_) if self.pitched < PITCHED_FRAMES => UNPITCHED_ONSET,
            Some(acoustics) if acoustics.may_be_tone => TONAL_ONSET,
            _ => ONSET,
        };
        true
    }

    /// True if the voice has lasted for as long as one has to that begins a turn.
    pub fn begins(&self, threshold: f32) -> bool {
        self.lasts(self.needed, threshold)
    }

    /// True if the voice has lasted for `onset` and was clear.
    pub fn lasts(&self, onset: Duration, threshold: f32) -> bool {
        // High thresholds leave a smaller margin above.
        let clear = threshold + CLEAR_VOICE.min((1.0 - threshold) / 2.0);
        let is_clear = self.peak >= clear || self.strong >= STRONG_FRAMES;
        self.voiced >= onset.as_millis() as u64 * u64::from(RATE) / 1_000 && is_clear
    }
}

#[cfg(test)]
#[path = "turn_onset_tests.rs"]
mod tests;
