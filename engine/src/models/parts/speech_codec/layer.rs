//! A transformer layer of Mimi: causal attention and a feed-forward block, each after a layer norm, scaled and added.

use repartee_kernels::{Activation, AttentionShape, Ops, StateSpec, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::config::SpeechCodecConfig;
use crate::models::parts::weights::Weights;

/// Weights of a layer.
pub struct SpeechCodecLayer<O: Ops> {
    /// Inverse frequencies of rotary positions.
    frequencies: O::Weight,
    input_norm: (O::Weight, O::Weight),
    qkv: O::Weight,
    out: O::Weight,
    attention_scale: O::Weight,
    post_norm: (O::Weight, O::Weight),
    fc1: O::Weight,
    fc2: O::Weight,
    mlp_scale: O::Weight,
}

impl<O: Ops> SpeechCodecLayer<O> {
    /// Loads a layer with the names of transformers' `MimiTransformerLayer`.
    pub fn load(w: &Weights<'_, O>, config: &SpeechCodecConfig) -> Result<Self, LoadError> {
        let (hidden, [q, kv]) = (config.hidden_size, widths(config));
        let attention = w.at("self_attn");
        let qkv = attention.linears(&[("q_proj.weight", q), ("k_proj.weight", kv), ("v_proj.weight", kv)], hidden)?;
        let out = attention.linear("o_proj.weight", hidden, q)?;
        let names = [
            "input_layernorm",
            "self_attn_layer_scale.scale",
            "post_attention_layernorm",
            "mlp.fc1.weight",
            "mlp.fc2.weight",
            "mlp_layer_scale.scale",
        ];
        Self::load_named(w, config, (qkv, out), names)
    }

    /// Loads a layer with the names of moshi's `StreamingTransformerLayer`. Its positions rotate neighbours: the numbers of
    /// each head take the order in which the rotated ones are its halves; those of the values, too, and the columns of the result.
    pub fn load_published(w: &Weights<'_, O>, config: &SpeechCodecConfig) -> Result<Self, LoadError> {
        let (hidden, [q, kv], pairs) = (config.hidden_size, widths(config), config.head_dim / 2);
        let swapped = |name: &str, shape: [usize; 2], heads: usize| {
            w.swapped(&format!("self_attn.{name}"), WeightLayout::Linear, &shape, (heads, pairs, 2), &shape)
        };
        let heads = config.num_attention_heads + 2 * config.num_key_value_heads;
        let qkv = swapped("in_proj_weight", [q + 2 * kv, hidden], heads)?;
        let out = swapped("out_proj.weight", [hidden, q], hidden * config.num_attention_heads)?;
        let names =
            ["norm1", "layer_scale_1.scale", "norm2", "linear1.weight", "linear2.weight", "layer_scale_2.scale"];
        Self::load_named(w, config, (qkv, out), names)
    }

    fn load_named(
        w: &Weights<'_, O>,
        config: &SpeechCodecConfig,
        (qkv, out): (O::Weight, O::Weight),
        [input_norm, attention_scale, post_norm, fc1, fc2, mlp_scale]: [&str; 6],
    ) -> Result<Self, LoadError> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let norm = |name: &str| -> Result<_, LoadError> {
            let w = w.at(name);
            Ok((w.vector("weight", hidden)?, w.vector("bias", hidden)?))
        };
        Ok(Self {
            frequencies: w.rotary(config.head_dim, config.rope_theta as f32)?,
            input_norm: norm(input_norm)?,
            qkv,
            out,
            attention_scale: w.vector(attention_scale, hidden)?,
            post_norm: norm(post_norm)?,
            fc1: w.linear(fc1, inner, hidden)?,
            fc2: w.linear(fc2, hidden, inner)?,
            mlp_scale: w.vector(mlp_scale, hidden)?,
        })
    }

    /// Creates keys and values of `blocks` blocks of `block_len` rows.
    pub fn cache(ops: &O, config: &SpeechCodecConfig, blocks: usize, block_len: usize) -> O::State {
        ops.state(StateSpec::KeyValue { blocks, block_len, width: widths(config)[1] })
    }

    /// Applies the layer to rows; each sees `window` rows up to its own, or all without one.
    pub fn forward(
        &self,
        ops: &O,
        x: O::T,
        (cache, batch): (&mut O::State, &O::Batch),
        (config, window): (&SpeechCodecConfig, Option<usize>),
    ) -> O::T {
        let (eps, [q, kv]) = (config.norm_eps as f32, widths(config));
        let attention = AttentionShape {
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            window,
            chunk: None,
        };
        let h = ops.layer_norm(&x, &self.input_norm.0, &self.input_norm.1, eps);
        let h = ops.linear(&h, &self.qkv, None);
        let queries = ops.rotary(ops.narrow(&h, 0, q), batch, &self.frequencies);
        let keys = ops.rotary(ops.narrow(&h, q, kv), batch, &self.frequencies);
        let h = ops.attention(&queries, &keys, &ops.narrow(&h, q + kv, kv), cache, batch, attention);
        let x = ops.add(ops.scale(ops.linear(&h, &self.out, None), &self.attention_scale), &x);
        let h = ops.layer_norm(&x, &self.post_norm.0, &self.post_norm.1, eps);
        let h = ops.linear(&ops.activation(ops.linear(&h, &self.fc1, None), Activation::Gelu), &self.fc2, None);
        ops.add(ops.scale(h, &self.mlp_scale), &x)
    }
}

/// Numbers of the queries, and of the keys, of a row.
fn widths(config: &SpeechCodecConfig) -> [usize; 2] {
    [config.num_attention_heads, config.num_key_value_heads].map(|heads| heads * config.head_dim)
}
