//! Sizes of U-VITS, from the sections `data` and `model` of its published config.json.

use crate::checkpoint::CheckpointError;
use crate::models::parts::config::ConfigSection;
use crate::models::parts::config::limits::{ENTRIES, FACTOR, HEADS, INNER, LAYERS, RATE, WIDTH};

/// Sizes of all parts.
#[derive(Debug, Clone, PartialEq)]
pub struct VitsConfig {
    /// Sampling rate in Hz.
    pub sample_rate: u32,
    /// Units, and symbols before them in the table.
    pub units: usize,
    /// Channels of a latent.
    pub latent: usize,
    /// Width of a row.
    pub hidden: usize,
    /// Inner width of the encoder's convolutions, and their taps.
    pub inner: (usize, usize),
    /// Heads and layers of the encoder.
    pub heads: usize,
    /// Layers of the encoder.
    pub layers: usize,
    /// Width of a style.
    pub style: usize,
    /// Channels before the first upsampling; each halves them.
    pub channels: usize,
    /// Factor and taps of each upsampling.
    pub upsampling: Vec<(usize, usize)>,
    /// Taps and dilations of the parallel residual blocks of a level.
    pub blocks: Vec<(usize, Vec<usize>)>,
}

/// Symbols before the units: a pad, punctuation, letters, and those of the phonetic alphabet.
pub const SYMBOLS: usize = 178;

impl VitsConfig {
    /// Reads the sizes of a decoder of `units` units in styles of `style` numbers.
    pub fn read(top: &ConfigSection<'_>, units: usize, style: usize) -> Result<Self, CheckpointError> {
        let (data, at) = (top.optional_section("data")?, top.section("model")?);
        at.only("resblock", "1")?;
        let heads = at.size("n_heads", 2, HEADS)?;
        let rates = at.factors("upsample_rates", &[8, 8, 2, 2])?;
        let taps = at.sizes("upsample_kernel_sizes", &[16, 16, 4, 4], FACTOR)?;
        let fits = rates.len() == taps.len()
            && rates.iter().zip(&taps).all(|(rate, taps)| taps >= rate && (taps - rate).is_multiple_of(2));
        let allowed = "one for each of upsample_rates, larger by an even number";
        at.check("upsample_kernel_sizes", format!("{taps:?}"), fits && !taps.is_empty(), allowed)?;
        let kernels = at.sizes("resblock_kernel_sizes", &[3, 7, 11], FACTOR)?;
        let odd = !kernels.is_empty() && kernels.iter().all(|taps| taps % 2 == 1);
        at.check("resblock_kernel_sizes", format!("{kernels:?}"), odd, "odd numbers of taps")?;
        let each = |lists: &[Vec<usize>]| {
            let list =
                |list: &Vec<usize>| (1..=ENTRIES).contains(&list.len()) && list.iter().all(|d| FACTOR.contains(d));
            lists.len() == kernels.len() && lists.iter().all(list)
        };
        let dilations = at.list("resblock_dilation_sizes", &[[1, 3, 5]; 3].map(Vec::from), each, "lists of 1 to 64")?;
        let odd_taps = |taps: usize| FACTOR.contains(&taps) && taps % 2 == 1;
        Ok(Self {
            sample_rate: u32::try_from(data.size("sampling_rate", 22_050, RATE)?).unwrap_or(22_050),
            units,
            latent: at.even("inter_channels", 192, WIDTH)?,
            hidden: at.multiple("hidden_channels", 192, WIDTH, ("n_heads", heads))?,
            inner: (
                at.size("filter_channels", 768, INNER)?,
                at.value("kernel_size", 3, odd_taps, "an odd number of taps")?,
            ),
            heads,
            layers: at.size("n_layers", 6, LAYERS)?,
            style: at.equal("gin_channels", 256, ("u2s_dim_styles", style))?,
            channels: at.halvable("upsample_initial_channel", 512, ("upsample_rates", rates.len()))?,
            upsampling: rates.into_iter().zip(taps).collect(),
            blocks: kernels.into_iter().zip(dilations).collect(),
        })
    }

    /// Samples of a frame.
    pub fn samples(&self) -> usize {
        self.upsampling.iter().map(|(rate, _)| rate).product()
    }
}
