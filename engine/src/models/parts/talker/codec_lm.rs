//! Language model over codec ids: the layers, the embedding table, and the head for the logits of a frame's first code.

use repartee_kernels::{Ops, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::decoder::{Decoder, DecoderShape, FeedForward};
use crate::models::parts::weights::Weights;

/// Ids at the end of the codec vocabulary that [`allowed_codes`] suppresses.
pub const SUPPRESSED_TAIL: usize = 1024;

/// Codec language model with its embedding table and head.
pub struct CodecLm<O: Ops> {
    /// Number of ids: codes of codebook 0, and special tokens.
    pub vocabulary: usize,
    embedding: O::Weight,
    /// Transformer layers and the last norm.
    pub model: Decoder<O>,
    head: O::Weight,
    /// Mask over the ids: 1 for each id that may be sampled.
    pub allowed_mask: O::Weight,
}

/// Returns a filter of the ids that generation may sample: all but the last [`SUPPRESSED_TAIL`], and `end`, which ends
/// the speech. The references of both families with code predictors hard-code this rule.
pub fn allowed_codes(vocabulary: usize, end: u32) -> impl Fn(usize) -> bool {
    let first_suppressed = vocabulary.saturating_sub(SUPPRESSED_TAIL);
    move |id| id < first_suppressed || id == end as usize
}

impl<O: Ops> CodecLm<O> {
    /// Loads `model` and `codec_head`. The tensor `table` embeds `vocabulary` ids in rows of `width` numbers.
    pub fn load(
        w: &Weights<'_, O>,
        (vocabulary, table, width): (usize, &str, usize),
        shape: DecoderShape,
        feed_forward: impl Fn(usize) -> FeedForward,
        allowed: impl Fn(usize) -> bool,
    ) -> Result<Self, LoadError> {
        let model = w.at("model");
        let allowed: Vec<f32> = (0..vocabulary).map(|id| f32::from(allowed(id))).collect();
        Ok(Self {
            vocabulary,
            embedding: model.table(table, vocabulary, width)?,
            head: w.linear("codec_head.weight", vocabulary, shape.hidden)?,
            model: Decoder::load(&model, shape, feed_forward)?,
            allowed_mask: w.made("allowed codec ids", WeightLayout::Vector, &allowed, &[vocabulary])?,
        })
    }

    /// Embeds codec ids: codes of codebook 0, and special tokens.
    pub fn rows(&self, ops: &O, ids: &O::Index) -> O::T {
        ops.embed_at(&self.embedding, ids)
    }

    /// Runs all layers; returns the rows `at` after the last norm.
    pub fn forward(&self, ops: &O, x: O::T, cache: &mut [O::State], batch: &O::Batch, at: &O::Index) -> O::T {
        let (x, _) = self.model.forward(ops, x, cache, batch, None);
        self.model.norm(ops, &ops.gather_at(&x, at))
    }

    /// Computes logits over the ids from normed rows.
    pub fn logits(&self, ops: &O, hidden: &O::T) -> O::T {
        ops.linear(hidden, &self.head, None)
    }
}
