//! `TextEncoder`: phonemes to rows, by convolutions and an LSTM.

use repartee_kernels::Ops;

use super::config::Config;
use crate::models::load_error::LoadError;
use crate::models::parts::lstm::BidirectionalLstm;
use crate::models::parts::vocoder::istft_net::blocks::slope;
use crate::models::parts::vocoder::segment_conv::SegmentConv;
use crate::models::parts::weights::Weights;

/// Number added to a variance in norms: torch's default.
const EPSILON: f32 = 1e-5;
/// Factor of negative numbers.
const SLOPE: f32 = 0.2;

/// Encoder from ids to rows of `hidden_dim` numbers.
pub struct TextEncoder<O: Ops> {
    embedding: O::Weight,
    layers: Vec<Layer<O>>,
    lstm: BidirectionalLstm<O>,
}

struct Layer<O: Ops> {
    conv: SegmentConv<O>,
    gamma: O::Weight,
    beta: O::Weight,
}

impl<O: Ops> TextEncoder<O> {
    /// Loads the encoder; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &Config) -> Result<Self, LoadError> {
        let width = config.hidden_dim;
        let layer = |at: usize| {
            let w = w.at("cnn").at(at);
            let (conv, norm) = (w.at(0), w.at(1));
            Ok(Layer {
                conv: SegmentConv::load_normed(&conv, width, width, config.text_encoder_kernel_size, 1)?,
                gamma: norm.vector("gamma", width)?,
                beta: norm.vector("beta", width)?,
            })
        };
        Ok(Self {
            embedding: w.table("embedding.weight", config.plbert.vocab_size, width)?,
            layers: (0..config.n_layer).map(layer).collect::<Result<_, LoadError>>()?,
            lstm: BidirectionalLstm::load(&w.at("lstm"), width, width / 2)?,
        })
    }

    /// Encodes the ids of segments.
    pub fn forward(&self, ops: &O, ids: &O::Index, segments: &O::Index) -> O::T {
        let x = self.layers.iter().fold(ops.embed_at(&self.embedding, ids), |x, layer| {
            let x = layer.conv.forward(ops, &x, segments);
            ops.activation(ops.layer_norm(&x, &layer.gamma, &layer.beta, EPSILON), slope(SLOPE))
        });
        self.lstm.forward(ops, &x, segments)
    }
}
