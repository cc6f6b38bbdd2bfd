//! Complete configurations of the parts: every field has its value. Sizes are numbers of elements unless stated
//! otherwise.

use repartee_kernels::AttentionShape;

use super::decoder::DecoderShape;
use crate::model::Codec;

/// Rotary position embedding. Without vision the three position indices of a row are equal, so the sections of M-RoPE
/// have no effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths.
    pub theta: f64,
    /// Scaling of the wavelengths; only `default` (none) is supported.
    pub kind: String,
    /// Rotated part of a head; only 1 is supported.
    pub partial_rotary_factor: f64,
}

/// Sizes of a transformer's layers.
#[derive(Debug, Clone, PartialEq)]
pub struct LayersConfig {
    /// Width of a row.
    pub hidden_size: usize,
    /// Inner width of the feed-forward block.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of query heads.
    pub num_attention_heads: usize,
    /// Number of key and value heads.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Activation of the feed-forward blocks.
    pub hidden_act: String,
    /// Epsilon added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// Rotary position embedding.
    pub rope: Rope,
    /// True if the four attention projections have a bias.
    pub attention_bias: bool,
}

impl LayersConfig {
    /// Shape of plain layers with an attention window of `window` positions; `None` for all positions.
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
            theta: Some(self.rope.theta as f32),
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
    /// Number of transformer layers.
    pub encoder_layers: usize,
    /// Attention heads of each layer.
    pub encoder_attention_heads: usize,
    /// Inner width of each feed-forward block.
    pub encoder_ffn_dim: usize,
    /// Width of a row in the layers.
    pub d_model: usize,
    /// Width of an output row; equals the thinker's hidden size.
    pub output_dim: usize,
    /// Half the mel frames of a window; the convolutions see one window at a time.
    pub n_window: usize,
    /// Rows of the sinusoidal position table.
    pub max_source_positions: usize,
    /// Activation of the feed-forward blocks.
    pub activation_function: String,
}

/// The code predictor: a small decoder over the codebooks of one frame.
#[derive(Debug, Clone, PartialEq)]
pub struct CodePredictorConfig {
    /// Number of codes in a codebook.
    pub vocab_size: usize,
    /// Width of a row of the talker. If it differs from the layers' width, a projection precedes the layers.
    pub input_size: usize,
    /// Sizes of the layers.
    pub layers: LayersConfig,
    /// Codebooks of a frame, the first included.
    pub num_code_groups: usize,
    /// Attention window in positions; a frame must fit into it.
    pub sliding_window: Option<usize>,
}

/// Form of code2wav: the way a frame's codes become the row that enters it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeInput {
    /// The mean of one table's entries. Both ends of each transposed convolution are cut, so the first frame is short.
    Embedding,
    /// The codebooks of a residual quantizer, the first with a projection of its own, then a convolution and
    /// projections around the transformer. Only the right end of each transposed convolution is cut: each frame is
    /// whole.
    Quantizer {
        /// Width of a quantized row; a codebook's entries have half of it.
        codebook_dim: usize,
        /// Width of the rows outside the transformer.
        latent_dim: usize,
    },
}

/// code2wav: a windowed transformer over frames, then upsampling convolutions.
#[derive(Debug, Clone, PartialEq)]
pub struct Code2WavConfig {
    /// Number of codes in a codebook.
    pub codebook_size: usize,
    /// Codebooks of a frame.
    pub num_quantizers: usize,
    /// Form of the input.
    pub input: CodeInput,
    /// Sizes of the transformer's layers.
    pub layers: LayersConfig,
    /// Attention window in frames, the frame itself included.
    pub sliding_window: usize,
    /// Channels before the first decoder block; each block halves them.
    pub decoder_dim: usize,
    /// Factors of the ConvNeXt upsamplers before the decoder.
    pub upsampling_ratios: Vec<usize>,
    /// Factors of the decoder blocks.
    pub upsample_rates: Vec<usize>,
}

impl Code2WavConfig {
    /// Width of the rows that enter the upsamplers.
    pub fn latent_size(&self) -> usize {
        match self.input {
            CodeInput::Embedding => self.layers.hidden_size,
            CodeInput::Quantizer { latent_dim, .. } => latent_dim,
        }
    }

    /// True if both ends of transposed convolutions are cut, so that the first frame is short.
    pub fn cuts_both_ends(&self) -> bool {
        self.input == CodeInput::Embedding
    }

    /// Number of samples that one codec frame decodes to.
    pub fn samples_per_frame(&self) -> usize {
        self.upsampling_ratios.iter().chain(&self.upsample_rates).product()
    }

    /// Geometry of a codec of this sample rate.
    pub fn geometry(&self, sample_rate: u32) -> Codec {
        Codec { sample_rate, frame_samples: (self.samples_per_frame() as u32, 1) }
    }
}

/// The speaker encoder, an ECAPA-TDNN.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeakerEncoderConfig {
    /// Mel bins of a frame.
    pub mel_dim: usize,
    /// Width of the output row.
    pub enc_dim: usize,
    /// Channels after each layer.
    pub enc_channels: Vec<usize>,
    /// Number of taps of each layer.
    pub enc_kernel_sizes: Vec<usize>,
    /// Dilation of each layer.
    pub enc_dilations: Vec<usize>,
    /// Channels of the attention over time.
    pub enc_attention_channels: usize,
    /// Number of parts of a block's channels.
    pub enc_res2net_scale: usize,
    /// Channels of a block's squeeze-excitation gate.
    pub enc_se_channels: usize,
}
