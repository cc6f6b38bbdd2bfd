//! Complete configuration of the Qwen3-Omni family: every field has its value.
//!
//! Names are those of the reference (`configuration_qwen3_omni_moe.py` of transformers 5.23). Fields of unsupported
//! parts (vision, training, caching hints) are left out. Sizes are numbers of elements unless stated otherwise.

use std::collections::BTreeMap;

use crate::models::parts::config::{AudioTowerConfig, Code2WavConfig, CodePredictorConfig, LayersConfig};

/// Name of this family in config.json.
pub const ARCHITECTURE: &str = "Qwen3OmniMoeForConditionalGeneration";

/// Contents of config.json.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The thinker: audio and text in, text out.
    pub thinker: ThinkerConfig,
    /// The talker: text in, codec frames out.
    pub talker: TalkerConfig,
    /// code2wav: codec frames in, samples out.
    pub code2wav: Code2WavConfig,
    /// Id of `<|im_start|>`, which opens a message.
    pub im_start_token_id: u32,
    /// Id of `<|im_end|>`, which closes a message.
    pub im_end_token_id: u32,
    /// Id of `system`, after `<|im_start|>`.
    pub system_token_id: u32,
    /// Id of `user`, after `<|im_start|>`.
    pub user_token_id: u32,
    /// Id of `assistant`, after `<|im_start|>`.
    pub assistant_token_id: u32,
    /// Thinker token before the text to speak; the talker uses its embedding.
    pub tts_bos_token_id: u32,
    /// Thinker token at the end of the text to speak.
    pub tts_eos_token_id: u32,
    /// Thinker token that pads the text after its end.
    pub tts_pad_token_id: u32,
}

/// The audio tower and the language model after it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThinkerConfig {
    /// Sizes of the audio tower.
    pub audio: AudioConfig,
    /// Sizes of the language model.
    pub text: TextConfig,
    /// Id of `<|audio_start|>`.
    pub audio_start_token_id: u32,
    /// Id of `<|audio_end|>`; if the file lacks it, the tokenizer has it.
    pub audio_end_token_id: Option<u32>,
    /// Id of `<|audio_pad|>`, which stands for one row of the audio tower's output.
    pub audio_token_id: u32,
}

/// The audio tower: convolutions over windows of mel frames, then a transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioConfig {
    /// Fields common to all towers.
    pub tower: AudioTowerConfig,
    /// Mel frames that attend to each other.
    pub n_window_infer: usize,
    /// Channels of the convolutions.
    pub downsample_hidden_size: usize,
}

/// A decoder-only language model: the thinker's or the talker's.
#[derive(Debug, Clone, PartialEq)]
pub struct TextConfig {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Sizes of the layers. `intermediate_size` is the inner width of a dense feed-forward block; in the talker also of
    /// its input projections.
    pub layers: LayersConfig,
    /// Maximum positions of the model.
    pub max_position_embeddings: usize,
    /// True if the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Interval of layers with experts; see [`Self::is_moe_layer`].
    pub decoder_sparse_step: usize,
    /// Layers that are dense regardless of the step.
    pub mlp_only_layers: Vec<usize>,
    /// Experts of a layer; 0 makes every layer dense.
    pub num_experts: usize,
    /// Experts that process one row.
    pub num_experts_per_tok: usize,
    /// Inner width of one expert.
    pub moe_intermediate_size: usize,
    /// True if the weights of the chosen experts are scaled to add up to one.
    pub norm_topk_prob: bool,
    /// Inner width of the shared expert, which processes every row; the talker has one, the thinker does not.
    pub shared_expert_intermediate_size: Option<usize>,
}

impl TextConfig {
    /// True if layer `index`, counted from 0, has experts instead of a dense feed-forward block.
    pub fn is_moe_layer(&self, index: usize) -> bool {
        !self.mlp_only_layers.contains(&index)
            && self.num_experts > 0
            && (index + 1).is_multiple_of(self.decoder_sparse_step)
    }
}

/// The talker: a language model over codec tokens, and its code predictor.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerConfig {
    /// The language model over the first codebook.
    pub text: TextConfig,
    /// Code predictor for the other codebooks of a frame.
    pub code_predictor: CodePredictorConfig,
    /// Codebooks of a frame.
    pub num_code_groups: usize,
    /// Width of the thinker's rows that the talker takes.
    pub thinker_hidden_size: usize,
    /// Index of the thinker's hidden state that the talker takes: 0 is the embedding, n the output of the n-th layer.
    pub accept_hidden_layer: usize,
    /// Id that opens the codec stream.
    pub codec_bos_id: u32,
    /// Id that ends the codec stream.
    pub codec_eos_token_id: u32,
    /// Codec padding id before the first codec token.
    pub codec_pad_id: u32,
    /// Codec token for speech without thinking.
    pub codec_nothink_id: u32,
    /// Codec token that opens the empty thought.
    pub codec_think_bos_id: u32,
    /// Codec token that closes the empty thought.
    pub codec_think_eos_id: u32,
    /// Codec token of each voice, by lower-case name.
    pub speaker_id: BTreeMap<String, u32>,
}
