//! HiFT: mel frames to samples, causal, after `CausalHiFTGenerator` of CosyVoice's `hifigan/generator.py`. A pitch
//! predictor and a harmonic source give spectra of an excitation; convolutions mix them into the frames on three levels, and
//! give spectra that an inverse Fourier transform turns into samples.
//!
//! Each frame is decoded once, with all state carried, so any split of a stream has the bits of one decode. A frame is
//! decoded once the [`HiftConfig::look_ahead`] frames after it are known; its last samples come with the next frame.
//!
//! - [`config`]: sizes of its layers
//! - [`pitch`], [`source`]: pitch and excitation, on the host in double precision
//! - [`layers`]: convolutions over streams
//! - [`stage`]: the stage

pub mod config;
pub mod layers;
pub mod pitch;
pub mod source;
pub mod stage;

use repartee_kernels::row_spec::{SpecSection, StreamSection};
use repartee_kernels::{Activation, NO_ROW, Ops, RowSpec, SpecLayout, StreamLevel, StreamRows, WeightLayout};

use self::config::HiftConfig;
use self::layers::{CausalBlock, StreamConv};
use self::pitch::PitchPredictor;
use self::source::HarmonicSource;
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Taps of the last convolution.
const LAST_TAPS: usize = 7;
/// Factor of negative numbers before the last convolution: torch's default.
const LAST_SLOPE: f32 = 0.01;

/// The vocoder with its pitch predictor and source.
pub struct Hift<O: Ops> {
    config: HiftConfig,
    /// Predictor of the pitch.
    pub pitch: PitchPredictor,
    /// Source of the excitation.
    pub source: HarmonicSource,
    /// First convolution, as a product over the frames that a frame reads.
    first: (O::Weight, O::Weight),
    levels: Vec<HiftLevel<O>>,
    last: StreamConv<O>,
}

/// One factor of upsampling.
struct HiftLevel<O: Ops> {
    upsample: StreamConv<O>,
    /// Convolution of the source's spectra, as a product over those that a row reads.
    down: (O::Weight, O::Weight),
    source_block: CausalBlock<O>,
    /// Parallel residual blocks, whose results are averaged.
    blocks: Vec<CausalBlock<O>>,
}

/// Sections of the row spec for a decode.
#[derive(Debug, Clone)]
pub struct HiftSections {
    mel: SpecSection,
    levels: Vec<LevelSections>,
    /// Row of the last level's upsampling for each row of its result: the first row of a stream is the second one of it.
    mirrored: SpecSection,
}

#[derive(Debug, Clone)]
struct LevelSections {
    /// Row of the level below for each row.
    repeated: SpecSection,
    /// Streams of the upsampling, and of its result, which has one row more at a stream's start on the last level.
    upsampled: StreamSection,
    rows: StreamSection,
    source: SpecSection,
}

/// Frames of a stream in a step.
#[derive(Debug, Clone)]
pub struct HiftPiece {
    /// Slot, first frame and number of frames.
    pub frames: StreamRows,
    /// For each frame, it and those after it that the first convolution reads.
    pub mel: Vec<f32>,
    /// For each level, the spectra that its rows read.
    pub source: Vec<Vec<f32>>,
}

impl HiftConfig {
    /// Rows of a level's result for a stream's next frames, and the first of them.
    pub fn rows(&self, level: usize, frames: StreamRows) -> StreamRows {
        let scale = self.scale(level);
        let (from, to) = (frames.position * scale, (frames.position + frames.rows) * scale);
        let more = usize::from(level + 1 == self.upsample_rates.len());
        let from = if frames.position == 0 { 0 } else { from + more };
        StreamRows { slot: frames.slot, position: from, rows: to + more - from }
    }
}

impl<O: Ops> Hift<O> {
    /// Loads the vocoder; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &HiftConfig) -> Result<Self, LoadError> {
        let linear = |w: &Weights<'_, O>, [out, channels, taps]: [usize; 3]| -> Result<_, LoadError> {
            let values = w.normed("weight", &[out, channels, taps])?;
            let mut by_tap = Vec::with_capacity(values.len());
            for row in values.chunks_exact(channels * taps) {
                by_tap.extend((0..taps).flat_map(|tap| (0..channels).map(move |channel| row[channel * taps + tap])));
            }
            let shape = [out, channels * taps];
            Ok((w.made("weight", WeightLayout::Linear, &by_tap, &shape)?, w.vector("bias", out)?))
        };
        let blocks = config.resblock_kernel_sizes.len();
        let level = |at: usize| -> Result<_, LoadError> {
            let (out, rate) = (config.channels(at), config.upsample_kernel_sizes[at]);
            let sizes = config.resblock_kernel_sizes.iter().zip(&config.resblock_dilation_sizes).enumerate();
            let block = |(number, (&kernel, dilations)): (usize, (&usize, &Vec<usize>))| {
                CausalBlock::load(&w.at("resblocks").at(at * blocks + number), out, (kernel, dilations))
            };
            let source = (config.source_resblock_kernel_sizes[at], &config.source_resblock_dilation_sizes[at][..]);
            Ok(HiftLevel {
                upsample: StreamConv::load(&w.at("ups").at(at), [out, config.base_channels >> at, rate], 1)?,
                down: linear(&w.at("source_downs").at(at), [out, config.bins(), config.source_taps(at)])?,
                source_block: CausalBlock::load(&w.at("source_resblocks").at(at), out, source)?,
                blocks: sizes.map(block).collect::<Result<_, _>>()?,
            })
        };
        let levels = (0..config.upsample_rates.len()).map(level).collect::<Result<Vec<_>, _>>()?;
        let mix = w.at("m_source.l_linear");
        let factors = mix.values("weight", &[1, config.nb_harmonics + 1])?;
        let last = [config.bins(), config.base_channels >> levels.len(), LAST_TAPS];
        Ok(Self {
            pitch: PitchPredictor::load(&w.at("f0_predictor"), config)?,
            source: HarmonicSource::new(config, factors, mix.values("bias", &[1])?[0]),
            first: linear(
                &w.at("conv_pre"),
                [config.base_channels, config.in_channels, config.conv_pre_look_right + 1],
            )?,
            levels,
            last: StreamConv::load(&w.at("conv_post"), last, 1)?,
            config: config.clone(),
        })
    }

    /// Sizes of the vocoder.
    pub fn config(&self) -> &HiftConfig {
        &self.config
    }

    fn convolutions(&self) -> impl Iterator<Item = &StreamConv<O>> {
        let levels = self.levels.iter().flat_map(|level| {
            let blocks = level.blocks.iter().flat_map(CausalBlock::convolutions);
            std::iter::once(&level.upsample).chain(level.source_block.convolutions()).chain(blocks)
        });
        levels.chain([&self.last])
    }

    /// Creates the state of `slots` streams.
    pub fn state(&self, ops: &O, slots: usize) -> Vec<O::State> {
        self.convolutions().map(|conv| conv.tail(ops, slots)).collect()
    }

    /// Bytes of one stream's state.
    pub fn slot_bytes(&self) -> usize {
        self.convolutions().map(StreamConv::tail_bytes).sum()
    }

    /// Numbers that [`Hift::forward`] gives for a stream's next frames.
    pub fn numbers(&self, frames: StreamRows) -> usize {
        self.config.rows(self.levels.len() - 1, frames).rows * self.config.bins()
    }

    /// Reserves the row spec's sections for a step of `frames` frames.
    pub fn layout(&self, layout: &mut SpecLayout, frames: usize) -> HiftSections {
        let config = &self.config;
        let mel = layout.list(frames * config.in_channels * (config.conv_pre_look_right + 1));
        let count = self.levels.len();
        let level = |at: usize| {
            let rows = frames * config.scale(at);
            // Each piece has a frame, and may begin a stream.
            let more = if at + 1 == count { frames } else { 0 };
            LevelSections {
                repeated: layout.list(rows),
                upsampled: layout.streams(rows, frames),
                rows: layout.streams(rows + more, frames),
                source: layout.list((rows + more) * config.source_taps(at) * config.bins()),
            }
        };
        let levels = (0..count).map(level).collect();
        HiftSections { mel, levels, mirrored: layout.list(frames * config.spectra() + frames) }
    }

    /// Fills a row spec with the next frames of several streams.
    pub fn fill(&self, spec: &mut RowSpec, sections: &HiftSections, pieces: &[HiftPiece]) {
        let config = &self.config;
        spec.set_floats_each(sections.mel, pieces.iter().flat_map(|piece| piece.mel.iter().copied()));
        for (at, level) in sections.levels.iter().enumerate() {
            let (scale, rate) = (config.scale(at), config.upsample_rates[at]);
            spec.set_each(level.repeated, (0..level.repeated.capacity()).map(|row| (row / rate) as u32));
            let upsampled = |StreamRows { slot, position, rows }: StreamRows| StreamRows {
                slot,
                position: position * scale,
                rows: rows * scale,
            };
            let chunks = |of: &dyn Fn(StreamRows) -> StreamRows| -> Vec<StreamRows> {
                pieces.iter().map(|piece| of(piece.frames)).collect()
            };
            spec.set_streams(level.upsampled, &chunks(&upsampled));
            spec.set_streams(level.rows, &chunks(&|frames| config.rows(at, frames)));
            spec.set_floats_each(level.source, pieces.iter().flat_map(|piece| piece.source[at].iter().copied()));
        }
        let mut mirrored = Vec::with_capacity(sections.mirrored.capacity());
        let mut row = 0;
        for StreamRows { position, rows, .. } in pieces.iter().map(|piece| piece.frames) {
            let end = row + (rows * config.spectra()) as u32;
            if position == 0 {
                mirrored.push(if end > row + 1 { row + 1 } else { row });
            }
            mirrored.extend(row..end);
            row = end;
        }
        mirrored.resize(sections.mirrored.capacity(), NO_ROW);
        spec.set(sections.mirrored, &mirrored);
    }

    /// Computes the numbers of all spectra: logarithms of magnitudes, then the arguments of angles.
    pub fn forward(&self, ops: &O, (spec, sections): (&O::Spec, &HiftSections), state: &mut [O::State]) -> O::T {
        let leaky = |x: O::T, slope: f32| ops.activation(x, Activation::LeakyRelu { slope });
        let level_of = |section: StreamSection| StreamLevel::new(ops.index(spec, section.words()));
        let mut tails = state.iter_mut();
        let width = self.config.in_channels * (self.config.conv_pre_look_right + 1);
        let mut x = ops.linear(&ops.floats(spec, sections.mel, width), &self.first.0, Some(&self.first.1));
        let count = self.levels.len();
        for (at, (level, section)) in self.levels.iter().zip(&sections.levels).enumerate() {
            x = ops.gather_at(&leaky(x, self.config.lrelu_slope), &ops.index(spec, section.repeated));
            if let Some(tail) = tails.next() {
                x = level.upsample.forward(ops, &x, tail, &level_of(section.upsampled));
            }
            if at + 1 == count {
                x = ops.gather_at(&x, &ops.index(spec, sections.mirrored));
            }
            let rows = level_of(section.rows);
            let width = self.config.source_taps(at) * self.config.bins();
            let source = ops.linear(&ops.floats(spec, section.source, width), &level.down.0, Some(&level.down.1));
            x = ops.add(x, &level.source_block.forward(ops, source, &mut tails, &rows));
            let blocks: Vec<O::T> =
                level.blocks.iter().map(|block| block.forward(ops, ops.copy(&x), &mut tails, &rows)).collect();
            let sum = blocks.into_iter().reduce(|sum, block| ops.add(sum, &block));
            // Validated: a level has a block.
            x = ops.scale_all(sum.unwrap_or(x), 1.0 / level.blocks.len() as f32);
        }
        x = leaky(x, LAST_SLOPE);
        match (tails.next(), sections.levels.last()) {
            (Some(tail), Some(section)) => self.last.forward(ops, &x, tail, &level_of(section.rows)),
            _ => x,
        }
    }
}
