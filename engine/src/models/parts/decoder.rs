//! Transformer layers shared by thinker, talker, code predictor and code2wav: `*DecoderLayer` and
//! `Qwen3OmniMoeCode2WavTransformerLayer` of the reference, which differ only in their optional parts.

use repartee_kernels::{AttentionShape, Ops, RouterShape, StateSpec};

use super::weights::Weights;
use crate::models::load_error::LoadError;

/// Sizes of a stack of layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecoderShape {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Attention heads and window.
    pub attention: AttentionShape,
    /// Epsilon added to the mean square in norms.
    pub eps: f32,
    /// Base of the rotary frequencies; `None` without positions.
    pub theta: Option<f32>,
    /// True if queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// True if queries and keys are normed head by head.
    pub qk_norm: bool,
    /// True if learnt vectors scale attention and feed-forward results before they are added.
    pub layer_scale: bool,
}

impl DecoderShape {
    /// Shape of layers without optional parts, with the usual epsilon and rotary positions.
    pub fn plain(hidden: usize, layers: usize, attention: AttentionShape) -> Self {
        let (qkv_bias, qk_norm, layer_scale) = (false, false, false);
        Self { hidden, layers, attention, eps: 1e-6, theta: Some(10_000.0), qkv_bias, qk_norm, layer_scale }
    }
}

/// Form of a layer's feed-forward block.
#[derive(Debug, Clone, Copy)]
pub enum FeedForward {
    /// One gated network of this inner width.
    Dense(usize),
    /// Experts chosen by a router.
    Experts {
        /// Number of experts.
        count: usize,
        /// Inner width of each expert.
        inner: usize,
        /// Rule by which experts are chosen.
        router: RouterShape,
        /// Inner width of the shared expert, which every row passes; `None` without one.
        shared: Option<usize>,
    },
}

struct Gated<O: Ops> {
    gate_up: O::Weight,
    down: O::Weight,
}

impl<O: Ops> Gated<O> {
    fn load(w: &Weights<'_, O>, hidden: usize, inner: usize) -> Result<Self, LoadError> {
        Ok(Self {
            gate_up: w.linears(&[("gate_proj.weight", inner), ("up_proj.weight", inner)], hidden)?,
            down: w.linear("down_proj.weight", hidden, inner)?,
        })
    }

    fn forward(&self, ops: &O, x: &O::T) -> O::T {
        ops.linear(&ops.silu_mul(&ops.linear(x, &self.gate_up, None)), &self.down, None)
    }
}

enum Mlp<O: Ops> {
    Dense(Gated<O>),
    Experts {
        router: O::Weight,
        gate_up: O::Weight,
        down: O::Weight,
        spec: RouterShape,
        shared: Option<(Gated<O>, O::Weight)>,
    },
}

struct Layer<O: Ops> {
    input_norm: O::Weight,
    qkv: O::Weight,
    qkv_bias: Option<O::Weight>,
    qk_norm: Option<(O::Weight, O::Weight)>,
    out: O::Weight,
    post_norm: O::Weight,
    mlp: Mlp<O>,
    scales: Option<(O::Weight, O::Weight)>,
}

/// A stack of layers and the norm after it.
pub struct Decoder<O: Ops> {
    shape: DecoderShape,
    layers: Vec<Layer<O>>,
    norm: O::Weight,
    /// Bytes of one number in keys and values.
    kv_number: usize,
}

impl<O: Ops> Decoder<O> {
    /// Loads `layers.*` and `norm` below `w`.
    pub fn load(
        w: &Weights<'_, O>,
        shape: DecoderShape,
        feed_forward: impl Fn(usize) -> FeedForward,
    ) -> Result<Self, LoadError> {
        let layers = (0..shape.layers)
            .map(|i| Layer::load(&w.at(format_args!("layers.{i}")), &shape, feed_forward(i)))
            .collect::<Result<_, _>>()?;
        Ok(Self { norm: w.vector("norm.weight", shape.hidden)?, layers, shape, kv_number: w.ops().kv_number_bytes() })
    }

    /// Creates the KV cache of every layer: `blocks` blocks of `block_len` positions.
    pub fn cache(&self, ops: &O, blocks: usize, block_len: usize) -> Vec<O::State> {
        let width = self.shape.attention.kv_heads * self.shape.attention.head_dim;
        self.layers.iter().map(|_| ops.state(StateSpec::KeyValue { blocks, block_len, width })).collect()
    }

    /// Bytes of one position in [`Decoder::cache`].
    pub fn position_bytes(&self) -> usize {
        self.layers.len() * 2 * self.shape.attention.kv_heads * self.shape.attention.head_dim * self.kv_number
    }

    /// Runs all layers. Returns the rows before the last norm, and the rows that enter layer `tap`; `tap` equal to the
    /// number of layers means the rows after the last norm.
    pub fn forward(
        &self,
        ops: &O,
        mut x: O::T,
        cache: &mut [O::State],
        batch: &O::Batch,
        tap: Option<usize>,
    ) -> (O::T, Option<O::T>) {
        let mut tapped = None;
        for (i, (layer, cache)) in self.layers.iter().zip(cache).enumerate() {
            if tap == Some(i) {
                tapped = Some(ops.copy(&x));
            }
            x = layer.forward(ops, x, cache, batch, &self.shape);
        }
        if tap == Some(self.layers.len()) {
            // The reference's last hidden state is the normed one.
            tapped = Some(self.norm(ops, &x));
        }
        (x, tapped)
    }

    /// Applies the norm after the last layer.
    pub fn norm(&self, ops: &O, x: &O::T) -> O::T {
        ops.rms_norm(x, &self.norm, self.shape.eps)
    }
}

impl<O: Ops> Layer<O> {
    fn load(w: &Weights<'_, O>, shape: &DecoderShape, feed_forward: FeedForward) -> Result<Self, LoadError> {
        let (hidden, a) = (shape.hidden, &shape.attention);
        let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let attention = w.at("self_attn");
        let mlp = w.at("mlp");
        let mlp = match feed_forward {
            FeedForward::Dense(inner) => Mlp::Dense(Gated::load(&mlp, hidden, inner)?),
            FeedForward::Experts { count, inner, router, shared } => Mlp::Experts {
                router: mlp.router("gate.weight", count, hidden)?,
                gate_up: mlp.experts(
                    &["experts.{}.gate_proj.weight", "experts.{}.up_proj.weight"],
                    count,
                    inner,
                    hidden,
                )?,
                down: mlp.experts(&["experts.{}.down_proj.weight"], count, hidden, inner)?,
                spec: router,
                shared: match shared {
                    Some(inner) => Some((
                        Gated::load(&mlp.at("shared_expert"), hidden, inner)?,
                        mlp.router("shared_expert_gate.weight", 1, hidden)?,
                    )),
                    None => None,
                },
            },
        };
        Ok(Self {
            input_norm: w.vector("input_layernorm.weight", hidden)?,
            qkv: attention.linears(&[("q_proj.weight", q), ("k_proj.weight", kv), ("v_proj.weight", kv)], hidden)?,
            qkv_bias: if shape.qkv_bias {
                Some(attention.vectors(&[("q_proj.bias", q), ("k_proj.bias", kv), ("v_proj.bias", kv)])?)
            } else {
                None
            },
            qk_norm: if shape.qk_norm {
                let norm = |name| attention.vector(name, a.head_dim);
                Some((norm("q_norm.weight")?, norm("k_norm.weight")?))
            } else {
                None
            },
            out: attention.linear("o_proj.weight", hidden, q)?,
            post_norm: w.vector("post_attention_layernorm.weight", hidden)?,
            mlp,
            scales: if shape.layer_scale {
                let scale = |name| w.vector(name, hidden);
                Some((scale("self_attn_layer_scale.scale")?, scale("mlp_layer_scale.scale")?))
            } else {
                None
            },
        })
    }

    fn forward(&self, ops: &O, x: O::T, cache: &mut O::State, batch: &O::Batch, shape: &DecoderShape) -> O::T {
        let a = shape.attention;
        let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let h = ops.linear(&ops.rms_norm(&x, &self.input_norm, shape.eps), &self.qkv, self.qkv_bias.as_ref());
        let (mut queries, mut keys) = (ops.narrow(&h, 0, q), ops.narrow(&h, q, kv));
        let values = ops.narrow(&h, q + kv, kv);
        if let Some((q_norm, k_norm)) = &self.qk_norm {
            queries = ops.rms_norm(&queries, q_norm, shape.eps);
            keys = ops.rms_norm(&keys, k_norm, shape.eps);
        }
        if let Some(theta) = shape.theta {
            queries = ops.rotary(queries, batch, a.head_dim, theta);
            keys = ops.rotary(keys, batch, a.head_dim, theta);
        }
        let h = ops.attention(&queries, &keys, &values, cache, batch, a);
        let mut h = ops.linear(&h, &self.out, None);
        if let Some((scale, _)) = &self.scales {
            h = ops.scale(h, scale);
        }
        let x = ops.add(h, &x);
        let mut h = self.mlp.forward(ops, &ops.rms_norm(&x, &self.post_norm, shape.eps));
        if let Some((_, scale)) = &self.scales {
            h = ops.scale(h, scale);
        }
        ops.add(h, &x)
    }
}

impl<O: Ops> Mlp<O> {
    fn forward(&self, ops: &O, x: &O::T) -> O::T {
        match self {
            Self::Dense(gated) => gated.forward(ops, x),
            Self::Experts { router, gate_up, down, spec, shared } => {
                let routed = ops.experts(x, router, gate_up, down, *spec);
                match shared {
                    None => routed,
                    Some((expert, gate)) => {
                        let shared = ops.sigmoid_gate(expert.forward(ops, x), &ops.linear(x, gate, None));
                        ops.add(routed, &shared)
                    }
                }
            }
        }
    }
}
