//! ALBERT: an encoder whose layers share their weights, after `AlbertModel` of transformers 5.23.

use repartee_kernels::{Activation, Ops, SegmentShape, WeightLayout};

use super::config::ConfigSection;
use super::config::limits::{HEADS, INNER, LAYERS, VOCABULARY, WIDTH, WINDOW};
use super::weights::Weights;
use crate::checkpoint::CheckpointError;
use crate::models::load_error::LoadError;

/// Sizes of the encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct AlbertConfig {
    /// Number of ids.
    pub vocab_size: usize,
    /// Width of an embedding.
    pub embedding_size: usize,
    /// Width of a row.
    pub hidden_size: usize,
    /// Width inside a feed-forward block.
    pub intermediate_size: usize,
    /// Times that the layer is applied.
    pub num_hidden_layers: usize,
    /// Heads of attention.
    pub num_attention_heads: usize,
    /// Most positions of a text.
    pub max_position_embeddings: usize,
    /// Number added to a variance in norms.
    pub layer_norm_eps: f32,
}

impl AlbertConfig {
    /// Reads the section of an encoder of `vocab_size` ids.
    pub fn read(at: &ConfigSection<'_>, vocab_size: usize) -> Result<Self, CheckpointError> {
        at.only("hidden_act", "gelu_new")?;
        at.only("num_hidden_groups", 1)?;
        at.only("inner_group_num", 1)?;
        at.check("vocab_size", vocab_size, VOCABULARY.contains(&vocab_size), "the size of the vocabulary")?;
        let num_attention_heads = at.size("num_attention_heads", 64, HEADS)?;
        Ok(Self {
            vocab_size,
            embedding_size: at.size("embedding_size", 128, WIDTH)?,
            hidden_size: at.multiple("hidden_size", 4096, WIDTH, ("num_attention_heads", num_attention_heads))?,
            intermediate_size: at.size("intermediate_size", 16_384, INNER)?,
            num_hidden_layers: at.size("num_hidden_layers", 12, LAYERS)?,
            num_attention_heads,
            max_position_embeddings: at.size("max_position_embeddings", 512, WINDOW)?,
            layer_norm_eps: at.epsilon("layer_norm_eps", 1e-12)? as f32,
        })
    }
}

/// Linear layer, and a norm: weight and bias.
type Affine<O> = (<O as Ops>::Weight, <O as Ops>::Weight);

/// Encoder from ids to rows of `hidden_size` numbers.
pub struct Albert<O: Ops> {
    words: O::Weight,
    /// Positions, with the embedding of the only type of segment added.
    positions: O::Weight,
    embedding_norm: Affine<O>,
    mapping: Affine<O>,
    query_key_value: Affine<O>,
    dense: Affine<O>,
    attention_norm: Affine<O>,
    ffn: Affine<O>,
    ffn_output: Affine<O>,
    layer_norm: Affine<O>,
    config: AlbertConfig,
}

impl<O: Ops> Albert<O> {
    /// Loads the encoder; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &AlbertConfig) -> Result<Self, LoadError> {
        let (embedded, width) = (config.embedding_size, config.hidden_size);
        let at = w.at("embeddings");
        let kind = at.values("token_type_embeddings.weight", &[2, embedded])?;
        let mut positions = at.values("position_embeddings.weight", &[config.max_position_embeddings, embedded])?;
        for position in positions.chunks_exact_mut(embedded) {
            position.iter_mut().zip(&kind).for_each(|(number, kind)| *number += kind);
        }
        let shape = [config.max_position_embeddings, embedded];
        let affine = |w: Weights<'_, O>, out: usize, input: usize| -> Result<_, LoadError> {
            Ok((w.linear("weight", out, input)?, w.vector("bias", out)?))
        };
        let norm = |w: Weights<'_, O>, width: usize| -> Result<_, LoadError> {
            Ok((w.vector("weight", width)?, w.vector("bias", width)?))
        };
        let encoder = w.at("encoder");
        let layer = encoder.at("albert_layer_groups.0.albert_layers.0");
        let attention = layer.at("attention");
        let joined = |part: &str| ["query", "key", "value"].map(|name| (format!("{name}.{part}"), width));
        let (weights, biases) = (joined("weight"), joined("bias"));
        Ok(Self {
            words: at.table("word_embeddings.weight", config.vocab_size, embedded)?,
            positions: at.made("position_embeddings.weight", WeightLayout::Table, &positions, &shape)?,
            embedding_norm: norm(at.at("LayerNorm"), embedded)?,
            mapping: affine(encoder.at("embedding_hidden_mapping_in"), width, embedded)?,
            query_key_value: (
                attention.linears(&weights.each_ref().map(|(name, out)| (&name[..], *out)), width)?,
                attention.vectors(&biases.each_ref().map(|(name, out)| (&name[..], *out)))?,
            ),
            dense: affine(attention.at("dense"), width, width)?,
            attention_norm: norm(attention.at("LayerNorm"), width)?,
            ffn: affine(layer.at("ffn"), config.intermediate_size, width)?,
            ffn_output: affine(layer.at("ffn_output"), width, config.intermediate_size)?,
            layer_norm: norm(layer.at("full_layer_layer_norm"), width)?,
            config: config.clone(),
        })
    }

    /// Embeds `ids` with the position of each: the rows before the first layer.
    pub fn embedded(&self, ops: &O, ids: &O::Index, positions: &O::Index) -> O::T {
        let embedded = ops.add(ops.embed_at(&self.words, ids), &ops.embed_at(&self.positions, positions));
        self.affine(ops, &self.norm(ops, &embedded, &self.embedding_norm), &self.mapping)
    }

    /// Times that [`Albert::layer`] is applied.
    pub fn layers(&self) -> usize {
        self.config.num_hidden_layers
    }

    /// Applies the layer to the rows of texts, one for each segment.
    pub fn layer(&self, ops: &O, x: &O::T, segments: &O::Index) -> O::T {
        let width = self.config.hidden_size;
        let shape = SegmentShape::whole(self.config.num_attention_heads);
        let all = self.affine(ops, x, &self.query_key_value);
        let [q, k, v] = [0, 1, 2].map(|part| ops.narrow(&all, part * width, width));
        let attended = self.affine(ops, &ops.segment_attention_at(&q, &k, &v, segments, shape), &self.dense);
        let attended = self.norm(ops, &ops.add(attended, x), &self.attention_norm);
        let h = ops.activation(self.affine(ops, &attended, &self.ffn), Activation::GeluTanh);
        self.norm(ops, &ops.add(self.affine(ops, &h, &self.ffn_output), &attended), &self.layer_norm)
    }

    fn affine(&self, ops: &O, x: &O::T, (weight, bias): &Affine<O>) -> O::T {
        ops.linear(x, weight, Some(bias))
    }

    fn norm(&self, ops: &O, x: &O::T, (weight, bias): &Affine<O>) -> O::T {
        ops.layer_norm(x, weight, bias, self.config.layer_norm_eps)
    }
}
