//! A language model over codec ids: the layers, the table that its rows are made of, and the head that gives the logits of a frame's first
//! code.

use repartee_kernels::{WeightLayout, StepOps};

use super::decoder::{Decoder, FeedForward, DecoderShape};
use super::weights::Weights;
use crate::models::LoadError;

/// Ids at the end of the codec vocabulary that generation suppresses where [`spoken`] says so.
pub const SUPPRESSED_TAIL: usize = 1024;

/// The model.
pub struct CodecLm<O: StepOps> {
    /// Ids: codes of codebook 0, and marks.
    pub vocabulary: usize,
    embedding: O::Weight,
    /// The layers.
    pub model: Decoder<O>,
    head: O::Weight,
    /// 1 for each id that may be chosen.
    pub allowed_mask: O::Weight,
}

/// Whether generation may choose an id of a vocabulary in which `end` ends the speech: not of the last [`SUPPRESSED_TAIL`], but for
/// `end`. The references of both families with code predictors hard-code it.
pub fn allowed_codes(vocabulary: usize, end: u32) -> impl Fn(usize) -> bool {
    let first_suppressed = vocabulary.saturating_sub(SUPPRESSED_TAIL);
    move |id| id < first_suppressed || id == end as usize
}

impl<O: StepOps> CodecLm<O> {
    /// Loads `model`, of which `table` embeds ids in rows of `width` numbers, and `codec_head`.
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

    /// Embeddings of codec ids: codes of codebook 0, and marks.
    pub fn rows(&self, ops: &O, ids: &O::Index) -> O::T {
        ops.embed_at(&self.embedding, ids)
    }

    /// All layers; returns the rows `at` after the last norm.
    pub fn forward(&self, ops: &O, x: O::T, cache: &mut [O::State], batch: &O::Batch, at: &O::Index) -> O::T {
        let (x, _) = self.model.forward(ops, x, cache, batch, None);
        self.model.norm(ops, &ops.gather_at(&x, at))
    }

    /// Logits of ids for normed rows.
    pub fn logits(&self, ops: &O, hidden: &O::T) -> O::T {
        ops.linear(hidden, &self.head, None)
    }
}
