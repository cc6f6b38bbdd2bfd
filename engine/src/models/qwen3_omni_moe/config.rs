//! config.json of the Qwen3-Omni family.
//!
//! Names and the values of absent fields are those of the reference (`configuration_qwen3_omni_moe.py` of
//! transformers 5.23). Older files, with `rope_theta` and `rope_scaling` beside each other, are read as well. Fields of
//! what is not built (vision, training, caching hints) are ignored. Sizes are counts of elements unless they say
//! otherwise.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::raw_config;
use crate::checkpoint::{CONFIG, Checkpoint, CheckpointError};

/// What config.json calls this family.
pub const ARCHITECTURE: &str = "Qwen3OmniMoeForConditionalGeneration";

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// The thinker: audio and text in, text out.
    #[serde(rename = "thinker_config")]
    pub thinker: ThinkerConfig,
    /// The talker: text in, codec frames out.
    #[serde(rename = "talker_config")]
    pub talker: TalkerConfig,
    /// code2wav: codec frames in, samples out.
    #[serde(rename = "code2wav_config")]
    pub code2wav: Code2WavConfig,
    /// False in text-only checkpoints, which have neither talker nor code2wav.
    #[serde(default = "yes")]
    pub enable_audio_output: bool,
    /// `<|im_start|>`, which opens a message.
    #[serde(default = "default::im_start")]
    pub im_start_token_id: u32,
    /// `<|im_end|>`, which closes one.
    #[serde(default = "default::im_end")]
    pub im_end_token_id: u32,
    /// `system`, after `<|im_start|>`.
    #[serde(default = "default::system")]
    pub system_token_id: u32,
    /// `user`, after `<|im_start|>`.
    #[serde(default = "default::user")]
    pub user_token_id: u32,
    /// `assistant`, after `<|im_start|>`.
    #[serde(default = "default::assistant")]
    pub assistant_token_id: u32,
    /// Thinker token whose embedding stands before the text that is to be spoken.
    #[serde(default = "default::tts_bos")]
    pub tts_bos_token_id: u32,
    /// Thinker token whose embedding ends the text that is to be spoken.
    #[serde(default = "default::tts_eos")]
    pub tts_eos_token_id: u32,
    /// Thinker token whose embedding is spoken when the text has ended.
    #[serde(default = "default::tts_pad")]
    pub tts_pad_token_id: u32,
}

/// The audio tower and the language model behind it.
#[derive(Debug, Clone, Deserialize)]
pub struct ThinkerConfig {
    /// The audio tower.
    #[serde(rename = "audio_config")]
    pub audio: AudioConfig,
    /// The language model.
    #[serde(rename = "text_config", deserialize_with = "raw_config::thinker_text")]
    pub text: TextConfig,
    /// `<|audio_start|>`.
    #[serde(default = "default::audio_start")]
    pub audio_start_token_id: u32,
    /// `<|audio_end|>`; not in every file, the tokenizer knows it too.
    pub audio_end_token_id: Option<u32>,
    /// `<|audio_pad|>`, which stands for one row of the audio tower's output.
    #[serde(default = "default::audio")]
    pub audio_token_id: u32,
}

/// The audio tower: convolutions over windows of mel frames, then a transformer.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct AudioConfig {
    /// Mel bins of one input frame.
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
    /// Half of the mel frames that the convolutions see at once.
    pub n_window: usize,
    /// Mel frames that attend to each other.
    pub n_window_infer: usize,
    /// Channels of the convolutions.
    pub downsample_hidden_size: usize,
    /// Rows of the sinusoidal position table.
    pub max_source_positions: usize,
    /// Activation of the feed-forward blocks and of the output projection.
    pub activation_function: String,
}

/// A decoder-only language model: the thinker's, or the talker's.
#[derive(Debug, Clone, PartialEq)]
pub struct TextConfig {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Size of a row.
    pub hidden_size: usize,
    /// Inner size of a dense feed-forward block; in the talker also of its input projections.
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
    /// Positions that the model was made for.
    pub max_position_embeddings: usize,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Whether the four attention projections have a bias.
    pub attention_bias: bool,
    /// Whether the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Every so many layers one has experts, see [`Self::is_moe_layer`].
    pub decoder_sparse_step: usize,
    /// Layers that are dense whatever the step says.
    pub mlp_only_layers: Vec<usize>,
    /// Experts of an expert layer; 0 makes every layer dense.
    pub num_experts: usize,
    /// Experts that see one row.
    pub num_experts_per_tok: usize,
    /// Inner size of one expert.
    pub moe_intermediate_size: usize,
    /// Whether the weights of the chosen experts are scaled to add up to one.
    pub norm_topk_prob: bool,
    /// Inner size of the expert that sees every row; the talker has one, the thinker does not.
    pub shared_expert_intermediate_size: Option<usize>,
}

impl TextConfig {
    /// Whether layer `index`, counted from 0, has experts instead of a dense feed-forward block.
    pub fn is_moe_layer(&self, index: usize) -> bool {
        !self.mlp_only_layers.contains(&index)
            && self.num_experts > 0
            && (index + 1).is_multiple_of(self.decoder_sparse_step)
    }
}

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

/// The talker: a language model over codec tokens, and the code predictor behind it.
#[derive(Debug, Clone, Deserialize)]
pub struct TalkerConfig {
    /// The language model over the first codebook.
    #[serde(rename = "text_config", deserialize_with = "raw_config::talker_text")]
    pub text: TextConfig,
    /// Fills in the other codebooks of a frame.
    #[serde(rename = "code_predictor_config")]
    pub code_predictor: CodePredictorConfig,
    /// Codebooks of a frame.
    #[serde(default = "default::num_code_groups")]
    pub num_code_groups: usize,
    /// Size of the thinker's rows that the talker takes.
    #[serde(default = "default::thinker_hidden_size")]
    pub thinker_hidden_size: usize,
    /// Which of the thinker's hidden states the talker takes: 0 the embedding, n the output of the n-th layer.
    #[serde(default = "default::accept_hidden_layer")]
    pub accept_hidden_layer: usize,
    /// Opens the codec stream.
    #[serde(default = "default::codec_bos")]
    pub codec_bos_id: u32,
    /// Ends the codec stream.
    #[serde(default = "default::codec_eos")]
    pub codec_eos_token_id: u32,
    /// Stands where there is no codec token yet.
    #[serde(default = "default::codec_pad")]
    pub codec_pad_id: u32,
    /// Codec token for speech without thinking.
    #[serde(default = "default::codec_nothink")]
    pub codec_nothink_id: u32,
    /// Opens the empty thought.
    #[serde(default = "default::codec_think_bos")]
    pub codec_think_bos_id: u32,
    /// Closes it.
    #[serde(default = "default::codec_think_eos")]
    pub codec_think_eos_id: u32,
    /// Codec token of each voice, by lower-case name.
    #[serde(default, deserialize_with = "raw_config::null_is_empty")]
    pub speaker_id: BTreeMap<String, u32>,
}

/// The code predictor: a small decoder that runs over the codebooks of one frame.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "raw_config::RawCodePredictor")]
pub struct CodePredictorConfig {
    /// Codes of one codebook.
    pub vocab_size: usize,
    /// Size of a row, the talker's.
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
    /// Codebooks of a frame, the first included.
    pub num_code_groups: usize,
    /// Positions that a layer with a window looks back at; a frame must be shorter than that.
    pub sliding_window: Option<usize>,
}

/// code2wav: a windowed transformer over frames, then upsampling convolutions.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "raw_config::RawCode2Wav")]
pub struct Code2WavConfig {
    /// Codes of one codebook.
    pub codebook_size: usize,
    /// Codebooks of a frame.
    pub num_quantizers: usize,
    /// Size of a transformer row.
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
    /// Whether the four attention projections have a bias.
    pub attention_bias: bool,
    /// Frames that a frame attends to, itself included.
    pub sliding_window: usize,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Channels before the first decoder block; each block halves them.
    pub decoder_dim: usize,
    /// Factors of the ConvNeXt upsamplers before the decoder.
    pub upsampling_ratios: Vec<usize>,
    /// Factors of the decoder blocks.
    pub upsample_rates: Vec<usize>,
}

impl Code2WavConfig {
    /// Samples that one codec frame stands for.
    pub fn samples_per_frame(&self) -> usize {
        self.upsampling_ratios.iter().chain(&self.upsample_rates).product()
    }
}

/// What decides whether the rest of the file can be read at all.
#[derive(Deserialize)]
struct Outline {
    #[serde(default = "yes")]
    enable_audio_output: bool,
}

impl Config {
    /// Reads and checks config.json.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let found = checkpoint.architecture()?;
        if found != ARCHITECTURE {
            let (file, known) = (checkpoint.label(CONFIG), ARCHITECTURE.to_owned());
            return Err(CheckpointError::UnknownArchitecture { file, found, known });
        }
        let bad = |value| CheckpointError::BadValue { file: checkpoint.label(CONFIG), value };
        // Without audio output the talker's part is absent, which must not be reported as a missing field.
        let outline: Outline = checkpoint.config()?;
        super::validate::audio_output(outline.enable_audio_output).map_err(bad)?;
        let config: Self = checkpoint.config()?;
        config.validate().map_err(bad)?;
        Ok(config)
    }
}

impl Default for AudioConfig {
    fn default() -> Self {
        Self {
            num_mel_bins: 128,
            encoder_layers: 32,
            encoder_attention_heads: 20,
            encoder_ffn_dim: 5120,
            d_model: 1280,
            output_dim: 3584,
            n_window: 50,
            n_window_infer: 800,
            downsample_hidden_size: 480,
            max_source_positions: 1500,
            activation_function: "gelu".to_owned(),
        }
    }
}

fn yes() -> bool {
    true
}

/// Values of absent ids and sizes, from the reference.
mod default {
    macro_rules! defaults {
        ($($name:ident: $kind:ty = $value:expr;)*) => {
            $(pub(super) fn $name() -> $kind { $value })*
        };
    }

    defaults! {
        im_start: u32 = 151_644;
        im_end: u32 = 151_645;
        system: u32 = 8948;
        user: u32 = 872;
        assistant: u32 = 77_091;
        tts_bos: u32 = 151_672;
        tts_eos: u32 = 151_673;
        tts_pad: u32 = 151_671;
        audio_start: u32 = 151_647;
        audio: u32 = 151_646;
        num_code_groups: usize = 32;
        thinker_hidden_size: usize = 2048;
        accept_hidden_layer: usize = 18;
        codec_bos: u32 = 4197;
        codec_eos: u32 = 4198;
        codec_pad: u32 = 4196;
        codec_nothink: u32 = 4203;
        codec_think_bos: u32 = 4204;
        codec_think_eos: u32 = 4205;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What an early published file leaves out is taken from the reference, and rotary parameters from their old place.
    #[test]
    fn absent_fields_take_the_references_defaults() {
        let config: Config = serde_json::from_value(json!({
            "thinker_config": {
                "audio_config": {"d_model": 64},
                "text_config": {
                    "hidden_size": 96, "num_attention_heads": 4, "rope_theta": 500_000,
                    "rope_scaling": {"type": "default", "mrope_section": [24, 20, 20]},
                },
            },
            "talker_config": {
                "text_config": {"num_local_experts": 6, "rope_parameters": {"rope_type": "yarn", "rope_theta": 3.0}},
                "code_predictor_config": {"sliding_window": 9},
                "speaker_id": null,
            },
            "code2wav_config": {"rope_theta": 20_000},
        }))
        .unwrap();

        let thinker = &config.thinker.text;
        assert_eq!((thinker.head_dim, thinker.vocab_size, thinker.num_experts), (24, 3584, 128));
        assert_eq!(thinker.rope, Rope { theta: 500_000.0, kind: "default".into(), partial_rotary_factor: 1.0 });
        assert!(thinker.norm_topk_prob);
        let talker = &config.talker.text;
        assert_eq!((talker.vocab_size, talker.num_experts, talker.norm_topk_prob), (3072, 6, false));
        assert_eq!((talker.rope.theta, talker.rope.kind.as_str()), (3.0, "yarn"));
        assert_eq!(config.talker.code_predictor.rope.theta, 10_000.0);
        assert_eq!(config.talker.code_predictor.sliding_window, None, "no layer of it has a window");
        assert!(config.talker.speaker_id.is_empty());
        assert_eq!((config.code2wav.head_dim, config.code2wav.rope.theta), (64, 20_000.0));
        assert_eq!(config.code2wav.samples_per_frame(), 1920);
        assert_eq!((config.thinker.audio.d_model, config.thinker.audio.n_window_infer), (64, 800));
        assert_eq!((config.im_end_token_id, config.talker.codec_eos_token_id), (151_645, 4198));
    }

    #[test]
    fn expert_layers_follow_step_and_exceptions() {
        let text = |step: usize, dense: &[usize], experts: usize| -> Vec<usize> {
            let config: ThinkerConfig = serde_json::from_value(json!({
                "audio_config": {},
                "text_config": {"decoder_sparse_step": step, "mlp_only_layers": dense, "num_experts": experts},
            }))
            .unwrap();
            (0..6).filter(|layer| config.text.is_moe_layer(*layer)).collect()
        };
        assert_eq!(text(1, &[], 8), [0, 1, 2, 3, 4, 5]);
        assert_eq!(text(2, &[3], 8), [1, 5]);
        assert_eq!(text(1, &[], 0), [0_usize; 0]);
    }
}
