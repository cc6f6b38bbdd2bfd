//! Evidence of a voice in an open turn: sound that only a voice makes.
//!
//! The network may take steady noise, tones or many voices at once for a voice, so that no silence would end the turn. A voice rises and
//! falls within half a second, and has a pitch where it is loud. So a peak between two lower levels that is no tone is evidence of a voice.
//! A turn without any for a while ends, whatever the network hears.

use std::collections::VecDeque;

use super::acoustics::Acoustics;

/// Frames on each side of a peak within which the level is lower, 0.7 s.
const BESIDE: usize = 44;
/// Frames before a tone is known that belong to it, 64 ms.
const TONE_BEGIN: usize = 4;
/// Frames after which a tone surely is none of a voice, 128 ms, and those before it that belong to it: a codec blurs its begin.
const LASTING_TONE: usize = 8;
const BLURRED_BEGIN: usize = 8;
/// Least level of a peak above those on both sides, in dB: steady noise and many voices at once vary by less.
const RISE_DB: f32 = 9.0;
/// The same after a peak without a pitch.
const UNPITCHED_FALL_DB: f32 = 15.0;

/// A frame as far as it may be evidence.
#[derive(Debug, Clone, Copy)]
struct EvidenceFrame {
    level_db: f32,
    /// True if the network hears a voice, and the frame is no tone.
    is_voice: bool,
    is_pitched: bool,
    /// End of the frame, in samples of the session.
    end: u64,
}

/// Latest frames of one stream.
#[derive(Debug, Default)]
pub(crate) struct TurnEvidence {
    frames: VecDeque<EvidenceFrame>,
}

impl TurnEvidence {
    /// Adds a frame that ends at `end`, in samples of the session; `voiced` by the network. Returns the end of the latest evidence, if the
    /// level has fallen enough for any.
    pub fn push(&mut self, frame: Acoustics, voiced: bool, end: u64) -> Option<u64> {
        let Acoustics { level_db, is_tone, tonal_frames, is_pitched, .. } = frame;
        let tone = match is_tone {
            true if tonal_frames >= LASTING_TONE => tonal_frames + BLURRED_BEGIN,
            true => TONE_BEGIN,
            false => 0,
        };
        self.frames.iter_mut().rev().take(tone).for_each(|frame| frame.is_voice = false);
        if self.frames.len() >= 2 * BESIDE {
            self.frames.pop_front();
        }
        self.frames.push_back(EvidenceFrame { level_db, is_voice: voiced && !is_tone, is_pitched, end });
        self.latest(level_db)
    }

    /// End of the latest frame that rose from a lower level and has fallen to `level_db`.
    fn latest(&self, level_db: f32) -> Option<u64> {
        let from = self.frames.len().saturating_sub(BESIDE);
        let fell = |frame: &EvidenceFrame| {
            let least = if frame.is_pitched { RISE_DB } else { UNPITCHED_FALL_DB };
            frame.is_voice && frame.level_db - level_db >= least
        };
        let rose = |at: usize, frame: &EvidenceFrame| {
            let mut before = self.frames.range(at.saturating_sub(BESIDE)..at);
            before.any(|before| frame.level_db - before.level_db >= RISE_DB)
        };
        let frames = self.frames.range(from..).enumerate().rev();
        let evidence = frames.into_iter().find(|(at, frame)| fell(frame) && rose(from + at, frame));
        evidence.map(|(_, frame)| frame.end)
    }
}

#[cfg(test)]
#[path = "turn_evidence_tests.rs"]
mod tests;
