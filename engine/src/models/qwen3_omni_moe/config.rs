//! The configuration of the Qwen3-Omni family, complete: every field has its value.
//!
//! Names are those of the reference (`configuration_qwen3_omni_moe.py` of transformers 5.23). Fields of what is not built
//! (vision, training, caching hints) are left out. Sizes are counts of elements unless they say otherwise.

use std::collections::BTreeMap;

use crate::models::parts::config::{AudioTowerConfig, Code2WavConfig, CodePredictorConfig, LayersConfig};

/// What config.json calls this family.
pub const ARCHITECTURE: &str = "Qwen3OmniMoeForConditionalGeneration";

/// The whole file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The thinker: audio and text in, text out.
    pub thinker: ThinkerConfig,
    /// The talker: text in, codec frames out.
    pub talker: TalkerConfig,
    /// code2wav: codec frames in, samples out.
    pub code2wav: Code2WavConfig,
    /// `<|im_start|>`, which opens a message.
    pub im_start_token_id: u32,
    /// `<|im_end|>`, which closes one.
    pub im_end_token_id: u32,
    /// `system`, after `<|im_start|>`.
    pub system_token_id: u32,
    /// `user`, after `<|im_start|>`.
    pub user_token_id: u32,
    /// `assistant`, after `<|im_start|>`.
    pub assistant_token_id: u32,
    /// Thinker token whose embedding stands before the text that is to be spoken.
    pub tts_bos_token_id: u32,
    /// Thinker token whose embedding ends the text that is to be spoken.
    pub tts_eos_token_id: u32,
    /// Thinker token whose embedding is spoken when the text has ended.
    pub tts_pad_token_id: u32,
}

/// The audio tower and the language model behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThinkerConfig {
    /// The audio tower.
    pub audio: AudioConfig,
    /// The language model.
    pub text: TextConfig,
    /// `<|audio_start|>`.
    pub audio_start_token_id: u32,
    /// `<|audio_end|>`; not in every file, the tokenizer knows it too.
    pub audio_end_token_id: Option<u32>,
    /// `<|audio_pad|>`, which stands for one row of the audio tower's output.
    pub audio_token_id: u32,
}

/// The audio tower: convolutions over windows of mel frames, then a transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioConfig {
    /// What every tower has.
    pub tower: AudioTowerConfig,
    /// Mel frames that attend to each other.
    pub n_window_infer: usize,
    /// Channels of the convolutions.
    pub downsample_hidden_size: usize,
}

/// A decoder-only language model: the thinker's, or the talker's.
#[derive(Debug, Clone, PartialEq)]
pub struct TextConfig {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// The layers. `intermediate_size` is the inner size of a dense feed-forward block; in the talker also of its input projections.
    pub layers: LayersConfig,
    /// Positions that the model was made for.
    pub max_position_embeddings: usize,
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

/// The talker: a language model over codec tokens, and the code predictor behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerConfig {
    /// The language model over the first codebook.
    pub text: TextConfig,
    /// Fills in the other codebooks of a frame.
    pub code_predictor: CodePredictorConfig,
    /// Codebooks of a frame.
    pub num_code_groups: usize,
    /// Size of the thinker's rows that the talker takes.
    pub thinker_hidden_size: usize,
    /// Which of the thinker's hidden states the talker takes: 0 the embedding, n the output of the n-th layer.
    pub accept_hidden_layer: usize,
    /// Opens the codec stream.
    pub codec_bos_id: u32,
    /// Ends the codec stream.
    pub codec_eos_token_id: u32,
    /// Stands where there is no codec token yet.
    pub codec_pad_id: u32,
    /// Codec token for speech without thinking.
    pub codec_nothink_id: u32,
    /// Opens the empty thought.
    pub codec_think_bos_id: u32,
    /// Closes it.
    pub codec_think_eos_id: u32,
    /// Codec token of each voice, by lower-case name.
    pub speaker_id: BTreeMap<String, u32>,
}
