//! The configuration of the Qwen3-TTS family, complete: every field has its value.
//!
//! Names are those of the reference, `configuration_qwen3_tts.py` and `configuration_qwen3_tts_tokenizer_v2.py` of qwen-tts 0.1.1.

use std::collections::BTreeMap;

use crate::models::parts::config::{Code2WavConfig, CodePredictorConfig, LayersConfig, SpeakerEncoderConfig};

/// What config.json calls this family.
pub const ARCHITECTURE: &str = "Qwen3TTSForConditionalGeneration";
/// The codec that is built.
pub const CODEC_TYPE: &str = "qwen3_tts_tokenizer_12hz";

/// Where a checkpoint's voices come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoiceSource {
    /// A list of speakers, each a codec id.
    CustomVoice,
    /// Instructions describe the voice.
    VoiceDesign,
    /// A recording is cloned.
    Base,
}

/// config.json, and that of the codec.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `tts_model_type`
    pub kind: VoiceSource,
    /// Whether it was trained to follow instructions; those of one that was not are left out, as in the reference.
    pub follows_instructions: bool,
    /// The talker: text in, codec frames out.
    pub talker: TalkerConfig,
    /// The codec's decoder: codec frames in, samples out.
    pub code2wav: Code2WavConfig,
    /// Samples a second of the codec's decoder.
    pub output_sample_rate: u32,
    /// What makes a voice out of a recording; `None` where voices are not cloned.
    pub cloning: Option<CloningConfig>,
    /// `<|im_start|>`, which opens a message.
    pub im_start_token_id: u32,
    /// `<|im_end|>`, which closes one.
    pub im_end_token_id: u32,
    /// Text id that stands before the text that is to be spoken.
    pub tts_bos_token_id: u32,
    /// Text id that ends the text that is to be spoken.
    pub tts_eos_token_id: u32,
    /// Text id that stands where there is no text.
    pub tts_pad_token_id: u32,
}

/// The talker: a language model over codec tokens, and the code predictor behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerConfig {
    /// Ids of codebook 0 and marks.
    pub vocab_size: usize,
    /// Text ids.
    pub text_vocab_size: usize,
    /// Size of a text embedding.
    pub text_hidden_size: usize,
    /// The layers. `hidden_act` is the activation of the text projection too.
    pub layers: LayersConfig,
    /// Positions that the model was made for.
    pub max_position_embeddings: usize,
    /// Positions that each layer looks back at; `None` for all.
    pub sliding_window: Option<usize>,
    /// Codebooks of a frame.
    pub num_code_groups: usize,
    /// Opens the codec stream.
    pub codec_bos_id: u32,
    /// Ends the codec stream.
    pub codec_eos_token_id: u32,
    /// Stands where there is no codec token.
    pub codec_pad_id: u32,
    /// Says that a language follows.
    pub codec_think_id: u32,
    /// Says that none follows.
    pub codec_nothink_id: u32,
    /// Stands before the language.
    pub codec_think_bos_id: u32,
    /// Stands after the language.
    pub codec_think_eos_id: u32,
    /// Each speaker, by lower-case name.
    pub speakers: BTreeMap<String, SpeakerConfig>,
    /// Codec token of each language and dialect, by lower-case name.
    pub languages: BTreeMap<String, u32>,
    /// Fills in the other codebooks of a frame.
    pub code_predictor: CodePredictorConfig,
}

/// A speaker of the checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeakerConfig {
    /// Its codec token.
    pub id: u32,
    /// The dialect that it speaks instead of Chinese, and when no language is asked for.
    pub dialect: Option<String>,
}

/// The encoders of recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct CloningConfig {
    /// Who speaks.
    pub speaker: SpeakerEncoderConfig,
    /// Samples a second of what the speaker encoder hears.
    pub speaker_sample_rate: u32,
    /// The codec's encoder.
    pub speech: SpeechEncoderConfig,
    /// Samples of a frame of codes.
    pub encode_downsample_rate: usize,
    /// Codebooks that are used.
    pub encoder_valid_num_quantizers: usize,
}

/// The codec's encoder, Mimi's.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechEncoderConfig {
    /// Channels of the audio.
    pub audio_channels: usize,
    /// Samples a second.
    pub sampling_rate: u32,
    /// Size of a transformer row.
    pub hidden_size: usize,
    /// Channels of the first convolution; each of `upsampling_ratios` doubles them.
    pub num_filters: usize,
    /// Residual blocks before each convolution with a stride.
    pub num_residual_layers: usize,
    /// Strides, the last one first.
    pub upsampling_ratios: Vec<usize>,
    /// Taps of the first convolution.
    pub kernel_size: usize,
    /// Taps of the last one.
    pub last_kernel_size: usize,
    /// Taps of a residual block.
    pub residual_kernel_size: usize,
    /// By how much the taps of each further residual block are farther apart.
    pub dilation_growth_rate: usize,
    /// Whether a convolution sees nothing ahead.
    pub use_causal_conv: bool,
    /// What a convolution sees before the first row.
    pub pad_mode: String,
    /// By how much a residual block narrows.
    pub compress: usize,
    /// Whether residual blocks have a convolution beside them.
    pub use_conv_shortcut: bool,
    /// Entries of a codebook.
    pub codebook_size: usize,
    /// Size of an entry.
    pub codebook_dim: usize,
    /// Size of a row that is quantized.
    pub vector_quantization_hidden_dimension: usize,
    /// Codebooks.
    pub num_quantizers: usize,
    /// Those of them that are quantized apart.
    pub num_semantic_quantizers: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Inner size of the feed-forward blocks.
    pub intermediate_size: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads.
    pub num_key_value_heads: usize,
    /// Size of a head.
    pub head_dim: usize,
    /// Activation of the feed-forward blocks.
    pub hidden_act: String,
    /// Added to the variance in norms.
    pub norm_eps: f64,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// Whether the four attention projections have a bias.
    pub attention_bias: bool,
}
