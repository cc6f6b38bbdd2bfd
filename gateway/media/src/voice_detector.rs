//! Voice detectors: the probability that a short frame contains a voice.
//!
//! The `earshot` network knows sound of a room at 16 kHz. Of a telephone line it gets a spectrum that ends at 4 kHz, which it takes for a
//! voice whatever the lower half contains. So [`Earshot`] adds quiet noise, which fills empty bands, and tells beside the probability what
//! the sound itself is like.

use earshot::Detector;

use super::acoustics::{AcousticAnalyzer, Acoustics};

/// Sample rate of the input of voice detectors, in Hz.
pub const RATE: u32 = 16_000;
/// Samples of a frame of [`Earshot`], 16 ms.
const FRAME: usize = 256;
/// Root mean square of the noise that fills empty bands, -86 dBFS: more of it hides soft voices.
const FILL: f32 = 5e-5;

/// Frame-by-frame estimator of voice probability, at [`RATE`].
pub trait VoiceDetector {
    /// Number of samples per frame.
    fn frame_len(&self) -> usize;
    /// Returns the probability, 0 to 1, that `frame` contains a voice. `frame` has exactly [`Self::frame_len`] samples. Keeps state
    /// between frames.
    fn probability(&mut self, frame: &[f32]) -> f32;
    /// Acoustics of the latest frame; `None` from a detector that knows probabilities alone, whose voices need no more proof.
    fn acoustics(&self) -> Option<Acoustics> {
        None
    }
    /// Tells whether a response plays, whose echo the frames that follow may contain.
    fn set_playing(&mut self, _plays: bool) {}
}

/// The `earshot` network with the acoustics of its frames: weights in the binary, frames of 16 ms.
pub struct Earshot {
    network: Box<Detector>,
    analyzer: AcousticAnalyzer,
    acoustics: Option<Acoustics>,
    /// True while a response plays: beside its echo the fill makes soft callers softer.
    plays: bool,
    /// State of the generator of the fill.
    seed: u32,
}

impl std::fmt::Debug for Earshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Earshot")
    }
}

impl Default for Earshot {
    fn default() -> Self {
        Self {
            network: Detector::default_boxed(),
            analyzer: AcousticAnalyzer::default(),
            acoustics: None,
            plays: false,
            seed: 1,
        }
    }
}

impl Earshot {
    /// Returns a sample of the fill: white, uniform, the same in each stream.
    fn fill(&mut self) -> f32 {
        self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // A uniform number of -1 to 1 has a root mean square of 0.58.
        let noise = ((self.seed >> 8) as f32 / 8_388_608.0 - 1.0) * 1.73 * FILL;
        if self.plays { 0.0 } else { noise }
    }
}

impl VoiceDetector for Earshot {
    fn frame_len(&self) -> usize {
        FRAME
    }

    fn probability(&mut self, frame: &[f32]) -> f32 {
        let (mut clean, mut filled) = ([0.0; FRAME], [0.0; FRAME]);
        for ((clean, filled), from) in clean.iter_mut().zip(&mut filled).zip(frame) {
            // A NaN would stay in the network's state.
            *clean = if from.is_finite() { from.clamp(-1.0, 1.0) } else { 0.0 };
            *filled = (*clean + self.fill()).clamp(-1.0, 1.0);
        }
        // Both keep state, so both get every frame.
        let probability = self.network.predict_f32(&filled);
        self.acoustics = Some(self.analyzer.push(&clean, probability));
        probability
    }

    fn acoustics(&self) -> Option<Acoustics> {
        self.acoustics
    }

    fn set_playing(&mut self, plays: bool) {
        self.plays = plays;
    }
}
