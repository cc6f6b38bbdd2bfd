//! `ProsodyPredictor`: durations, pitch and loudness of phonemes in a style.

use std::ops::ControlFlow::{self, Break, Continue};

use repartee_kernels::{Ops, WeightLayout};

use super::config::Config;
use crate::models::load_error::LoadError;
use crate::models::parts::lists::{list, one_segment};
use crate::models::parts::lstm::BidirectionalLstm;
use crate::models::parts::vocoder::istft_net::blocks::{StyleBlock, StyleBlockWork};
use crate::models::parts::vocoder::segment_conv::SegmentConv;
use crate::models::parts::weights::Weights;

/// Number added to a variance in norms.
const EPSILON: f32 = 1e-5;

/// Predictor of a phoneme's frames, and of pitch and loudness of each frame.
pub struct ProsodyPredictor<O: Ops> {
    /// Width of a row without its style.
    width: usize,
    layers: Vec<DurationLayer<O>>,
    /// Factors and addends of a norm without a style.
    plain_norm: (O::Weight, O::Weight),
    lstm: BidirectionalLstm<O>,
    duration_proj: (O::Weight, O::Weight),
    shared: BidirectionalLstm<O>,
    /// Pitch in Hz.
    pub pitch: Curve<O>,
    /// Logarithms of the loudness.
    pub loudness: Curve<O>,
}

/// LSTM, and norm with a style.
struct DurationLayer<O: Ops> {
    lstm: BidirectionalLstm<O>,
    style: (O::Weight, O::Weight),
}

/// One value for each half frame.
pub struct Curve<O: Ops> {
    blocks: [StyleBlock<O>; 3],
    proj: SegmentConv<O>,
}

impl<O: Ops> Curve<O> {
    fn load(w: &Weights<'_, O>, name: &str, config: &Config) -> Result<Self, LoadError> {
        let (width, half, style) = (config.hidden_dim, config.hidden_dim / 2, config.style_dim);
        let block = |at: usize, sizes, doubles| StyleBlock::load(&w.at(name).at(at), sizes, style, doubles);
        Ok(Self {
            blocks: [block(0, (width, width), false)?, block(1, (width, half), true)?, block(2, (half, half), false)?],
            proj: SegmentConv::load(&w.at(format!("{name}_proj")), 1, half, 1, 1)?,
        })
    }

    /// Begins the values of frames from the rows that both curves are predicted from.
    pub fn begin(&self, ops: &O, shared: &O::T, style: &O::T) -> CurveWork<O> {
        CurveWork { done: 0, block: self.blocks[0].begin(ops, shared, style) }
    }
}

/// A curve that is computed in units.
pub struct CurveWork<O: Ops> {
    /// Blocks that are done.
    done: usize,
    block: StyleBlockWork<O>,
}

impl<O: Ops> CurveWork<O> {
    /// Computes a unit of at most about `most` multiplications; returns two values for each frame once all are there.
    pub fn step(self, ops: &O, curve: &Curve<O>, style: &O::T, most: usize) -> ControlFlow<O::T, Self> {
        let Self { done, block } = self;
        match (block.step(ops, &curve.blocks[done], style, most), curve.blocks.get(done + 1)) {
            (Continue(block), _) => Continue(Self { done, block }),
            (Break(x), Some(next)) => Continue(Self { done: done + 1, block: next.begin(ops, &x, style) }),
            (Break(x), None) => Break(curve.proj.forward(ops, &x, &one_segment(ops, ops.rows(&x)))),
        }
    }
}

impl<O: Ops> ProsodyPredictor<O> {
    /// Loads the predictor; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &Config) -> Result<Self, LoadError> {
        let (width, style) = (config.hidden_dim, config.style_dim);
        let lstm = |w: Weights<'_, O>| BidirectionalLstm::load(&w, width + style, width / 2);
        let layer = |at: usize| {
            let lstms = w.at("text_encoder.lstms");
            let norm = lstms.at(2 * at + 1).at("fc");
            let style = (norm.linear("weight", 2 * width, style)?, norm.vector("bias", 2 * width)?);
            Ok(DurationLayer { lstm: lstm(lstms.at(2 * at))?, style })
        };
        let plain = |number: f32| w.made("norm", WeightLayout::Vector, &vec![number; width], &[width]);
        let proj = w.at("duration_proj.linear_layer");
        Ok(Self {
            width,
            layers: (0..config.n_layer).map(layer).collect::<Result<_, LoadError>>()?,
            plain_norm: (plain(1.0)?, plain(0.0)?),
            lstm: lstm(w.at("lstm"))?,
            duration_proj: (proj.linear("weight", config.max_dur, width)?, proj.vector("bias", config.max_dur)?),
            shared: lstm(w.at("shared"))?,
            pitch: Curve::load(w, "F0", config)?,
            loudness: Curve::load(w, "N", config)?,
        })
    }

    /// Puts the style beside rows of PL-BERT.
    pub fn styled(&self, ops: &O, x: &O::T, style: &O::T) -> O::T {
        ops.concat_columns(&[x, &repeated(ops, style, ops.rows(x))])
    }

    /// Layers that encode rows for durations and prosody.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Applies one of the layers to rows with the style beside them.
    pub fn encode(&self, ops: &O, layer: usize, x: &O::T, style: &O::T) -> O::T {
        let (layer, rows, width) = (&self.layers[layer], ops.rows(x), self.width);
        let x = layer.lstm.forward(ops, x, &one_segment(ops, rows));
        let (weight, bias) = &self.plain_norm;
        let x = ops.layer_norm(&x, weight, bias, EPSILON);
        let (weight, bias) = &layer.style;
        let affine = repeated(ops, &ops.linear(style, weight, Some(bias)), rows);
        let scaled = ops.mul(ops.narrow(&affine, 0, width), &x);
        let x = ops.add(ops.add(scaled, &x), &ops.narrow(&affine, width, width));
        self.styled(ops, &x, style)
    }

    /// Computes the logits of a phoneme's frames, of which the sigmoids' sum is its duration.
    pub fn durations(&self, ops: &O, encoded: &O::T) -> O::T {
        let (weight, bias) = &self.duration_proj;
        ops.linear(&self.lstm.forward(ops, encoded, &one_segment(ops, ops.rows(encoded))), weight, Some(bias))
    }

    /// Computes the rows that pitch and loudness are predicted from, of encoded rows, one for each frame.
    pub fn shared(&self, ops: &O, encoded: &O::T) -> O::T {
        self.shared.forward(ops, encoded, &one_segment(ops, ops.rows(encoded)))
    }
}

/// Repeats the only row of `x`.
fn repeated<O: Ops>(ops: &O, x: &O::T, rows: usize) -> O::T {
    ops.gather_at(x, &list(ops, &vec![0; rows]))
}
