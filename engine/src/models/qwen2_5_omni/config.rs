//! Complete configuration of the Qwen2.5-Omni family's thinker and talker: every field has its value.
//!
//! Names are those of the reference (`configuration_qwen2_5_omni.py` of transformers 5.23). Fields of unsupported parts
//! (vision, training) are left out. Sizes are numbers of elements unless stated otherwise.

pub use crate::models::parts::config::AudioTowerConfig;
use crate::models::parts::config::LayersConfig;

/// Name of this family in config.json.
pub const ARCHITECTURE: &str = "Qwen2_5OmniForConditionalGeneration";
/// Name in older files.
pub const OLD_ARCHITECTURE: &str = "Qwen2_5OmniModel";

/// Contents of config.json; token2wav has a configuration of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The thinker: audio and text in, text out.
    pub thinker: ThinkerConfig,
    /// The talker: the thinker's rows in, codes out.
    pub talker: TalkerConfig,
    /// `token2wav_config.dit_config.num_embeds`: number of the codec's codes.
    pub codes: usize,
}

/// The audio tower and the language model after it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThinkerConfig {
    /// Sizes of the audio tower.
    pub audio: AudioTowerConfig,
    /// Sizes of the language model.
    pub text: TextConfig,
    /// True if the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Id of `<|AUDIO|>`, which stands for one row of the audio tower's output.
    pub audio_token_index: u32,
    /// Id of `<|audio_bos|>`.
    pub audio_start_token_id: u32,
    /// Id of `<|audio_eos|>`.
    pub audio_end_token_id: u32,
    /// Id of `user`, after `<|im_start|>`.
    pub user_token_id: u32,
}

impl AudioTowerConfig {
    /// Mel frames of a full block, which attend to each other.
    pub fn block_frames(&self) -> usize {
        2 * self.n_window
    }
}

/// A dense decoder-only language model: the thinker's or the talker's. Queries, keys and values have a bias.
#[derive(Debug, Clone, PartialEq)]
pub struct TextConfig {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Sizes of the layers.
    pub layers: LayersConfig,
    /// Maximum positions of the model.
    pub max_position_embeddings: usize,
    /// True if some layers attend to a window of positions only.
    pub use_sliding_window: bool,
}

/// The talker: a language model over single codes.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerConfig {
    /// Sizes of the language model.
    pub text: TextConfig,
    /// Width of the talker's input rows, the thinker's hidden size; its embeddings of codes have it too.
    pub embedding_size: usize,
    /// Thinker token after the text to speak.
    pub tts_text_end_token_id: u32,
    /// Thinker token that pads the text after that, next to the remaining codes.
    pub tts_text_pad_token_id: u32,
    /// Id that opens the codes.
    pub tts_codec_start_token_id: u32,
    /// Id that ends the codes.
    pub tts_codec_end_token_id: u32,
    /// Codec padding id before the first code; it ends the codes too.
    pub tts_codec_pad_token_id: u32,
    /// Id for the prompt's positions in the reference's count of sampled ids.
    pub tts_codec_mask_token_id: u32,
}
