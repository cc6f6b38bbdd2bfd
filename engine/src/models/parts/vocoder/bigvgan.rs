//! `code2wav_bigvgan_model`: a mel spectrogram to samples, after `Qwen2_5OmniToken2WavBigVGANModel` of
//! transformers 5.23.
//!
//! It looks ahead as far as back, so a stream is decoded in windows: frames with [`BigVgan::context`] frames on either
//! side, whose samples are discarded. The rest has the same bits as a decode of the whole spectrogram. The causal form
//! ([`BigVganConfig::causal`]) takes latents; its activations and its first convolution look ahead.

use repartee_kernels::row_spec::{SegmentSection, SpecSection};
use repartee_kernels::{Activation, Ops, RowSpec, SpecLayout};

use super::config::BigVganConfig;
use super::resampled_snake::{REACH, ResampledSnake, filter};
use super::segment_conv::{SegmentConv, SegmentUpsample, cut};
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Taps of the first and of the last convolution.
const KERNEL: usize = 7;
/// Level at which the spectrogram is clipped, and its reference level, in dB.
const LEAST_DB: f32 = -115.0;
const LOUDEST_DB: f32 = 20.0;

/// One dilation of a residual block: activation, convolution, activation, convolution.
struct Unit<O: Ops> {
    act1: ResampledSnake<O>,
    conv1: SegmentConv<O>,
    act2: ResampledSnake<O>,
    conv2: SegmentConv<O>,
}

struct Level<O: Ops> {
    upsample: SegmentUpsample<O>,
    /// Parallel residual blocks, whose results are averaged.
    blocks: Vec<Vec<Unit<O>>>,
}

/// The vocoder, with all its levels.
pub struct BigVgan<O: Ops> {
    config: BigVganConfig,
    filter: O::Weight,
    first: SegmentConv<O>,
    levels: Vec<Level<O>>,
    last_act: ResampledSnake<O>,
    last: SegmentConv<O>,
}

/// Sections of the row spec for a decode.
#[derive(Debug, Clone)]
pub struct BigVganSections {
    mel: SpecSection,
    /// Lengths of the windows, in rows of the first level and of each level after it.
    windows: Vec<SegmentSection>,
}

impl<O: Ops> BigVgan<O> {
    /// Loads `code2wav_bigvgan_model`; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &BigVganConfig) -> Result<Self, LoadError> {
        let initial = config.upsample_initial_channel;
        let rates = config.upsample_rates.iter().zip(&config.upsample_kernel_sizes);
        let blocks = config.resblock_kernel_sizes.len();
        let residual = |w: &Weights<'_, O>, channels, kernel, dilation| match config.causal {
            true => SegmentConv::load_causal(w, channels, channels, kernel, dilation),
            false => SegmentConv::load(w, channels, channels, kernel, dilation),
        };
        let levels = rates.enumerate().map(|(level, (&rate, &kernel))| {
            let (input, out) = (initial >> level, initial >> (level + 1));
            let sizes = config.resblock_kernel_sizes.iter().zip(&config.resblock_dilation_sizes);
            let block = |(at, (&kernel, dilations)): (usize, (&usize, &Vec<usize>))| {
                let w = w.at("resblocks").at(level * blocks + at);
                let unit = |(at, &dilation): (usize, &usize)| {
                    let (acts, convs) = (w.at("activations"), |list: &str| w.at(list).at(at));
                    Ok(Unit {
                        act1: ResampledSnake::load(&acts.at(2 * at), out)?,
                        conv1: residual(&convs("convs1"), out, kernel, dilation)?,
                        act2: ResampledSnake::load(&acts.at(2 * at + 1), out)?,
                        conv2: residual(&convs("convs2"), out, kernel, 1)?,
                    })
                };
                dilations.iter().enumerate().map(unit).collect::<Result<Vec<_>, LoadError>>()
            };
            let ups = w.at("ups").at(level).at(0);
            Ok(Level {
                upsample: match config.causal {
                    true => SegmentUpsample::load_causal(&ups, out, input, kernel, rate)?,
                    false => SegmentUpsample::load(&ups, out, input, kernel, rate)?,
                },
                blocks: sizes.enumerate().map(block).collect::<Result<_, LoadError>>()?,
            })
        });
        let levels = levels.collect::<Result<Vec<_>, LoadError>>()?;
        let last = initial >> levels.len();
        let (pre, post) = (w.at("conv_pre"), w.at("conv_post"));
        Ok(Self {
            filter: filter(w)?,
            first: match config.causal {
                true => SegmentConv::load_normed(&pre, initial, config.mel_dim, KERNEL, 1)?,
                false => SegmentConv::load(&pre, initial, config.mel_dim, KERNEL, 1)?,
            },
            levels,
            last_act: ResampledSnake::load(&w.at("activation_post"), last)?,
            last: match config.causal {
                true => SegmentConv::load_causal(&post, 1, last, KERNEL, 1)?,
                false => SegmentConv::load_without_bias(&post, 1, last, KERNEL)?,
            },
            config: config.clone(),
        })
    }

    /// Configuration of the vocoder.
    pub fn config(&self) -> &BigVganConfig {
        &self.config
    }

    /// Frames before and after a frame that its samples depend on.
    pub fn context(&self) -> (usize, usize) {
        self.config.context()
    }

    /// Reserves the row spec's sections for a decode of at most `windows` windows with `rows` frames in total.
    pub fn layout(&self, layout: &mut SpecLayout, rows: usize, windows: usize) -> BigVganSections {
        let mel = layout.list(rows * self.config.mel_dim);
        let windows = self.config.scales().map(|scale| layout.segments(scale * rows, windows)).collect();
        BigVganSections { mel, windows }
    }

    /// Fills a row spec with windows: `mel` holds their log-mel frames or latents one window after another, `windows` their
    /// lengths in frames.
    pub fn fill(&self, spec: &mut RowSpec, sections: &BigVganSections, mel: &[f32], windows: &[usize]) {
        // Convert the logarithm of an amplitude to decibels, then to -1..1.
        let db = |ln: f32| (20.0 * std::f32::consts::LOG10_E * ln).max(LEAST_DB) - LOUDEST_DB;
        let level = |ln: f32| (2.0 * ((db(ln) - LEAST_DB) / -LEAST_DB) - 1.0).clamp(-1.0, 1.0);
        let numbers = mel.iter().map(|&number| if self.config.causal { number } else { level(number) });
        spec.set_floats_each(sections.mel, numbers);
        for (&at, scale) in sections.windows.iter().zip(self.config.scales()) {
            spec.set_segments(at, &windows.iter().map(|frames| scale * frames).collect::<Vec<_>>());
        }
    }

    /// Computes the samples of all windows, `[samples, 1]`.
    pub fn forward(&self, ops: &O, spec: &O::Spec, sections: &BigVganSections) -> O::T {
        let windows: Vec<O::Index> = sections.windows.iter().map(|at| ops.index(spec, at.words())).collect();
        let mut x = self.first.forward(ops, &ops.floats(spec, sections.mel, self.config.mel_dim), &windows[0]);
        for (at, level) in self.levels.iter().enumerate() {
            x = level.upsample.forward(ops, &x, &windows[at]);
            let windows = &windows[at + 1];
            let each = level
                .blocks
                .iter()
                .map(|units| units.iter().fold(ops.copy(&x), |x, unit| unit.forward(ops, &x, &self.filter, windows)));
            let sum = each.reduce(|sum, block| ops.add(sum, &block));
            // Validated: a level has a block.
            x = ops.scale_all(sum.unwrap_or(x), 1.0 / level.blocks.len() as f32);
        }
        let windows = &windows[self.levels.len()];
        let x = self.last_act.forward(ops, &x, &self.filter, windows);
        let x = self.last.forward(ops, &x, windows);
        if self.config.causal { ops.activation(x, Activation::Tanh) } else { ops.clamp(x, -1.0, 1.0) }
    }
}

impl<O: Ops> Unit<O> {
    fn forward(&self, ops: &O, x: &O::T, filter: &O::Weight, windows: &O::Index) -> O::T {
        let h = self.act1.forward(ops, x, filter, windows);
        let h = self.conv1.forward(ops, &h, windows);
        let h = self.act2.forward(ops, &h, filter, windows);
        ops.add(self.conv2.forward(ops, &h, windows), x)
    }
}

impl BigVganConfig {
    /// Rows for each mel frame at the first level, and at each level after it.
    fn scales(&self) -> impl Iterator<Item = usize> {
        let after = self.upsample_rates.iter().scan(1, |scale, rate| {
            *scale *= rate;
            Some(*scale)
        });
        std::iter::once(1).chain(after)
    }

    /// Frames before and after a frame that its samples depend on: 34 with the sizes of Qwen2.5-Omni.
    pub fn context(&self) -> (usize, usize) {
        if self.causal {
            return self.causal_context();
        }
        let blocks = self.resblock_kernel_sizes.iter().zip(&self.resblock_dilation_sizes);
        let block = |(kernel, dilations): (&usize, &Vec<usize>)| -> usize {
            dilations.iter().map(|dilation| 2 * REACH + kernel / 2 * dilation + kernel / 2).sum()
        };
        let residual = blocks.map(block).max().unwrap_or_default();
        let last = KERNEL / 2 + REACH;
        let rates = self.upsample_rates.iter().zip(&self.upsample_kernel_sizes);
        // Walk from the samples back to the frames. A row of a transposed convolution's result depends on the rows
        // within its taps after the cut.
        let before =
            |rows: usize, (&rate, &kernel): (&usize, &usize)| (rows + residual + cut(kernel, rate)).div_ceil(rate);
        let frames = rates.rev().fold(last, before) + KERNEL / 2;
        (frames, frames)
    }

    /// The same of the causal form.
    fn causal_context(&self) -> (usize, usize) {
        let dilations = || self.resblock_kernel_sizes.iter().zip(&self.resblock_dilation_sizes);
        let back = |(kernel, dilations): (&usize, &Vec<usize>)| -> usize {
            dilations.iter().map(|dilation| 2 * REACH + (kernel - 1) * (dilation + 1)).sum()
        };
        let ahead = |(_, dilations): (&usize, &Vec<usize>)| 2 * REACH * dilations.len();
        let residual =
            (dilations().map(back).max().unwrap_or_default(), dilations().map(ahead).max().unwrap_or_default());
        let rates = self.upsample_rates.iter().rev();
        // A row of an upsampling's result depends on the row that it is made of, and on the one before.
        let (before, after) = rates.fold((KERNEL - 1 + REACH, REACH), |(before, after), &rate| {
            ((before + residual.0).div_ceil(rate) + 1, (after + residual.1).div_ceil(rate))
        });
        (before + KERNEL / 2, after + KERNEL / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lowest and highest row that a range of results reads, tap by tap.
    fn read(results: (isize, isize), taps: impl Fn(isize) -> Vec<isize>) -> (isize, isize) {
        let (low, high) = (taps(results.0), taps(results.1));
        (low.into_iter().min().unwrap(), high.into_iter().max().unwrap())
    }

    /// Rows that a convolution reads for a row: `before` of its taps stand before it.
    fn taps(kernel: isize, dilation: isize, before: isize) -> impl Fn(isize) -> Vec<isize> {
        move |row| (0..kernel).map(|tap| row + (tap - before) * dilation).collect()
    }

    /// Twelve taps at twice the rate, over activations that each read six taps of the rows.
    fn snake(row: isize) -> Vec<isize> {
        let raised = (0..12).map(|tap| 2 * row + tap - 5);
        raised.flat_map(|at| (0..6).map(move |k| at.div_euclid(2) + at.rem_euclid(2) + k - 3)).collect()
    }

    /// Rows that a row of a transposed convolution reads, of whose result `cut` rows are cut off at the beginning.
    fn upsampled(kernel: isize, rate: isize, cut: isize) -> impl Fn(isize) -> Vec<isize> {
        // Row `i` adds tap `j` to result `rate i + j - cut`.
        move |result| {
            let at = result + cut;
            (0..kernel).filter(|tap| (at - tap).rem_euclid(rate) == 0).map(|tap| (at - tap) / rate).collect()
        }
    }

    #[test]
    fn context_is_what_the_taps_read() {
        for (causal, kernels) in [(false, [11, 7, 4, 4, 4, 4]), (true, [10, 6, 4, 4, 4, 4])] {
            let config = BigVganConfig {
                mel_dim: 80,
                upsample_initial_channel: 1536,
                resblock_kernel_sizes: vec![3, 7, 11],
                resblock_dilation_sizes: vec![vec![1, 3, 5]; 3],
                upsample_rates: vec![5, 3, 2, 2, 2, 2],
                upsample_kernel_sizes: kernels.to_vec(),
                causal,
            };
            let conv = |kernel: isize, dilation| taps(kernel, dilation, if causal { kernel - 1 } else { kernel / 2 });
            let frames = 1000;
            let mut rows = (frames * 240, (frames + 1) * 240 - 1);
            rows = read(read(rows, conv(7, 1)), snake);
            for (&rate, &kernel) in config.upsample_rates.iter().zip(&config.upsample_kernel_sizes).rev() {
                let widest = [3, 7, 11].map(|kernel| {
                    [1, 3, 5].iter().fold(rows, |rows, &dilation| {
                        let rows = read(read(rows, conv(kernel, 1)), snake);
                        read(read(rows, conv(kernel, dilation)), snake)
                    })
                });
                rows = widest[2];
                assert!(widest.iter().all(|each| each.0 >= rows.0 && each.1 <= rows.1), "eleven taps read furthest");
                let cut = if causal { 0 } else { cut(kernel, rate) };
                rows = read(rows, upsampled(kernel as isize, rate as isize, cut as isize));
            }
            rows = read(rows, taps(7, 1, 3));
            let (before, after) = config.context();
            assert_eq!(rows, (frames - before as isize, frames + after as isize), "causal: {causal}");
            assert_eq!((before, after), if causal { (54, 13) } else { (34, 34) });
        }
    }
}
