//! config.json as written in the file: absent fields take the defaults of the reference's configuration classes, and the result is
//! checked. `null` means the same as an absent field.

use serde::Deserialize;

use super::config::{ARCHITECTURE, AudioConfig, Config, OLD_ARCHITECTURE, TalkerConfig, TextConfig, ThinkerConfig};
use super::validate::audio_output;
use crate::checkpoint::{CONFIG, Checkpoint, CheckpointError};
use crate::models::parts::raw_config::{RopeTable, head_size, rope, silu};

/// Base of the wavelengths where the file names none.
const THETA: f64 = 1_000_000.0;

impl Config {
    /// Reads, resolves and checks config.json.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let found = checkpoint.architecture()?;
        if found != ARCHITECTURE && found != OLD_ARCHITECTURE {
            let (file, known) = (checkpoint.label(CONFIG), ARCHITECTURE.to_owned());
            return Err(CheckpointError::UnknownArchitecture { file, found, known });
        }
        let bad = |value| CheckpointError::BadValue { file: checkpoint.label(CONFIG), value };
        // Without audio output the talker's part is absent, which must not be reported as a missing field.
        let outline: Outline = checkpoint.config()?;
        audio_output(outline.enable_audio_output.unwrap_or(true)).map_err(bad)?;
        let config = Self::from(checkpoint.config::<RawConfig>()?);
        config.validate().map_err(bad)?;
        Ok(config)
    }
}

/// The field that decides which others there are.
#[derive(Deserialize)]
struct Outline {
    enable_audio_output: Option<bool>,
}

#[derive(Deserialize)]
struct RawConfig {
    thinker_config: RawThinker,
    talker_config: RawTalker,
    #[serde(default)]
    token2wav_config: RawToken2Wav,
    enable_audio_output: Option<bool>,
}

impl From<RawConfig> for Config {
    fn from(raw: RawConfig) -> Self {
        Self {
            thinker: raw.thinker_config.into(),
            talker: raw.talker_config.into(),
            codes: raw.token2wav_config.dit_config.num_embeds.unwrap_or(8193),
            enable_audio_output: raw.enable_audio_output.unwrap_or(true),
        }
    }
}

/// What the talker must know of `token2wav_config`.
#[derive(Default, Deserialize)]
struct RawToken2Wav {
    #[serde(default)]
    dit_config: RawDit,
}

#[derive(Default, Deserialize)]
struct RawDit {
    num_embeds: Option<usize>,
}

/// `thinker_config`.
#[derive(Deserialize)]
struct RawThinker {
    audio_config: RawAudio,
    text_config: RawText,
    tie_word_embeddings: Option<bool>,
    audio_token_index: Option<u32>,
    audio_start_token_id: Option<u32>,
    audio_end_token_id: Option<u32>,
    user_token_id: Option<u32>,
}

impl From<RawThinker> for ThinkerConfig {
    fn from(raw: RawThinker) -> Self {
        Self {
            audio: raw.audio_config.into(),
            text: raw.text_config.resolve(&THINKER),
            tie_word_embeddings: raw.tie_word_embeddings.unwrap_or(false),
            audio_token_index: raw.audio_token_index.unwrap_or(151_646),
            audio_start_token_id: raw.audio_start_token_id.unwrap_or(151_647),
            audio_end_token_id: raw.audio_end_token_id.unwrap_or(151_648),
            user_token_id: raw.user_token_id.unwrap_or(872),
        }
    }
}

/// `thinker_config.audio_config`.
#[derive(Deserialize)]
struct RawAudio {
    num_mel_bins: Option<usize>,
    encoder_layers: Option<usize>,
    encoder_attention_heads: Option<usize>,
    encoder_ffn_dim: Option<usize>,
    d_model: Option<usize>,
    output_dim: Option<usize>,
    n_window: Option<usize>,
    max_source_positions: Option<usize>,
    activation_function: Option<String>,
}

impl From<RawAudio> for AudioConfig {
    fn from(raw: RawAudio) -> Self {
        Self {
            num_mel_bins: raw.num_mel_bins.unwrap_or(128),
            encoder_layers: raw.encoder_layers.unwrap_or(32),
            encoder_attention_heads: raw.encoder_attention_heads.unwrap_or(20),
            encoder_ffn_dim: raw.encoder_ffn_dim.unwrap_or(5120),
            d_model: raw.d_model.unwrap_or(1280),
            output_dim: raw.output_dim.unwrap_or(3584),
            n_window: raw.n_window.unwrap_or(100),
            max_source_positions: raw.max_source_positions.unwrap_or(1500),
            activation_function: raw.activation_function.unwrap_or_else(|| "gelu".to_owned()),
        }
    }
}

/// The fields of a language model: `thinker_config.text_config`, and `talker_config` itself.
#[derive(Deserialize)]
struct RawText {
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    hidden_act: Option<String>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeTable>,
    rope_parameters: Option<RopeTable>,
    use_sliding_window: Option<bool>,
}

/// Defaults that differ between the reference's two configuration classes.
struct TextDefaults {
    vocab_size: usize,
    /// `None`: the heads share the hidden size evenly.
    head_dim: Option<usize>,
}

const THINKER: TextDefaults = TextDefaults { vocab_size: 152_064, head_dim: None };
const TALKER: TextDefaults = TextDefaults { vocab_size: 8448, head_dim: Some(128) };

impl RawText {
    fn resolve(self, absent: &TextDefaults) -> TextConfig {
        let hidden_size = self.hidden_size.unwrap_or(3584);
        let num_attention_heads = self.num_attention_heads.unwrap_or(28);
        let even = head_size(hidden_size, num_attention_heads);
        let mut rope = rope(self.rope_scaling, self.rope_parameters, self.rope_theta, THETA);
        // Older files name the kind after the sections that positions of three indices have.
        if rope.kind == "mrope" {
            "default".clone_into(&mut rope.kind);
        }
        TextConfig {
            vocab_size: self.vocab_size.unwrap_or(absent.vocab_size),
            hidden_size,
            intermediate_size: self.intermediate_size.unwrap_or(18_944),
            num_hidden_layers: self.num_hidden_layers.unwrap_or(28),
            num_attention_heads,
            num_key_value_heads: self.num_key_value_heads.unwrap_or(4),
            head_dim: self.head_dim.or(absent.head_dim).unwrap_or(even),
            hidden_act: self.hidden_act.unwrap_or_else(silu),
            max_position_embeddings: self.max_position_embeddings.unwrap_or(32_768),
            rms_norm_eps: self.rms_norm_eps.unwrap_or(1e-6),
            rope,
            use_sliding_window: self.use_sliding_window.unwrap_or(false),
        }
    }
}

/// `talker_config`.
#[derive(Deserialize)]
struct RawTalker {
    #[serde(flatten)]
    text: RawText,
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
            text: raw.text.resolve(&TALKER),
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
        assert_eq!((thinker.head_dim, thinker.vocab_size, thinker.rope.theta), (24, 152_064, 500_000.0));
        assert_eq!(thinker.rope.kind, "default");
        assert_eq!((config.thinker.audio.d_model, config.thinker.audio.block_frames()), (64, 200));
        let talker = &config.talker;
        assert_eq!((talker.text.head_dim, talker.text.vocab_size, talker.embedding_size), (128, 8448, 3584));
        assert_eq!((talker.tts_codec_pad_token_id, talker.tts_codec_end_token_id), (8292, 8294));
        assert_eq!((talker.text.rope.theta, config.codes), (THETA, 8193));
    }
}
