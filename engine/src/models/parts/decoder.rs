//! Transformer layers shared by thinker, talker, code predictor and code2wav: `*DecoderLayer` and
//! `Qwen3OmniMoeCode2WavTransformerLayer` of the reference, which differ only in their optional parts.

use repartee_kernels::{Activation, AttentionShape, Ops, RouterShape, StateSpec, WeightLayout};

use super::rotary::RotaryScaling;
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
    /// Scaling of the rotary frequencies.
    pub scaling: RotaryScaling,
    /// Layers with a window of their own; `None`: all layers are alike.
    pub local: Option<LocalLayers>,
    /// True if queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// True if queries and keys are normed head by head.
    pub qk_norm: bool,
    /// True if learnt vectors scale attention and feed-forward results before they are added.
    pub layer_scale: bool,
    /// Parts in which Gemma's layers differ.
    pub style: LayerStyle,
}

/// Layers that attend to a window, between those that attend to everything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalLayers {
    /// Each layer whose number, counted from 1, is a multiple of this attends to everything.
    pub every: usize,
    /// Positions up to its own that a row attends to.
    pub window: usize,
    /// Base of the rotary frequencies, which are not scaled.
    pub theta: f32,
}

impl LocalLayers {
    /// True if the layer of this number, counted from 0, is one of them.
    pub fn has(&self, layer: usize) -> bool {
        !(layer + 1).is_multiple_of(self.every)
    }
}

/// Parts in which Gemma's layers differ from others; none of them by default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerStyle {
    /// True if the results of attention and of the feed-forward block are normed before they are added.
    pub result_norms: bool,
    /// True if norms have stored weights less 1.
    pub offset_norms: bool,
    /// True if the feed-forward gate is a GELU, approximated with a hyperbolic tangent.
    pub gelu: bool,
    /// Factor of the rows that enter the first layer; `None` for 1.
    pub row_factor: Option<f32>,
    /// Factor of the scores of attention, beside that of the head's width; `None` for 1.
    pub score_factor: Option<f32>,
}

impl DecoderShape {
    /// Shape of layers without optional parts, with the usual epsilon and rotary positions.
    pub fn plain(hidden: usize, layers: usize, attention: AttentionShape) -> Self {
        Self {
            hidden,
            layers,
            attention,
            eps: 1e-6,
            theta: Some(10_000.0),
            scaling: RotaryScaling::None,
            local: None,
            qkv_bias: false,
            qk_norm: false,
            layer_scale: false,
            style: LayerStyle::default(),
        }
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
    /// Inner width if the gate is a GELU; `None` for a SiLU.
    gelu: Option<usize>,
}

impl<O: Ops> Gated<O> {
    fn load(w: &Weights<'_, O>, hidden: usize, inner: usize) -> Result<Self, LoadError> {
        Ok(Self {
            gate_up: w.linears(&[("gate_proj.weight", inner), ("up_proj.weight", inner)], hidden)?,
            down: w.linear("down_proj.weight", hidden, inner)?,
            gelu: None,
        })
    }

    fn forward(&self, ops: &O, x: &O::T) -> O::T {
        let both = ops.linear(x, &self.gate_up, None);
        let inner = match self.gelu {
            None => ops.silu_mul(&both),
            Some(inner) => {
                let gate = ops.activation(ops.narrow(&both, 0, inner), Activation::GeluTanh);
                ops.mul(gate, &ops.narrow(&both, inner, inner))
            }
        };
        ops.linear(&inner, &self.down, None)
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
    /// True if it is one of [`DecoderShape::local`].
    is_local: bool,
    input_norm: O::Weight,
    qkv: O::Weight,
    qkv_bias: Option<O::Weight>,
    qk_norm: Option<(O::Weight, O::Weight)>,
    out: O::Weight,
    post_norm: O::Weight,
    mlp: Mlp<O>,
    scales: Option<(O::Weight, O::Weight)>,
    result_norms: Option<(O::Weight, O::Weight)>,
}

/// Inverse frequencies of rotary positions.
struct Frequencies<O: Ops> {
    /// Of layers that attend to everything.
    all: O::Weight,
    /// Of [`DecoderShape::local`].
    local: Option<O::Weight>,
}

/// A stack of layers and the norm after it.
pub struct Decoder<O: Ops> {
    shape: DecoderShape,
    layers: Vec<Layer<O>>,
    /// `None` without positions.
    frequencies: Option<Frequencies<O>>,
    norm: O::Weight,
    /// Bytes of one number in keys and values.
    kv_number: usize,
}

impl<O: Ops> Decoder<O> {
    /// Loads the layers and the norm below `w`, by the names of the reference: `norm.weight`, and in each `layers.N`
    /// `input_layernorm`, `self_attn` (`q_proj`, `k_proj`, `v_proj`, `o_proj`), `post_attention_layernorm`, and `mlp`
    /// (`gate_proj`, `up_proj`, `down_proj`). `feed_forward` gives the block of each layer.
    pub fn load(
        w: &Weights<'_, O>,
        shape: DecoderShape,
        feed_forward: impl Fn(usize) -> FeedForward,
    ) -> Result<Self, LoadError> {
        let layers = (0..shape.layers)
            .map(|i| {
                let is_local = shape.local.is_some_and(|local| local.has(i));
                Layer::load(&w.at(format_args!("layers.{i}")), (&shape, is_local), feed_forward(i))
            })
            .collect::<Result<_, _>>()?;
        let frequencies = shape.theta.map(|theta| Frequencies::load(w, &shape, theta)).transpose()?;
        let norm = norm_weight(w, &shape, "norm.weight", shape.hidden)?;
        Ok(Self { norm, layers, frequencies, shape, kv_number: w.ops().kv_number_bytes() })
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
        if let Some(factor) = self.shape.style.row_factor {
            x = ops.scale_all(x, factor);
        }
        let mut tapped = None;
        for (i, (layer, cache)) in self.layers.iter().zip(cache).enumerate() {
            if tap == Some(i) {
                tapped = Some(ops.copy(&x));
            }
            let frequencies = self.frequencies.as_ref().map(|frequencies| frequencies.of(layer.is_local));
            x = layer.forward(ops, x, cache, batch, (&self.shape, frequencies));
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

impl<O: Ops> Frequencies<O> {
    /// Computes the frequencies; a checkpoint may store their factors below `w`.
    fn load(w: &Weights<'_, O>, shape: &DecoderShape, theta: f32) -> Result<Self, LoadError> {
        let head_dim = shape.attention.head_dim;
        let pairs = head_dim / 2;
        let stored = match shape.scaling {
            RotaryScaling::Stored => w.values("rope_freqs.weight", &[pairs])?,
            _ => Vec::new(),
        };
        let made = |frequencies: &[f32]| w.made("rotary frequencies", WeightLayout::Vector, frequencies, &[pairs]);
        let local = shape.local.map(|local| made(&RotaryScaling::None.frequencies(head_dim, local.theta, &[])));
        Ok(Self { all: made(&shape.scaling.frequencies(head_dim, theta, &stored))?, local: local.transpose()? })
    }

    fn of(&self, is_local: bool) -> &O::Weight {
        self.local.as_ref().filter(|_| is_local).unwrap_or(&self.all)
    }
}

/// Loads the weights of a norm.
fn norm_weight<O: Ops>(
    w: &Weights<'_, O>,
    shape: &DecoderShape,
    name: &str,
    width: usize,
) -> Result<O::Weight, LoadError> {
    if !shape.style.offset_norms {
        return w.vector(name, width);
    }
    let weights: Vec<f32> = w.values(name, &[width])?.into_iter().map(|weight| 1.0 + weight).collect();
    w.made(name, WeightLayout::Vector, &weights, &[width])
}

impl<O: Ops> Layer<O> {
    fn load(
        w: &Weights<'_, O>,
        (shape, is_local): (&DecoderShape, bool),
        feed_forward: FeedForward,
    ) -> Result<Self, LoadError> {
        let (hidden, a) = (shape.hidden, &shape.attention);
        let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let attention = w.at("self_attn");
        let mlp = w.at("mlp");
        let mlp = match feed_forward {
            FeedForward::Dense(inner) => {
                let gelu = shape.style.gelu.then_some(inner);
                Mlp::Dense(Gated { gelu, ..Gated::load(&mlp, hidden, inner)? })
            }
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
        let norm = |name: &str| norm_weight(w, shape, name, hidden);
        // Gemma names the norm of attention's result as others name that before the feed-forward block.
        let (post_norm, result_norms) = if shape.style.result_norms {
            let norms = (norm("post_attention_layernorm.weight")?, norm("post_feedforward_layernorm.weight")?);
            (norm("pre_feedforward_layernorm.weight")?, Some(norms))
        } else {
            (norm("post_attention_layernorm.weight")?, None)
        };
        Ok(Self {
            is_local,
            input_norm: norm("input_layernorm.weight")?,
            qkv: attention.linears(&[("q_proj.weight", q), ("k_proj.weight", kv), ("v_proj.weight", kv)], hidden)?,
            qkv_bias: if shape.qkv_bias {
                Some(attention.vectors(&[("q_proj.bias", q), ("k_proj.bias", kv), ("v_proj.bias", kv)])?)
            } else {
                None
            },
            qk_norm: if shape.qk_norm {
                let norm = |name| norm_weight(&attention, shape, name, a.head_dim);
                Some((norm("q_norm.weight")?, norm("k_norm.weight")?))
            } else {
                None
            },
            out: attention.linear("o_proj.weight", hidden, q)?,
            post_norm,
            result_norms,
            mlp,
            scales: if shape.layer_scale {
                let scale = |name| w.vector(name, hidden);
                Some((scale("self_attn_layer_scale.scale")?, scale("mlp_layer_scale.scale")?))
            } else {
                None
            },
        })
    }

    fn forward(
        &self,
        ops: &O,
        x: O::T,
        cache: &mut O::State,
        batch: &O::Batch,
        (shape, frequencies): (&DecoderShape, Option<&O::Weight>),
    ) -> O::T {
        let mut a = shape.attention;
        if let Some(local) = shape.local.filter(|_| self.is_local) {
            a.window = Some(local.window);
        }
        let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let h = ops.linear(&ops.rms_norm(&x, &self.input_norm, shape.eps), &self.qkv, self.qkv_bias.as_ref());
        let (mut queries, mut keys) = (ops.narrow(&h, 0, q), ops.narrow(&h, q, kv));
        let values = ops.narrow(&h, q + kv, kv);
        if let Some((q_norm, k_norm)) = &self.qk_norm {
            queries = ops.rms_norm(&queries, q_norm, shape.eps);
            keys = ops.rms_norm(&keys, k_norm, shape.eps);
        }
        if let Some(frequencies) = frequencies {
            queries = ops.rotary(queries, batch, frequencies);
            keys = ops.rotary(keys, batch, frequencies);
        }
        let scaling = if self.is_local { 1.0 } else { shape.scaling.score_factor() };
        let factor = scaling * shape.style.score_factor.unwrap_or(1.0);
        if factor != 1.0 {
            queries = ops.scale_all(queries, factor);
        }
        let h = ops.attention(&queries, &keys, &values, cache, batch, a);
        let mut h = ops.linear(&h, &self.out, None);
        if let Some((scale, _)) = &self.scales {
            h = ops.scale(h, scale);
        }
        if let Some((norm, _)) = &self.result_norms {
            h = ops.rms_norm(&h, norm, shape.eps);
        }
        let x = ops.add(h, &x);
        let mut h = self.mlp.forward(ops, &ops.rms_norm(&x, &self.post_norm, shape.eps));
        if let Some((_, scale)) = &self.scales {
            h = ops.scale(h, scale);
        }
        if let Some((_, norm)) = &self.result_norms {
            h = ops.rms_norm(&h, norm, shape.eps);
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
