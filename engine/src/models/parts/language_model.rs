//! Language model over text and audio rows: the token table, the layers, the head, and the rows that it hands to a
//! talker.

use repartee_kernels::Ops;

use super::decoder::{Decoder, DecoderShape, FeedForward};
use super::weights::Weights;
use crate::models::load_error::LoadError;

/// Row of a position that a talker gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandedRow {
    /// The row that enters this layer. The number of layers means the row after the last norm.
    Entering(usize),
    /// The row after the last norm plus the token's embedding; an audio row has no embedding.
    LastAndEmbedding,
}

/// Sizes of a language model, and its form.
#[derive(Debug, Clone, Copy)]
pub struct LanguageModelShape {
    /// Number of ids.
    pub vocabulary: usize,
    /// True if the head's matrix is the token table.
    pub tied: bool,
    /// Shape of the layers.
    pub decoder: DecoderShape,
    /// Row that a talker gets; `None` without a talker.
    pub handed: Option<HandedRow>,
}

/// A language model; the reference calls it the thinker.
pub struct LanguageModel<O: Ops> {
    /// `model.embed_tokens`; a talker's text rows start from it too. Without `lm_head` it is the head's matrix.
    pub embed_tokens: O::Weight,
    /// Transformer layers and the last norm.
    pub model: Decoder<O>,
    lm_head: Option<O::Weight>,
    shape: LanguageModelShape,
}

impl<O: Ops> LanguageModel<O> {
    /// Loads `model.embed_tokens.weight`, the layers and the norm below `model` ([`Decoder::load`]), and `lm_head.weight`
    /// if the head is not tied; `feed_forward` gives the block of each layer.
    pub fn load(
        w: &Weights<'_, O>,
        shape: LanguageModelShape,
        feed_forward: impl Fn(usize) -> FeedForward,
    ) -> Result<Self, LoadError> {
        Self::load_parts(w, &w.at("model"), shape, feed_forward)
    }

    /// As [`LanguageModel::load`], with `inner` in the place of `model`, and the head below `w`.
    pub fn load_parts(
        w: &Weights<'_, O>,
        inner: &Weights<'_, O>,
        shape: LanguageModelShape,
        feed_forward: impl Fn(usize) -> FeedForward,
    ) -> Result<Self, LoadError> {
        let (vocabulary, width) = (shape.vocabulary, shape.decoder.hidden);
        let embeddings = "embed_tokens.weight";
        let (embed_tokens, lm_head) = if shape.tied {
            inner.tied(embeddings, vocabulary, width)?
        } else {
            (inner.table(embeddings, vocabulary, width)?, Some(w.linear("lm_head.weight", vocabulary, width)?))
        };
        Ok(Self { embed_tokens, model: Decoder::load(inner, shape.decoder, feed_forward)?, lm_head, shape })
    }

    /// Number of ids.
    pub fn vocabulary(&self) -> usize {
        self.shape.vocabulary
    }

    /// Width of a row.
    pub fn width(&self) -> usize {
        self.shape.decoder.hidden
    }
}

impl<O: Ops> LanguageModel<O> {
    /// Embeds tokens by `ids`; `audio` holds the indices of rows to replace, and their audio rows.
    pub fn embed(&self, ops: &O, ids: &O::Index, audio: Option<(&O::Index, &O::T)>) -> O::T {
        let x = ops.embed_at(&self.embed_tokens, ids);
        match audio {
            Some((at, audio)) => ops.scatter_at(x, at, audio),
            None => x,
        }
    }

    /// Runs all layers over the rows `x` of the tokens `ids`. Returns the rows before the last norm, and those for a
    /// talker, if there is one.
    pub fn forward(
        &self,
        ops: &O,
        x: O::T,
        ids: &O::Index,
        cache: &mut [O::State],
        batch: &O::Batch,
    ) -> (O::T, Option<O::T>) {
        let tap = self.shape.handed.map(|handed| match handed {
            HandedRow::Entering(layer) => layer,
            HandedRow::LastAndEmbedding => self.shape.decoder.layers,
        });
        let (x, tapped) = self.model.forward(ops, x, cache, batch, tap);
        let handed = match self.shape.handed {
            Some(HandedRow::LastAndEmbedding) => {
                tapped.map(|last| ops.add(last, &ops.embed_at(&self.embed_tokens, ids)))
            }
            Some(HandedRow::Entering(_)) | None => tapped,
        };
        (x, handed)
    }

    /// Computes logits of the rows `at`.
    pub fn logits(&self, ops: &O, x: &O::T, at: &O::Index) -> O::T {
        self.head(ops, &self.model.norm(ops, &ops.gather_at(x, at)))
    }

    /// Computes logits of normed rows.
    pub fn head(&self, ops: &O, normed: &O::T) -> O::T {
        ops.linear(normed, self.lm_head.as_ref().unwrap_or(&self.embed_tokens), None)
    }
}
