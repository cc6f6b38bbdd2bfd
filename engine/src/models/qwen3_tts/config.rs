//! Complete configuration of the Qwen3-TTS family: every field has its value.
//!
//! Names are those of the reference, `configuration_qwen3_tts.py` and `configuration_qwen3_tts_tokenizer_v2.py` of
//! qwen-tts 0.1.1.

use std::collections::BTreeMap;

use crate::models::parts::config::{Code2WavConfig, CodePredictorConfig, LayersConfig, SpeakerEncoderConfig};

/// Name of this family in config.json.
pub const ARCHITECTURE: &str = "Qwen3TTSForConditionalGeneration";
/// Type of the one supported codec.
pub const CODEC_TYPE: &str = "qwen3_tts_tokenizer_12hz";

/// Source of a checkpoint's voices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoiceSource {
    /// A list of speakers, each a codec id.
    CustomVoice,
    /// Instructions describe the voice.
    VoiceDesign,
    /// A recording is cloned.
    Base,
}

/// Contents of config.json, and of the codec's.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Source of the voices, `tts_model_type`.
    pub kind: VoiceSource,
    /// True if the model is trained to follow instructions; otherwise they are left out, as in the reference.
    pub follows_instructions: bool,
    /// The talker: text in, codec frames out.
    pub talker: TalkerConfig,
    /// The codec's decoder: codec frames in, samples out.
    pub code2wav: Code2WavConfig,
    /// Output sample rate of the codec's decoder, in Hz.
    pub output_sample_rate: u32,
    /// Encoders of recordings; `None` if voices are not cloned.
    pub cloning: Option<CloningConfig>,
    /// Id of `<|im_start|>`, which opens a message.
    pub im_start_token_id: u32,
    /// Id of `<|im_end|>`, which closes a message.
    pub im_end_token_id: u32,
    /// Text id before the text to speak.
    pub tts_bos_token_id: u32,
    /// Text id at the end of the text to speak.
    pub tts_eos_token_id: u32,
    /// Text id that pads positions without text.
    pub tts_pad_token_id: u32,
}

/// The talker: a language model over codec tokens, and its code predictor.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerConfig {
    /// Number of ids: codes of codebook 0, and special tokens.
    pub vocab_size: usize,
    /// Number of text ids.
    pub text_vocab_size: usize,
    /// Width of a text embedding.
    pub text_hidden_size: usize,
    /// Sizes of the layers. `hidden_act` is also the activation of the text projection.
    pub layers: LayersConfig,
    /// Maximum positions of the model.
    pub max_position_embeddings: usize,
    /// Attention window of each layer, in positions; `None` for all positions.
    pub sliding_window: Option<usize>,
    /// Codebooks of a frame.
    pub num_code_groups: usize,
    /// Id that opens the codec stream.
    pub codec_bos_id: u32,
    /// Id that ends the codec stream.
    pub codec_eos_token_id: u32,
    /// Codec padding id for positions without a codec token.
    pub codec_pad_id: u32,
    /// Codec token that announces a language.
    pub codec_think_id: u32,
    /// Codec token that announces no language.
    pub codec_nothink_id: u32,
    /// Codec token before the language.
    pub codec_think_bos_id: u32,
    /// Codec token after the language.
    pub codec_think_eos_id: u32,
    /// Speakers of the checkpoint, by lower-case name.
    pub speakers: BTreeMap<String, SpeakerConfig>,
    /// Codec token of each language and dialect, by lower-case name.
    pub languages: BTreeMap<String, u32>,
    /// Code predictor for the other codebooks of a frame.
    pub code_predictor: CodePredictorConfig,
}

/// A speaker of the checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeakerConfig {
    /// Codec token of the speaker.
    pub id: u32,
    /// Dialect that the speaker uses instead of Chinese, and by default.
    pub dialect: Option<String>,
}

/// Encoders of recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct CloningConfig {
    /// Sizes of the speaker encoder.
    pub speaker: SpeakerEncoderConfig,
    /// Sample rate of the speaker encoder's input, in Hz.
    pub speaker_sample_rate: u32,
    /// Sizes of the codec's encoder.
    pub speech: SpeechEncoderConfig,
    /// Samples of a frame of codes.
    pub encode_downsample_rate: usize,
    /// Number of codebooks in use.
    pub encoder_valid_num_quantizers: usize,
}

/// The codec's encoder, Mimi's.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechEncoderConfig {
    /// Channels of the audio.
    pub audio_channels: usize,
    /// Sample rate in Hz.
    pub sampling_rate: u32,
    /// Width of a transformer row.
    pub hidden_size: usize,
    /// Channels of the first convolution; each of `upsampling_ratios` doubles them.
    pub num_filters: usize,
    /// Residual blocks before each convolution with a stride.
    pub num_residual_layers: usize,
    /// Strides, the last one first.
    pub upsampling_ratios: Vec<usize>,
    /// Number of taps of the first convolution.
    pub kernel_size: usize,
    /// Number of taps of the last convolution.
    pub last_kernel_size: usize,
    /// Number of taps of a residual block.
    pub residual_kernel_size: usize,
    /// Factor of the dilation from one residual block to the next.
    pub dilation_growth_rate: usize,
    /// True if convolutions are causal.
    pub use_causal_conv: bool,
    /// Padding mode before the first row.
    pub pad_mode: String,
    /// Factor by which a residual block narrows its channels.
    pub compress: usize,
    /// True if residual blocks have a convolution as shortcut.
    pub use_conv_shortcut: bool,
    /// Number of entries in a codebook.
    pub codebook_size: usize,
    /// Width of an entry.
    pub codebook_dim: usize,
    /// Width of a row to quantize.
    pub vector_quantization_hidden_dimension: usize,
    /// Number of codebooks.
    pub num_quantizers: usize,
    /// Number of semantic codebooks, which have a quantizer of their own.
    pub num_semantic_quantizers: usize,
    /// Number of transformer layers.
    pub num_hidden_layers: usize,
    /// Inner width of the feed-forward blocks.
    pub intermediate_size: usize,
    /// Number of query heads.
    pub num_attention_heads: usize,
    /// Number of key and value heads.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Activation of the feed-forward blocks.
    pub hidden_act: String,
    /// Epsilon added to the variance in norms.
    pub norm_eps: f64,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// True if the four attention projections have a bias.
    pub attention_bias: bool,
}
