//! Configuration of the Qwen2.5-Omni family's thinker and talker, from config.json; token2wav has one of its own.
//!
//! Names and defaults are those of the reference (`configuration_qwen2_5_omni.py` of transformers 5.23). Fields of
//! unsupported parts (vision, training) are left out. Sizes are numbers of elements unless stated otherwise.

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::audio_encoder::shape::{Convolutions, EncoderShape};
use crate::models::parts::config::limits::{CODES, POSITIONS};
use crate::models::parts::config::{
    AudioTowerConfig, ConfigFile, ConfigSection, LanguageModelConfig, LayersDefaults, THINKER, require_audio_output,
};
use crate::models::parts::decoder::DecoderShape;
use crate::models::parts::language_model::{HandedRow, LanguageModelShape};

/// Names of this family in config.json: the published one, and that of older files.
pub const ARCHITECTURES: [&str; 2] = ["Qwen2_5OmniForConditionalGeneration", "Qwen2_5OmniModel"];

/// Contents of config.json without `token2wav_config`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The thinker: audio and text in, text out.
    pub thinker: ThinkerConfig,
    /// The talker: the thinker's rows in, codes out.
    pub talker: TalkerConfig,
    /// `token2wav_config.dit_config.num_embeds`: number of the codec's codes.
    pub codes: usize,
}

impl Config {
    /// Reads config.json; every size is within its bounds.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::of_family(checkpoint, &ARCHITECTURES)?;
        Self::read(&file.top()?)
    }

    fn read(top: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        require_audio_output(top)?;
        let thinker = ThinkerConfig::read(&top.section("thinker_config")?)?;
        let codes = codes(&top.optional_section("token2wav_config")?.optional_section("dit_config")?)?;
        let talker = TalkerConfig::read(&top.section("talker_config")?, &thinker.text, codes)?;
        Ok(Self { thinker, talker, codes })
    }
}

/// Reads the number of the codec's codes from `dit_config`.
pub fn codes(dit: &ConfigSection<'_>) -> Result<usize, CheckpointError> {
    dit.size("num_embeds", 8193, CODES)
}

/// The audio tower and the language model after it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThinkerConfig {
    /// Sizes of the audio tower.
    pub audio: AudioTowerConfig,
    /// Sizes of the language model.
    pub text: LanguageModelConfig,
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

impl ThinkerConfig {
    fn read(at: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        let tower = at.section("audio_config")?;
        let text = language_model(&at.section("text_config")?, 152_064, None)?;
        let audio =
            AudioTowerConfig::read(&tower, 100, ("thinker_config.text_config.hidden_size", text.layers.hidden_size))?;
        tower.size("max_source_positions", 1500, audio.n_window..=*POSITIONS.end())?;
        let id = |field, absent| at.id(field, absent, text.vocab_size);
        Ok(Self {
            audio,
            tie_word_embeddings: at.switch("tie_word_embeddings", false)?,
            audio_token_index: id("audio_token_index", 151_646)?,
            audio_start_token_id: id("audio_start_token_id", 151_647)?,
            audio_end_token_id: id("audio_end_token_id", 151_648)?,
            user_token_id: id("user_token_id", 872)?,
            text,
        })
    }

    /// Shape of the audio tower, after `Qwen2_5OmniAudioEncoder`: the rows of a window of `2 * n_window` mel frames
    /// attend to each other only. So a window depends on no other one, and a full one yields whole pairs.
    pub fn encoder(&self) -> EncoderShape {
        let projection = [("proj", self.audio.output_dim)];
        EncoderShape { pairs: true, ..self.audio.encoder(Convolutions::Conv1d, false, &projection) }
    }

    /// Shape of the language model, after `Qwen2_5OmniThinkerForConditionalGeneration` without vision. Then the three
    /// rotary indices of a position are equal, so the sections of M-RoPE have no effect.
    pub fn language_model(&self) -> LanguageModelShape {
        LanguageModelShape {
            vocabulary: self.text.vocab_size,
            tied: self.tie_word_embeddings,
            decoder: decoder(&self.text),
            handed: Some(HandedRow::LastAndEmbedding),
        }
    }
}

/// Reads a language model with dense layers; the classes' defaults differ in two fields.
fn language_model(
    at: &ConfigSection<'_>,
    vocab_size: usize,
    head_dim: Option<usize>,
) -> Result<LanguageModelConfig, CheckpointError> {
    at.only("use_sliding_window", false)?;
    LanguageModelConfig::read(at, vocab_size, &LayersDefaults { hidden_size: 3584, head_dim, ..THINKER })
}

/// Shape of a language model's layers. Queries, keys and values have a bias.
pub fn decoder(config: &LanguageModelConfig) -> DecoderShape {
    DecoderShape { qkv_bias: true, ..config.layers.shape(None) }
}

/// The talker: a language model over single codes.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerConfig {
    /// Sizes of the language model.
    pub text: LanguageModelConfig,
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
}

impl TalkerConfig {
    /// Reads `talker_config` for a codec of `codes` codes.
    fn read(at: &ConfigSection<'_>, thinker: &LanguageModelConfig, codes: usize) -> Result<Self, CheckpointError> {
        let text = language_model(at, 8448, Some(128))?;
        let wanted = ("thinker_config.text_config.hidden_size", thinker.layers.hidden_size);
        // A code's id is the code, so the marks lie above the codes.
        let vocabulary = text.vocab_size;
        let allowed = format!("at least {codes}, the number of codes, and below vocab_size, which is {vocabulary}");
        let mark =
            |field, absent| at.value(field, absent, |id: u32| (codes..vocabulary).contains(&(id as usize)), &allowed);
        // The reference counts this id for the prompt's positions; it may never be sampled.
        at.id("tts_codec_mask_token_id", 8296, vocabulary)?;
        Ok(Self {
            embedding_size: at.equal("embedding_size", 3584, wanted)?,
            tts_text_end_token_id: at.id("tts_text_end_token_id", 151_861, thinker.vocab_size)?,
            tts_text_pad_token_id: at.id("tts_text_pad_token_id", 151_859, thinker.vocab_size)?,
            tts_codec_start_token_id: mark("tts_codec_start_token_id", 8293)?,
            tts_codec_end_token_id: mark("tts_codec_end_token_id", 8294)?,
            tts_codec_pad_token_id: mark("tts_codec_pad_token_id", 8292)?,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_fields_take_the_references_defaults() {
        let json = json!({
            "thinker_config": {
                "audio_config": {"d_model": 60},
                "text_config": {"num_attention_heads": 32, "rope_theta": 500_000,
                    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
            },
            // The published talker is smaller than its class's defaults.
            "talker_config": {"hidden_size": 896, "num_attention_heads": 12, "sliding_window": null},
        });
        let file = ConfigFile::new("config.json", json);
        let config = Config::read(&file.top().unwrap()).unwrap();
        let thinker = &config.thinker.text;
        assert_eq!((thinker.layers.head_dim, thinker.vocab_size, thinker.layers.rope_theta), (112, 152_064, 500_000.0));
        assert_eq!((config.thinker.audio.d_model, config.thinker.encoder().window), (60, 200));
        let talker = &config.talker;
        assert_eq!((talker.text.layers.head_dim, talker.text.vocab_size, talker.embedding_size), (128, 8448, 3584));
        assert_eq!((talker.tts_codec_pad_token_id, talker.tts_codec_end_token_id), (8292, 8294));
        assert_eq!((talker.text.layers.rope_theta, config.codes), (1_000_000.0, 8193));
    }
}
