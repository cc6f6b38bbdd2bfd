//! `ProsodyPredictor`: durations, pitch and loudness of phonemes in a style.

use repartee_kernels::{Ops, WeightLayout};

use super::config::Config;
use crate::models::load_error::LoadError;
use crate::models::parts::lstm::BidirectionalLstm;
use crate::models::parts::vocoder::istft_net::blocks::StyleBlock;
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
    pitch: Curve<O>,
    loudness: Curve<O>,
}

/// LSTM, and norm with a style.
struct DurationLayer<O: Ops> {
    lstm: BidirectionalLstm<O>,
    style: (O::Weight, O::Weight),
}

/// One value for each half frame.
struct Curve<O: Ops> {
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

    fn forward(&self, ops: &O, x: &O::T, style: &O::T, frames: &O::Index, halves: &O::Index) -> O::T {
        let [first, second, third] = &self.blocks;
        let x = second.forward(ops, &first.forward(ops, x, style, frames, frames), style, frames, halves);
        self.proj.forward(ops, &third.forward(ops, &x, style, halves, halves), halves)
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

    /// Encodes rows of PL-BERT for durations and prosody; `style` has a row for each segment, `styled` the segment of each
    /// row. The style stands beside each row of the result.
    pub fn encode(&self, ops: &O, x: O::T, style: &O::T, styled: &O::Index, segments: &O::Index) -> O::T {
        let styles = ops.gather_at(style, styled);
        self.layers.iter().fold(ops.concat_columns(&[&x, &styles]), |x, layer| {
            let x = layer.lstm.forward(ops, &x, segments);
            let (weight, bias) = &self.plain_norm;
            let x = ops.layer_norm(&x, weight, bias, EPSILON);
            let (weight, bias) = &layer.style;
            let affine = ops.gather_at(&ops.linear(style, weight, Some(bias)), styled);
            let width = self.width;
            let scaled = ops.mul(ops.narrow(&affine, 0, width), &x);
            let x = ops.add(ops.add(scaled, &x), &ops.narrow(&affine, width, width));
            ops.concat_columns(&[&x, &styles])
        })
    }

    /// Computes the logits of a phoneme's frames, of which the sigmoids' sum is its duration.
    pub fn durations(&self, ops: &O, encoded: &O::T, segments: &O::Index) -> O::T {
        let (weight, bias) = &self.duration_proj;
        ops.linear(&self.lstm.forward(ops, encoded, segments), weight, Some(bias))
    }

    /// Computes pitch in Hz and loudness, two values each for a frame; `frames` are the segments of the encoded rows, one
    /// for each frame, `halves` those of the values.
    pub fn curves(&self, ops: &O, encoded: &O::T, style: &O::T, frames: &O::Index, halves: &O::Index) -> [O::T; 2] {
        let x = self.shared.forward(ops, encoded, frames);
        [&self.pitch, &self.loudness].map(|curve| curve.forward(ops, &x, style, frames, halves))
    }
}
