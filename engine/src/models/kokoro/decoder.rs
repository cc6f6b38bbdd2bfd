//! `Decoder` before its generator: phonemes' rows, pitch and loudness of each frame to features at twice its rate.

use std::ops::ControlFlow::{self, Break, Continue};

use repartee_kernels::Ops;

use super::config::Config;
use crate::models::load_error::LoadError;
use crate::models::parts::lists::one_segment;
use crate::models::parts::vocoder::istft_net::blocks::{StyleBlock, StyleBlockWork};
use crate::models::parts::vocoder::segment_conv::SegmentConv;
use crate::models::parts::weights::Weights;

/// Blocks after the first one; the last of them doubles the rows.
const BLOCKS: usize = 4;
/// Taps of the convolutions of pitch and loudness, which halve their rate.
const CURVE_TAPS: usize = 3;

/// The decoder's trunk.
pub struct DecoderTrunk<O: Ops> {
    /// The first one takes no residual rows.
    blocks: Vec<StyleBlock<O>>,
    residual: SegmentConv<O>,
    /// Taps of pitch and of loudness, and the number added.
    curves: [([f32; CURVE_TAPS], f32); 2],
}

/// Features that are computed in units.
pub struct TrunkWork<O: Ops> {
    residual: O::T,
    curves: O::T,
    /// Blocks that are done.
    done: usize,
    block: StyleBlockWork<O>,
}

impl<O: Ops> DecoderTrunk<O> {
    /// Loads the trunk; `w` is the decoder's prefix.
    pub fn load(w: &Weights<'_, O>, config: &Config) -> Result<Self, LoadError> {
        let (width, residual) = (config.decoder_dim, config.residual_dim);
        let block = |at: usize| {
            let last = at + 1 == BLOCKS;
            let out = if last { config.istftnet.channels(0) } else { width };
            StyleBlock::load(&w.at("decode").at(at), (width + 2 + residual, out), config.style_dim, last)
        };
        let first = || StyleBlock::load(&w.at("encode"), (config.hidden_dim + 2, width), config.style_dim, false);
        let curve = |name: &str| -> Result<_, LoadError> {
            let w = w.at(name);
            let taps = w.normed("weight", &[1, 1, CURVE_TAPS])?;
            Ok(([taps[0], taps[1], taps[2]], w.values("bias", &[1])?[0]))
        };
        Ok(Self {
            blocks: std::iter::once(first()).chain((0..BLOCKS).map(block)).collect::<Result<_, _>>()?,
            residual: SegmentConv::load_normed(&w.at("asr_res.0"), residual, config.hidden_dim, 1, 1)?,
            curves: [curve("F0_conv")?, curve("N_conv")?],
        })
    }

    /// Computes pitch and loudness at the rate of frames: rows of both.
    pub fn halved(&self, pitch: &[f32], loudness: &[f32]) -> Vec<f32> {
        let at = |curve: &[f32], (taps, bias): &([f32; CURVE_TAPS], f32), frame: usize| {
            let value = |tap: usize| (2 * frame + tap).checked_sub(1).and_then(|at| curve.get(at)).copied();
            taps.iter().enumerate().fold(*bias, |sum, (tap, by)| sum + by * value(tap).unwrap_or(0.0))
        };
        let [first, second] = &self.curves;
        let frame = |frame: usize| [at(pitch, first, frame), at(loudness, second, frame)];
        (0..pitch.len() / 2).flat_map(frame).collect()
    }

    /// Begins the features of the phonemes' rows `text` and the `curves` at the rate of frames.
    pub fn begin(&self, ops: &O, text: &O::T, curves: O::T, style: &O::T) -> TrunkWork<O> {
        let residual = self.residual.forward(ops, text, &one_segment(ops, ops.rows(text)));
        let block = self.blocks[0].begin(ops, &ops.concat_columns(&[text, &curves]), style);
        TrunkWork { residual, curves, done: 0, block }
    }

    /// Computes a unit of at most about `most` multiplications; returns the features, two rows for each frame, once they
    /// are whole.
    pub fn step(&self, ops: &O, work: TrunkWork<O>, style: &O::T, most: usize) -> ControlFlow<O::T, TrunkWork<O>> {
        let TrunkWork { residual, curves, done, block } = work;
        match (block.step(ops, &self.blocks[done], style, most), self.blocks.get(done + 1)) {
            (Continue(block), _) => Continue(TrunkWork { residual, curves, done, block }),
            (Break(x), None) => Break(x),
            (Break(x), Some(next)) => {
                let block = next.begin(ops, &ops.concat_columns(&[&x, &residual, &curves]), style);
                Continue(TrunkWork { residual, curves, done: done + 1, block })
            }
        }
    }
}
