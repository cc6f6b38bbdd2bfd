//! Sizes of BigVGAN, from `bigvgan_config`. Names and defaults are those of the reference
//! (`configuration_qwen2_5_omni.py` of transformers 5.23).

use crate::checkpoint::CheckpointError;
use crate::models::parts::config::ConfigSection;
use crate::models::parts::config::limits::FACTOR;

/// Most taps of an upsampling.
const MOST_TAPS: usize = 256;

/// Sizes of the vocoder.
#[derive(Debug, Clone, PartialEq)]
pub struct BigVganConfig {
    /// Mel bins of a frame.
    pub mel_dim: usize,
    /// Channels after the first convolution; each upsampling halves them.
    pub upsample_initial_channel: usize,
    /// Number of taps of each residual block of a level.
    pub resblock_kernel_sizes: Vec<usize>,
    /// Dilations of each residual block.
    pub resblock_dilation_sizes: Vec<Vec<usize>>,
    /// Factors of upsampling.
    pub upsample_rates: Vec<usize>,
    /// Number of taps of each upsampling.
    pub upsample_kernel_sizes: Vec<usize>,
    /// True for a vocoder of latents whose convolutions, but the first, see no later row. Its weights are normed, its last
    /// convolution has a bias, and a hyperbolic tangent bounds its samples. False for one of spectrograms.
    pub causal: bool,
}

impl BigVganConfig {
    /// Reads the vocoder of spectrograms with `mel_dim` bins.
    pub fn read(at: &ConfigSection<'_>, mel_dim: usize) -> Result<Self, CheckpointError> {
        at.equal("mel_dim", 80, ("dit_config.mel_dim", mel_dim))?;
        Self::read_levels(at, mel_dim, false)
    }

    /// Reads the causal vocoder of latents with `latents` numbers.
    pub fn read_causal(at: &ConfigSection<'_>, latents: usize) -> Result<Self, CheckpointError> {
        at.equal("latent_dim", 64, ("token2latent.z_dim", latents))?;
        at.only("causal", true)?;
        at.only("resblock", "1")?;
        at.only("activation", "snakebeta")?;
        at.only("snake_logscale", true)?;
        Self::read_levels(at, latents, true)
    }

    fn read_levels(at: &ConfigSection<'_>, mel_dim: usize, causal: bool) -> Result<Self, CheckpointError> {
        let rates = at.factors("upsample_rates", &[5, 3, 2, 2, 2, 2])?;
        let fit = |kernels: &[usize]| {
            let each = |(&kernel, &rate): (&usize, &usize)| match causal {
                true => kernel == 2 * rate,
                false => (rate..=MOST_TAPS).contains(&kernel) && (kernel - rate).is_multiple_of(2),
            };
            kernels.len() == rates.len() && kernels.iter().zip(&rates).all(each)
        };
        let (allowed, absent) = match causal {
            true => ("twice each of upsample_rates", [10, 6, 4, 4, 4, 4]),
            false => ("one for each of upsample_rates, larger by an even number, and at most 256", [11, 7, 4, 4, 4, 4]),
        };
        let taps = at.list("upsample_kernel_sizes", &absent, fit, allowed)?;
        let odd = |sizes: &[usize]| !sizes.is_empty() && sizes.iter().all(|size| size % 2 == 1 && *size < 64);
        let kernels = at.list("resblock_kernel_sizes", &[3, 7, 11], odd, "odd numbers up to 63")?;
        // The reference always takes three of each.
        let three = |dilations: &[Vec<usize>]| {
            let each = |each: &Vec<usize>| each.len() == 3 && each.iter().all(|each| FACTOR.contains(each));
            dilations.len() == kernels.len() && dilations.iter().all(each)
        };
        let allowed = "three of 1 to 64 for each of resblock_kernel_sizes";
        let dilations = at.list("resblock_dilation_sizes", &[[1, 3, 5]; 3].map(Vec::from), three, allowed)?;
        let halved = ("upsample_rates", rates.len());
        Ok(Self {
            mel_dim,
            upsample_initial_channel: at.halvable("upsample_initial_channel", 1536, halved)?,
            resblock_kernel_sizes: kernels,
            resblock_dilation_sizes: dilations,
            upsample_rates: rates,
            upsample_kernel_sizes: taps,
            causal,
        })
    }

    /// Samples of a mel frame.
    pub fn samples_per_frame(&self) -> usize {
        self.upsample_rates.iter().product()
    }
}
