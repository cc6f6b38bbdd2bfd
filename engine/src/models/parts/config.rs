//! Configurations of the parts, complete: every field has its value. Sizes are counts of elements unless they say otherwise.

use repartee_kernels::AttentionShape;

use super::decoder::DecoderShape;
use crate::model::Codec;

/// Rotary position embedding. Without vision the three position indices of a row are the same, so that its sections
/// do not matter.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths.
    pub theta: f64,
    /// How wavelengths are scaled; only `default` (not at all) is built.
    pub kind: String,
    /// Part of a head that is rotated; only 1 is built.
    pub partial_rotary_factor: f64,
}

/// The layers of a transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayersConfig {
    /// Size of a row.
    pub hidden_size: usize,
    /// Inner size of the feed-forward block.
    pub intermediate_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads.
    pub num_key_value_heads: usize,
    /// Size of a head.
    pub head_dim: usize,
    /// Activation of the feed-forward blocks.
    pub hidden_act: String,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Whether the four attention projections have a bias.
    pub attention_bias: bool,
}

impl LayersConfig {
    /// Plain layers, whose rows see so many positions; `None` for all.
    pub fn shape(&self, window: Option<usize>) -> DecoderShape {
        DecoderShape {
            hidden: self.hidden_size,
            layers: self.num_hidden_layers,
            attention: AttentionShape {
                heads: self.num_attention_heads,
                kv_heads: self.num_key_value_heads,
                head_dim: self.head_dim,
                window,
            },
            eps: self.rms_norm_eps as f32,
            theta: self.rope.theta as f32,
            qkv_bias: false,
            qk_norm: false,
            layer_scale: false,
        }
    }
}

/// The audio tower: convolutions over windows of mel frames, then a transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioTowerConfig {
    /// Mel bins of an input frame.
    pub num_mel_bins: usize,
    /// Transformer layers.
    pub encoder_layers: usize,
    /// Heads of each.
    pub encoder_attention_heads: usize,
    /// Inner size of each feed-forward block.
    pub encoder_ffn_dim: usize,
    /// Hidden size.
    pub d_model: usize,
    /// Size of an output row, the thinker's hidden size.
    pub output_dim: usize,
    /// Half of the mel frames of a window: what the convolutions see at once.
    pub n_window: usize,
    /// Rows of the sinusoidal position table.
    pub max_source_positions: usize,
    /// Activation of the feed-forward blocks.
    pub activation_function: String,
}

/// The code predictor: a small decoder that runs over the codebooks of one frame.
#[derive(Debug, Clone, PartialEq)]
pub struct CodePredictorConfig {
    /// Codes of one codebook.
    pub vocab_size: usize,
    /// Size of a row of the language model before it. If the layers' is another one, a projection stands between.
    pub input_size: usize,
    /// The layers.
    pub layers: LayersConfig,
    /// Codebooks of a frame, the first included.
    pub num_code_groups: usize,
    /// Positions that a layer with a window looks back at; a frame must be shorter than that.
    pub sliding_window: Option<usize>,
}

/// How a frame's codes become the row that enters code2wav, and with it which form of code2wav it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeInput {
    /// The mean of one table's entries. Both ends of each transposed convolution are cut, so that the first frame is short.
    Embedding,
    /// The codebooks of a residual quantizer, the first one with a projection of its own, then a convolution and projections around
    /// the transformer. The right end of each transposed convolution is cut: each frame is whole.
    Quantizer {
        /// Size of a quantized row; a codebook's entries have half of it.
        codebook_dim: usize,
        /// Size of the rows outside of the transformer.
        latent_dim: usize,
    },
}

/// code2wav: a windowed transformer over frames, then upsampling convolutions.
#[derive(Debug, Clone, PartialEq)]
pub struct Code2WavConfig {
    /// Codes of one codebook.
    pub codebook_size: usize,
    /// Codebooks of a frame.
    pub num_quantizers: usize,
    /// What enters.
    pub input: CodeInput,
    /// The transformer's layers.
    pub layers: LayersConfig,
    /// Frames that a frame attends to, itself included.
    pub sliding_window: usize,
    /// Channels before the first decoder block; each block halves them.
    pub decoder_dim: usize,
    /// Factors of the ConvNeXt upsamplers before the decoder.
    pub upsampling_ratios: Vec<usize>,
    /// Factors of the decoder blocks.
    pub upsample_rates: Vec<usize>,
}

impl Code2WavConfig {
    /// Size of the rows that enter the upsamplers.
    pub fn latent_size(&self) -> usize {
        match self.input {
            CodeInput::Embedding => self.layers.hidden_size,
            CodeInput::Quantizer { latent_dim, .. } => latent_dim,
        }
    }

    /// Whether transposed convolutions are cut at both ends, so that the first frame is short.
    pub fn cuts_both_ends(&self) -> bool {
        self.input == CodeInput::Embedding
    }

    /// Samples that one codec frame stands for.
    pub fn samples_per_frame(&self) -> usize {
        self.upsampling_ratios.iter().chain(&self.upsample_rates).product()
    }

    /// What a codec is that makes so many samples a second.
    pub fn geometry(&self, sample_rate: u32) -> Codec {
        Codec { sample_rate, frame_samples: (self.samples_per_frame() as u32, 1) }
    }
}

/// The speaker encoder, an ECAPA-TDNN.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeakerEncoderConfig {
    /// Mel bins of a frame.
    pub mel_dim: usize,
    /// Size of the row that it makes.
    pub enc_dim: usize,
    /// Channels after each layer.
    pub enc_channels: Vec<usize>,
    /// Taps of each layer.
    pub enc_kernel_sizes: Vec<usize>,
    /// Distance of the taps of each layer.
    pub enc_dilations: Vec<usize>,
    /// Channels of the attention over time.
    pub enc_attention_channels: usize,
    /// Parts that the channels of a block are cut into.
    pub enc_res2net_scale: usize,
    /// Channels of the gate of a block.
    pub enc_se_channels: usize,
}
