//! Voices of the checkpoint.

use super::config::DitConfig;

/// A voice, as in the published `spk_dict.pt`.
#[derive(Debug, Clone, PartialEq)]
pub struct Voice {
    /// Name of the voice in requests.
    pub name: String,
    /// `cond`: `enc_emb_dim` numbers.
    pub conditioning: Vec<f32>,
    /// `ref_mel`: a mel spectrogram of the voice, frame after frame of `mel_dim` numbers.
    pub reference_mel: Vec<f32>,
}

impl Voice {
    /// True if all numbers are finite, the sizes match the configuration, and there are enough frames for the speaker
    /// encoder: one more than its widest convolution mirrors at an end.
    pub fn fits(&self, config: &DitConfig) -> bool {
        let speaker = &config.speaker;
        let reach = speaker.enc_kernel_sizes.iter().zip(&speaker.enc_dilations);
        let least = reach.map(|(kernel, dilation)| ((kernel - 1) * dilation).div_ceil(2) + 1).max().unwrap_or(1);
        let numbers = self.conditioning.iter().chain(&self.reference_mel);
        numbers.into_iter().all(|number| number.is_finite())
            && self.conditioning.len() == config.enc_emb_dim
            && self.reference_mel.len().is_multiple_of(config.mel_dim)
            && self.reference_mel.len() / config.mel_dim >= least
    }
}
