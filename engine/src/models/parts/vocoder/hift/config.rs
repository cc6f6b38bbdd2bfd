//! Sizes of HiFT. Names and defaults are those of `CausalHiFTGenerator` in CosyVoice's `hifigan/generator.py`.

use crate::checkpoint::CheckpointError;
use crate::models::parts::config::ConfigSection;
use crate::models::parts::config::limits::{ENTRIES, FACTOR, FRAME, RATE, WIDTH};

/// Frames after a frame that its pitch depends on.
pub const PITCH_LOOK_AHEAD: usize = 3;

/// Sizes of the vocoder.
#[derive(Debug, Clone, PartialEq)]
pub struct HiftConfig {
    /// Mel bins of a frame.
    pub in_channels: usize,
    /// Channels after the first convolution; each upsampling halves them.
    pub base_channels: usize,
    /// Sines above the pitch.
    pub nb_harmonics: usize,
    /// Sampling rate in Hz.
    pub sampling_rate: u32,
    /// Amplitude of a sine.
    pub nsf_alpha: f32,
    /// Amplitude of the noise beside a sine.
    pub nsf_sigma: f32,
    /// Pitch in Hz up to which a sound is unvoiced.
    pub nsf_voiced_threshold: f32,
    /// Factors of upsampling.
    pub upsample_rates: Vec<usize>,
    /// Taps of each upsampling.
    pub upsample_kernel_sizes: Vec<usize>,
    /// Samples of a transform, and from one to the next.
    pub istft: (usize, usize),
    /// Taps of each parallel residual block of a level.
    pub resblock_kernel_sizes: Vec<usize>,
    /// Dilations of each of these blocks.
    pub resblock_dilation_sizes: Vec<Vec<usize>>,
    /// Taps of the source's residual block of each level.
    pub source_resblock_kernel_sizes: Vec<usize>,
    /// Dilations of each of these blocks.
    pub source_resblock_dilation_sizes: Vec<Vec<usize>>,
    /// Factor of negative numbers before each upsampling.
    pub lrelu_slope: f32,
    /// Largest sample, to which louder ones are clipped.
    pub audio_limit: f32,
    /// Frames after a frame that the first convolution reads.
    pub conv_pre_look_right: usize,
    /// Channels of the pitch predictor.
    pub pitch_channels: usize,
}

impl HiftConfig {
    /// Reads the section `hift`, for spectrograms with `mel` bins.
    pub fn read(at: &ConfigSection<'_>, mel: usize) -> Result<Self, CheckpointError> {
        let amount = |field: &str, absent| at.value(field, absent, |x: f32| (0.0..=1.0).contains(&x), "from 0 to 1");
        let upsample_rates = at.factors("upsample_rates", &[8, 5, 3])?;
        let levels = upsample_rates.len();
        let taps = |field: &str, absent: &[usize], count: Option<usize>| {
            let fits = |list: &[usize]| {
                count.map_or((1..=ENTRIES).contains(&list.len()), |count| list.len() == count)
                    && list.iter().all(|taps| FACTOR.contains(taps))
            };
            at.list(field, absent, fits, "numbers of taps up to 64, one for each level or block")
        };
        let odd = |field: &str, absent: &[usize], count: Option<usize>| -> Result<Vec<usize>, CheckpointError> {
            let list = taps(field, absent, count)?;
            at.check(field, format!("{list:?}"), list.iter().all(|taps| taps % 2 == 1), "odd numbers of taps")?;
            Ok(list)
        };
        let dilations = |field: &str, blocks: usize| {
            let fits = |lists: &[Vec<usize>]| {
                let each =
                    |list: &Vec<usize>| (1..=ENTRIES).contains(&list.len()) && list.iter().all(|d| FACTOR.contains(d));
                lists.len() == blocks && lists.iter().all(each)
            };
            at.list(field, &vec![vec![1, 3, 5]; blocks], fits, "a list of dilations up to 64 for each block")
        };
        let resblock_kernel_sizes = odd("resblock_kernel_sizes", &[3, 7, 11], None)?;
        let source_resblock_kernel_sizes = odd("source_resblock_kernel_sizes", &[7, 7, 11], Some(levels))?;
        let transform = at.optional_section("istft_params")?;
        let hop = transform.size("hop_len", 4, FACTOR)?;
        let allowed = format!("a multiple of 4 and at least two hops of {hop}");
        let whole = |size: usize| FRAME.contains(&size) && size.is_multiple_of(4) && size >= 2 * hop;
        let n_fft = transform.value("n_fft", 16, whole, &allowed)?;
        let pitch = at.optional_section("f0_predictor")?;
        pitch.equal("in_channels", mel, ("hift.in_channels", mel))?;
        pitch.only("num_class", 1)?;
        Ok(Self {
            in_channels: at.equal("in_channels", 80, ("flow.output_size", mel))?,
            base_channels: at.halvable("base_channels", 512, ("upsample_rates", levels))?,
            nb_harmonics: at.size("nb_harmonics", 8, 0..=64)?,
            sampling_rate: at.size("sampling_rate", 24_000, RATE)? as u32,
            nsf_alpha: amount("nsf_alpha", 0.1)?,
            nsf_sigma: amount("nsf_sigma", 0.003)?,
            nsf_voiced_threshold: at.value("nsf_voiced_threshold", 10.0, |hertz: f32| hertz >= 0.0, "at least 0")?,
            upsample_kernel_sizes: taps("upsample_kernel_sizes", &[16, 11, 7], Some(levels))?,
            upsample_rates,
            istft: (n_fft, hop),
            resblock_dilation_sizes: dilations("resblock_dilation_sizes", resblock_kernel_sizes.len())?,
            resblock_kernel_sizes,
            source_resblock_dilation_sizes: dilations("source_resblock_dilation_sizes", levels)?,
            source_resblock_kernel_sizes,
            lrelu_slope: amount("lrelu_slope", 0.1)?,
            audio_limit: amount("audio_limit", 0.99)?,
            conv_pre_look_right: at.size("conv_pre_look_right", 4, 0..=64)?,
            pitch_channels: pitch.size("cond_channels", 512, WIDTH)?,
        })
    }

    /// Channels of a level's result.
    pub fn channels(&self, level: usize) -> usize {
        self.base_channels >> (level + 1)
    }

    /// Rows of a level's result for each frame.
    pub fn scale(&self, level: usize) -> usize {
        self.upsample_rates[..=level].iter().product()
    }

    /// Spectra between those that consecutive rows of a level read.
    pub fn source_stride(&self, level: usize) -> usize {
        self.upsample_rates[level + 1..].iter().product()
    }

    /// Spectra that a row of a level reads: up to the end of its own stride.
    pub fn source_taps(&self, level: usize) -> usize {
        if level + 1 < self.upsample_rates.len() { 2 * self.source_stride(level) } else { 1 }
    }

    /// Spectra of a frame.
    pub fn spectra(&self) -> usize {
        self.upsample_rates.iter().product()
    }

    /// Numbers of a spectrum: real parts, then imaginary ones.
    pub fn bins(&self) -> usize {
        self.istft.0 + 2
    }

    /// Samples of a frame.
    pub fn samples_per_frame(&self) -> usize {
        self.spectra() * self.istft.1
    }

    /// Frames after a frame that are known before it is decoded: those of the first convolution, and those of the pitch
    /// of the frame after it, whose samples the last spectra of the frame see.
    pub fn look_ahead(&self) -> usize {
        self.conv_pre_look_right.max(PITCH_LOOK_AHEAD + 1)
    }
}
