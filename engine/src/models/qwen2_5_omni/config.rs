//! The configuration of thinker and talker of the Qwen2.5-Omni family, complete: every field has its value.
//!
//! Names are those of the reference (`configuration_qwen2_5_omni.py` of transformers 5.23). Fields of what is not built (vision, training)
//! are left out. Sizes are counts of elements unless they say otherwise.

pub use crate::models::parts::config::AudioTowerConfig;
use crate::models::parts::config::LayersConfig;

/// What config.json calls this family.
pub const ARCHITECTURE: &str = "Qwen2_5OmniForConditionalGeneration";
/// What older files call it.
pub const OLD_ARCHITECTURE: &str = "Qwen2_5OmniModel";

/// The whole file; token2wav has a configuration of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The thinker: audio and text in, text out.
    pub thinker: ThinkerConfig,
    /// The talker: the thinker's rows in, codes out.
    pub talker: TalkerConfig,
    /// `token2wav_config.dit_config.num_embeds`: codes that the codec knows.
    pub codes: usize,
}

/// The audio tower and the language model behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThinkerConfig {
    /// The audio tower.
    pub audio: AudioTowerConfig,
    /// The language model.
    pub text: TextConfig,
    /// Whether the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// `<|AUDIO|>`, which stands for one row of the audio tower's output.
    pub audio_token_index: u32,
    /// `<|audio_bos|>`
    pub audio_start_token_id: u32,
    /// `<|audio_eos|>`
    pub audio_end_token_id: u32,
    /// `user`, after `<|im_start|>`.
    pub user_token_id: u32,
}

impl AudioTowerConfig {
    /// Mel frames of a full block, which attend to each other.
    pub fn block_frames(&self) -> usize {
        2 * self.n_window
    }
}

/// A dense decoder-only language model: the thinker's, or the talker's. Queries, keys and values have a bias.
#[derive(Debug, Clone, PartialEq)]
pub struct TextConfig {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// The layers.
    pub layers: LayersConfig,
    /// Positions that the model was made for.
    pub max_position_embeddings: usize,
    /// Whether some layers see a window of positions alone.
    pub use_sliding_window: bool,
}

/// The talker: a language model over single codes.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerConfig {
    /// The language model.
    pub text: TextConfig,
    /// Size of the rows that the talker takes, the thinker's hidden size; its embeddings of codes have it too.
    pub embedding_size: usize,
    /// Thinker token that stands after the text that is to be spoken.
    pub tts_text_end_token_id: u32,
    /// Thinker token that stands beside the codes after that.
    pub tts_text_pad_token_id: u32,
    /// Opens the codes.
    pub tts_codec_start_token_id: u32,
    /// Ends the codes.
    pub tts_codec_end_token_id: u32,
    /// Stands where there is no code yet; it ends the codes too.
    pub tts_codec_pad_token_id: u32,
    /// Stands for the prompt's positions where the reference counts what was said before.
    pub tts_codec_mask_token_id: u32,
}
