//! Voice detectors: the probability that a short frame contains a voice.
//!
//! The `earshot` network knows sound of a room at 16 kHz. Of a telephone line it gets a spectrum that ends at 4 kHz, which it takes for a
//! voice whatever the lower half contains. So [`Earshot`] adds quiet noise, which fills empty bands, and a [`VoiceGate`] lets no voice begin
//! with tones and sound that stays where the noise floor is.

use earshot::Detector;

use super::voice_gate::VoiceGate;

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
    /// True if a voice may begin with the latest frame; it may go on in any.
    fn may_begin(&self) -> bool {
        true
    }
    /// True if the latest frame may turn out to be a tone within the next three.
    fn may_be_tone(&self) -> bool {
        false
    }
    /// True if the latest frames have the pitch of a voice, as a syllable has and noise or many voices at once rarely have.
    fn is_pitched(&self) -> bool {
        true
    }
}

/// The `earshot` network behind a gate: weights in the binary, frames of 16 ms.
pub struct Earshot {
    network: Box<Detector>,
    gate: VoiceGate,
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
        Self { network: Detector::default_boxed(), gate: VoiceGate::default(), seed: 1 }
    }
}

impl Earshot {
    /// Returns a sample of the fill: white, uniform, the same in each stream.
    fn fill(&mut self) -> f32 {
        self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // A uniform number of -1 to 1 has a root mean square of 0.58.
        ((self.seed >> 8) as f32 / 8_388_608.0 - 1.0) * 1.73 * FILL
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
        // Both have state, so both get every frame.
        self.gate.push(&clean);
        self.network.predict_f32(&filled)
    }

    fn may_begin(&self) -> bool {
        self.gate.may_begin()
    }

    fn may_be_tone(&self) -> bool {
        self.gate.may_be_tone()
    }

    fn is_pitched(&self) -> bool {
        self.gate.is_pitched()
    }
}
