//! Sizes of a stack of layers, its optional parts, and the names of its tensors.

use repartee_kernels::AttentionShape;

use crate::models::parts::rotary::RotaryScaling;

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
    /// Layers with a short convolution in place of attention; `None`: all layers have attention.
    pub convolutions: Option<ShortConvLayers>,
    /// True if rotary positions rotate neighbours in the checkpoint, instead of the halves of a head. The matrices are put
    /// into the other order at loading.
    pub rotates_neighbours: bool,
    /// Names of the tensors.
    pub names: LayerNames,
}

/// Layers that have a short causal convolution in place of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortConvLayers {
    /// A bit for each layer, the first one's the lowest.
    pub layers: u128,
    /// Rows that a convolution sees, its own included; at least 2.
    pub taps: usize,
}

impl ShortConvLayers {
    /// Most layers of a stack with convolutions.
    pub const MOST_LAYERS: usize = u128::BITS as usize;

    /// True if the layer of this number, counted from 0, is one of them.
    pub fn has(&self, layer: usize) -> bool {
        layer < Self::MOST_LAYERS && (self.layers >> layer) & 1 == 1
    }
}

/// Names of a layer's tensors below its prefix, without `.weight`. Experts have names of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerNames {
    /// List of the layers.
    pub layers: &'static str,
    /// Norms before attention and before the feed-forward block.
    pub norms: [&'static str; 2],
    /// Matrices to queries, keys and values: three, or one for all.
    pub qkv: &'static [&'static str],
    /// Norms of queries and of keys.
    pub qk_norms: [&'static str; 2],
    /// Matrix of attention's result.
    pub out: &'static str,
    /// Gate, and matrices up and down, of the feed-forward block.
    pub feed_forward: [&'static str; 3],
    /// Norm after the last layer, below the prefix of the layers; `None` without one.
    pub last_norm: Option<&'static str>,
}

impl LayerNames {
    /// Names in most of transformers' models.
    pub const USUAL: Self = Self {
        layers: "layers",
        norms: ["input_layernorm", "post_attention_layernorm"],
        qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        qk_norms: ["self_attn.q_norm", "self_attn.k_norm"],
        out: "self_attn.o_proj",
        feed_forward: ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"],
        last_norm: Some("norm"),
    };
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
            convolutions: None,
            rotates_neighbours: false,
            names: LayerNames::USUAL,
        }
    }
}
