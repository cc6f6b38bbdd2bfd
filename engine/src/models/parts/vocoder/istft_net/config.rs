//! Sizes of iSTFTNet.

use crate::checkpoint::CheckpointError;
use crate::models::parts::config::ConfigSection;
use crate::models::parts::config::limits::{ENTRIES, FACTOR, FRAME};

/// Section `istftnet` of config.json.
#[derive(Debug, Clone, PartialEq)]
pub struct IstftNetConfig {
    /// Taps of the parallel residual blocks.
    pub resblock_kernel_sizes: Vec<usize>,
    /// Dilations of each residual block.
    pub resblock_dilation_sizes: Vec<Vec<usize>>,
    /// Rows that each row becomes, level by level.
    pub upsample_rates: Vec<usize>,
    /// Taps of each upsampling.
    pub upsample_kernel_sizes: Vec<usize>,
    /// Channels of the first level's input; each level has half of them.
    pub upsample_initial_channel: usize,
    /// Samples of a frame of the inverse transform.
    pub gen_istft_n_fft: usize,
    /// Samples between frames.
    pub gen_istft_hop_size: usize,
    /// Width of a style.
    pub style_dim: usize,
}

impl IstftNetConfig {
    /// Reads the section.
    pub fn read(at: &ConfigSection<'_>, style_dim: usize) -> Result<Self, CheckpointError> {
        let odd = |taps: &usize| FACTOR.contains(taps) && taps % 2 == 1;
        let upsample_rates = at.factors("upsample_rates", &[10, 6])?;
        at.check("upsample_rates", format!("{upsample_rates:?}"), !upsample_rates.is_empty(), "at least one factor")?;
        let (count, rates) = (upsample_rates.len(), &upsample_rates);
        let fits = |kernels: &[usize]| {
            let fits = |(kernel, rate): (&usize, &usize)| {
                FACTOR.contains(kernel) && kernel >= rate && (kernel - rate).is_multiple_of(2)
            };
            kernels.len() == count && kernels.iter().zip(rates).all(fits)
        };
        let allowed = "one for each of upsample_rates, an even number larger or equal";
        let upsample_kernel_sizes = at.list("upsample_kernel_sizes", &[20, 12], fits, allowed)?;
        let some = |kernels: &[usize]| (1..=ENTRIES).contains(&kernels.len()) && kernels.iter().all(odd);
        let resblock_kernel_sizes = at.list("resblock_kernel_sizes", &[3, 7, 11], some, "odd numbers of taps")?;
        let blocks = resblock_kernel_sizes.len();
        let three = |lists: &[Vec<usize>]| {
            lists.len() == blocks && lists.iter().all(|list| list.len() == 3 && list.iter().all(|d| FACTOR.contains(d)))
        };
        let absent = vec![vec![1, 3, 5]; blocks];
        let allowed = "three for each of resblock_kernel_sizes";
        let field = ("upsample_rates", count);
        Ok(Self {
            resblock_dilation_sizes: at.list("resblock_dilation_sizes", &absent, three, allowed)?,
            resblock_kernel_sizes,
            upsample_initial_channel: at.halvable("upsample_initial_channel", 512, field)?,
            gen_istft_hop_size: at.size("gen_istft_hop_size", 5, FACTOR)?,
            gen_istft_n_fft: {
                let hop = at.size("gen_istft_hop_size", 5, FACTOR)?;
                let allowed = format!("even and at least four hops of {hop}");
                let holds = |size: usize| FRAME.contains(&size) && size.is_multiple_of(2) && size >= 4 * hop;
                at.value("gen_istft_n_fft", 20, holds, &allowed)?
            },
            style_dim,
            upsample_rates,
            upsample_kernel_sizes,
        })
    }

    /// Channels before level `level`, or after the last one.
    pub fn channels(&self, level: usize) -> usize {
        self.upsample_initial_channel >> level
    }

    /// Rows of a level's result for each row of the features.
    pub fn scale(&self, level: usize) -> usize {
        self.upsample_rates[..=level].iter().product()
    }

    /// Spectra for each row of the features.
    pub fn frames(&self) -> usize {
        self.upsample_rates.iter().product()
    }

    /// Samples of a row of the features.
    pub fn samples(&self) -> usize {
        self.frames() * self.gen_istft_hop_size
    }

    /// Numbers of a spectrum: magnitudes, then phases.
    pub fn source_channels(&self) -> usize {
        self.gen_istft_n_fft + 2
    }

    /// Spectra between those that consecutive rows of a level read.
    pub fn source_stride(&self, level: usize) -> usize {
        self.upsample_rates[level + 1..].iter().product()
    }

    /// Spectra that a row of a level reads.
    pub fn source_taps(&self, level: usize) -> usize {
        if level + 1 < self.upsample_rates.len() { 2 * self.source_stride(level) } else { 1 }
    }

    /// Rows of a level's result for `rows` rows of the features: the last level has one more, as many as there are
    /// spectra.
    pub fn rows(&self, level: usize, rows: usize) -> usize {
        rows * self.scale(level) + usize::from(level + 1 == self.upsample_rates.len())
    }
}
