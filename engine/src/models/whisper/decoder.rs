//! The decoder: text positions that attend to those before them, and to the encoded sound. Names are those of
//! `WhisperDecoder` in transformers 5.23.

use std::ops::Range;

use repartee_kernels::{Activation, AttentionShape, Ops, StateSpec};

use super::config::DecoderSizes;
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::layer::{NORM_EPS, biases, linear, norm};
use crate::models::parts::weights::Weights;

/// Weight and bias.
type Pair<O> = (<O as Ops>::Weight, <O as Ops>::Weight);

struct DecoderLayer<O: Ops> {
    self_norm: Pair<O>,
    self_qkv: Pair<O>,
    self_out: Pair<O>,
    cross_norm: Pair<O>,
    cross_q: Pair<O>,
    cross_kv: Pair<O>,
    cross_out: Pair<O>,
    final_norm: Pair<O>,
    fc1: Pair<O>,
    fc2: Pair<O>,
}

/// Keys and values of one layer.
pub struct LayerCache<O: Ops> {
    /// Those of the text.
    text: O::State,
    /// Those of the encoded sound.
    sound: O::State,
}

impl<O: Ops> LayerCache<O> {
    /// Discards blocks of the text and of the sound, each as their range and the number of all.
    pub fn discard(&mut self, ops: &O, text: (Range<usize>, usize), sound: (Range<usize>, usize)) {
        ops.discard(&mut self.text, text.0, text.1);
        ops.discard(&mut self.sound, sound.0, sound.1);
    }
}

/// Blocks of the caches of text and of sound, and positions of a block.
#[derive(Debug, Clone, Copy)]
pub struct CacheSizes {
    /// Blocks for text.
    pub text: usize,
    /// Blocks for encoded sound.
    pub sound: usize,
    /// Positions in a block.
    pub block: usize,
}

/// Inputs of a step on the device.
pub struct DecoderStep<'a, O: Ops> {
    /// Tokens of the rows.
    pub ids: &'a O::Index,
    /// Their positions in the text.
    pub positions: &'a O::Index,
    /// The rows within their text.
    pub text: &'a O::Batch,
    /// The rows as the last positions of their sound.
    pub sound: &'a O::Batch,
    /// Keys and values of every layer, from [`WhisperDecoder::cache`].
    pub caches: &'a mut [LayerCache<O>],
}

/// The decoder's weights.
pub struct WhisperDecoder<O: Ops> {
    sizes: DecoderSizes,
    text: AttentionShape,
    sound: AttentionShape,
    embed_tokens: O::Weight,
    embed_positions: O::Weight,
    layers: Vec<DecoderLayer<O>>,
    norm: Pair<O>,
    head: O::Weight,
}

impl<O: Ops> DecoderLayer<O> {
    fn load(w: &Weights<'_, O>, sizes: &DecoderSizes) -> Result<Self, LoadError> {
        let (d, inner) = (sizes.width, sizes.inner);
        let (own, cross) = (w.at("self_attn"), w.at("encoder_attn"));
        let [q, k, v] = ["q_proj.weight", "k_proj.weight", "v_proj.weight"].map(|name| (name, d));
        Ok(Self {
            self_norm: norm(w, "self_attn_layer_norm", d)?,
            self_qkv: (
                own.linears(&[q, k, v], d)?,
                biases(&own, &[Some("q_proj.bias"), None, Some("v_proj.bias")], d)?,
            ),
            self_out: linear(&own, "out_proj", d, d)?,
            cross_norm: norm(w, "encoder_attn_layer_norm", d)?,
            cross_q: linear(&cross, "q_proj", d, d)?,
            cross_kv: (cross.linears(&[k, v], d)?, biases(&cross, &[None, Some("v_proj.bias")], d)?),
            cross_out: linear(&cross, "out_proj", d, d)?,
            final_norm: norm(w, "final_layer_norm", d)?,
            fc1: linear(w, "fc1", inner, d)?,
            fc2: linear(w, "fc2", d, inner)?,
        })
    }
}

/// Applies a linear layer.
fn apply<O: Ops>(ops: &O, x: &O::T, (weight, bias): &Pair<O>) -> O::T {
    ops.linear(x, weight, Some(bias))
}

/// Applies a layer norm.
fn normed<O: Ops>(ops: &O, x: &O::T, (weight, bias): &Pair<O>) -> O::T {
    ops.layer_norm(x, weight, bias, NORM_EPS)
}

impl<O: Ops> WhisperDecoder<O> {
    /// Loads `model.decoder`, and the head below `w`, for sound of at most `rows` rows.
    pub fn load(w: &Weights<'_, O>, sizes: DecoderSizes, rows: usize) -> Result<Self, LoadError> {
        let (d, vocabulary, heads) = (sizes.width, sizes.vocabulary, sizes.heads);
        let decoder = w.at("model.decoder");
        let layer = |i: usize| DecoderLayer::load(&decoder.at(format_args!("layers.{i}")), &sizes);
        let text = AttentionShape { heads, kv_heads: heads, head_dim: d / heads, window: None, chunk: None };
        Ok(Self {
            text,
            // Every row sees all of the sound.
            sound: AttentionShape { chunk: Some(rows), ..text },
            embed_tokens: decoder.table("embed_tokens.weight", vocabulary, d)?,
            embed_positions: decoder.table("embed_positions.weight", sizes.positions, d)?,
            layers: (0..sizes.layers).map(layer).collect::<Result<_, _>>()?,
            norm: norm(&decoder, "layer_norm", d)?,
            head: match sizes.tied {
                true => decoder.linear("embed_tokens.weight", vocabulary, d)?,
                false => w.linear("proj_out.weight", vocabulary, d)?,
            },
            sizes,
        })
    }

    /// Sizes of the decoder.
    pub fn sizes(&self) -> &DecoderSizes {
        &self.sizes
    }

    /// Creates the caches of every layer.
    pub fn cache(&self, ops: &O, sizes: CacheSizes) -> Vec<LayerCache<O>> {
        let (block_len, width) = (sizes.block, self.sizes.width);
        let state = |blocks| ops.state(StateSpec::KeyValue { blocks, block_len, width });
        self.layers.iter().map(|_| LayerCache { text: state(sizes.text), sound: state(sizes.sound) }).collect()
    }

    /// Stores keys and values of encoded rows in some layers, at the positions of `batch`.
    pub fn hear(&self, ops: &O, rows: &O::T, batch: &O::Batch, layers: Range<usize>, caches: &mut [LayerCache<O>]) {
        let d = self.sizes.width;
        for (layer, cache) in self.layers[layers.clone()].iter().zip(&mut caches[layers]) {
            let kv = apply(ops, rows, &layer.cross_kv);
            ops.store_keys(&ops.narrow(&kv, 0, d), &ops.narrow(&kv, d, d), &mut cache.sound, batch);
        }
    }

    /// Keys of encoded rows in one layer.
    pub fn sound_keys(&self, ops: &O, rows: &O::T, layer: usize) -> O::T {
        ops.narrow(&apply(ops, rows, &self.layers[layer].cross_kv), 0, self.sizes.width)
    }

    /// Runs all layers. Returns the rows before the last norm; calls `queried` with each layer's number and its queries
    /// to the sound.
    pub fn forward(&self, ops: &O, step: DecoderStep<'_, O>, mut queried: impl FnMut(usize, &O::T)) -> O::T {
        let d = self.sizes.width;
        let positions = ops.embed_at(&self.embed_positions, step.positions);
        let mut x = ops.add(ops.embed_at(&self.embed_tokens, step.ids), &positions);
        for (number, (layer, cache)) in self.layers.iter().zip(step.caches).enumerate() {
            let qkv = apply(ops, &normed(ops, &x, &layer.self_norm), &layer.self_qkv);
            let [q, k, v] = [0, 1, 2].map(|part| ops.narrow(&qkv, part * d, d));
            let h = ops.attention(&q, &k, &v, &mut cache.text, step.text, self.text);
            x = ops.add(apply(ops, &h, &layer.self_out), &x);
            let q = apply(ops, &normed(ops, &x, &layer.cross_norm), &layer.cross_q);
            queried(number, &q);
            let h = ops.stored_attention(&q, &mut cache.sound, step.sound, self.sound);
            x = ops.add(apply(ops, &h, &layer.cross_out), &x);
            let h = apply(ops, &normed(ops, &x, &layer.final_norm), &layer.fc1);
            x = ops.add(apply(ops, &ops.activation(h, Activation::Gelu), &layer.fc2), &x);
        }
        x
    }

    /// Computes logits of the rows `at`.
    pub fn logits(&self, ops: &O, x: &O::T, at: &O::Index) -> O::T {
        ops.linear(&normed(ops, &ops.gather_at(x, at), &self.norm), &self.head, None)
    }
}
