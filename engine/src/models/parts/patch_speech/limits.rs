//! Lengths of utterances.

use std::time::Duration;

/// Limits of an utterance, in patches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepLimits {
    /// Patches before it can end, less one.
    pub least: usize,
    /// Upper bound of its patches, whatever its text.
    pub most: usize,
    /// Fewest seconds of the longest sound, and the seconds of a character, if the sound is limited by the text.
    pub of_text: Option<(f32, f32)>,
    /// Duration of a patch.
    pub patch: Duration,
}

impl StepLimits {
    /// Most patches of a text of so many characters.
    pub fn most(&self, characters: usize) -> usize {
        let within = |(least, each): (f32, f32)| {
            ((characters as f32 * each).max(least) / self.patch.as_secs_f32().max(f32::EPSILON)) as usize
        };
        self.of_text.map_or(self.most, |limit| within(limit).clamp(1, self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_limits_its_sound() {
        let limits = StepLimits { least: 10, most: 200, of_text: None, patch: Duration::from_millis(320) };
        assert_eq!(limits.most(1), 200);
        let limits = StepLimits { of_text: Some((2.0, 0.36)), ..limits };
        assert_eq!([1, 5, 20, 10_000].map(|characters| limits.most(characters)), [6, 6, 22, 200]);
        let long = StepLimits { patch: Duration::from_secs(3), ..limits };
        assert_eq!(long.most(1), 1);
    }
}
