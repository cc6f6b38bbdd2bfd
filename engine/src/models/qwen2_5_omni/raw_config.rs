//! config.json as written in the file. Absent fields take the defaults of the reference's configuration classes; then
//! the result is checked.

use serde::Deserialize;

use super::config::{ARCHITECTURE, Config, OLD_ARCHITECTURE, TalkerConfig, TextConfig, ThinkerConfig};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::config::LayersConfig;
use crate::models::parts::raw_config::{
    LayersDefaults, RawAudio, RawLanguageModel, checked, expect_architecture, load_omni_config,
};

impl Config {
    /// Reads, resolves and checks config.json.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        expect_architecture(checkpoint, &[ARCHITECTURE, OLD_ARCHITECTURE])?;
        let config = Self::from(load_omni_config::<RawConfig>(checkpoint)?);
        checked(checkpoint, config.validate())?;
        Ok(config)
    }
}

#[derive(Deserialize)]
struct RawConfig {
    thinker_config: RawThinker,
    talker_config: RawTalker,
    #[serde(default)]
    token2wav_config: RawToken2Wav,
}

impl From<RawConfig> for Config {
    fn from(raw: RawConfig) -> Self {
        Self {
            thinker: raw.thinker_config.into(),
            talker: raw.talker_config.into(),
            codes: raw.token2wav_config.dit_config.num_embeds.unwrap_or(8193),
        }
    }
}

/// Fields of `token2wav_config` that the talker needs.
#[derive(Default, Deserialize)]
struct RawToken2Wav {
    #[serde(default)]
    dit_config: RawDit,
}

#[derive(Default, Deserialize)]
struct RawDit {
    num_embeds: Option<usize>,
}

/// Fields of `thinker_config`.
#[derive(Deserialize)]
struct RawThinker {
    audio_config: RawAudio,
    text_config: RawLanguageModel,
    tie_word_embeddings: Option<bool>,
    audio_token_index: Option<u32>,
    audio_start_token_id: Option<u32>,
    audio_end_token_id: Option<u32>,
    user_token_id: Option<u32>,
}

impl From<RawThinker> for ThinkerConfig {
    fn from(raw: RawThinker) -> Self {
        Self {
            audio: raw.audio_config.tower(100),
            text: text(raw.text_config, &THINKER),
            tie_word_embeddings: raw.tie_word_embeddings.unwrap_or(false),
            audio_token_index: raw.audio_token_index.unwrap_or(151_646),
            audio_start_token_id: raw.audio_start_token_id.unwrap_or(151_647),
            audio_end_token_id: raw.audio_end_token_id.unwrap_or(151_648),
            user_token_id: raw.user_token_id.unwrap_or(872),
        }
    }
}

/// Defaults that differ between the reference's two configuration classes.
struct TextDefaults {
    vocab_size: usize,
    head_dim: Option<usize>,
}

const THINKER: TextDefaults = TextDefaults { vocab_size: 152_064, head_dim: None };
const TALKER: TextDefaults = TextDefaults { vocab_size: 8448, head_dim: Some(128) };

/// Defaults that both classes share.
const LAYERS: LayersDefaults = LayersDefaults {
    hidden_size: 3584,
    intermediate_size: 18_944,
    num_hidden_layers: 28,
    num_attention_heads: 28,
    num_key_value_heads: 4,
    head_dim: None,
    rope_theta: 1_000_000.0,
};

/// Resolves a language model: `thinker_config.text_config`, or `talker_config` itself.
fn text(mut raw: RawLanguageModel, absent: &TextDefaults) -> TextConfig {
    let layers = raw.layers(&LayersDefaults { head_dim: absent.head_dim, ..LAYERS });
    let mut rope = layers.rope;
    // Older files name the type `mrope`, after the sections of three-index positions.
    if rope.kind == "mrope" {
        "default".clone_into(&mut rope.kind);
    }
    TextConfig {
        vocab_size: raw.vocab_size.unwrap_or(absent.vocab_size),
        // This family has no field for the bias of projections.
        layers: LayersConfig { rope, attention_bias: false, ..layers },
        max_position_embeddings: raw.positions(),
        use_sliding_window: raw.use_sliding_window.unwrap_or(false),
    }
}

/// Fields of `talker_config`.
#[derive(Deserialize)]
struct RawTalker {
    #[serde(flatten)]
    text: RawLanguageModel,
    embedding_size: Option<usize>,
    tts_text_end_token_id: Option<u32>,
    tts_text_pad_token_id: Option<u32>,
    tts_codec_start_token_id: Option<u32>,
    tts_codec_end_token_id: Option<u32>,
    tts_codec_pad_token_id: Option<u32>,
    tts_codec_mask_token_id: Option<u32>,
}

impl From<RawTalker> for TalkerConfig {
    fn from(raw: RawTalker) -> Self {
        Self {
            text: text(raw.text, &TALKER),
            embedding_size: raw.embedding_size.unwrap_or(3584),
            tts_text_end_token_id: raw.tts_text_end_token_id.unwrap_or(151_861),
            tts_text_pad_token_id: raw.tts_text_pad_token_id.unwrap_or(151_859),
            tts_codec_start_token_id: raw.tts_codec_start_token_id.unwrap_or(8293),
            tts_codec_end_token_id: raw.tts_codec_end_token_id.unwrap_or(8294),
            tts_codec_pad_token_id: raw.tts_codec_pad_token_id.unwrap_or(8292),
            tts_codec_mask_token_id: raw.tts_codec_mask_token_id.unwrap_or(8296),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_fields_take_the_references_defaults() {
        let raw = json!({
            "thinker_config": {
                "audio_config": {"d_model": 64},
                "text_config": {"hidden_size": 96, "num_attention_heads": 4, "rope_theta": 500_000,
                    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
            },
            // The published talker is smaller than its class's defaults.
            "talker_config": {"hidden_size": 896, "num_attention_heads": 12, "sliding_window": null},
        });
        let config: Config = serde_json::from_value::<RawConfig>(raw).unwrap().into();
        let thinker = &config.thinker.text;
        assert_eq!((thinker.layers.head_dim, thinker.vocab_size, thinker.layers.rope.theta), (24, 152_064, 500_000.0));
        assert_eq!(thinker.layers.rope.kind, "default");
        assert_eq!((config.thinker.audio.d_model, config.thinker.audio.block_frames()), (64, 200));
        let talker = &config.talker;
        assert_eq!((talker.text.layers.head_dim, talker.text.vocab_size, talker.embedding_size), (128, 8448, 3584));
        assert_eq!((talker.tts_codec_pad_token_id, talker.tts_codec_end_token_id), (8292, 8294));
        assert_eq!((talker.text.layers.rope.theta, config.codes), (1_000_000.0, 8193));
    }
}
