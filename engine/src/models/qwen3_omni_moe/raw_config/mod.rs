//! config.json as written in the file: absent fields take the defaults of the reference's configuration classes, older names
//! are resolved, and the result is checked.
//!
//! Older files, with `rope_theta` and `rope_scaling` outside of `rope_parameters`, are read as well. `null` means the same as
//! an absent field.

mod codec;
mod text;

use std::collections::BTreeMap;

use serde::Deserialize;

use self::codec::{RawCode2Wav, RawCodePredictor};
use self::text::{RawText, TALKER, THINKER};
use super::config::{ARCHITECTURE, AudioConfig, Config, TalkerConfig, ThinkerConfig};
use super::validate::audio_output;
use crate::checkpoint::{CONFIG, Checkpoint, CheckpointError};

impl Config {
    /// Reads, resolves and checks config.json.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let found = checkpoint.architecture()?;
        if found != ARCHITECTURE {
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

/// The whole file.
#[derive(Deserialize)]
struct RawConfig {
    thinker_config: RawThinker,
    talker_config: RawTalker,
    code2wav_config: RawCode2Wav,
    enable_audio_output: Option<bool>,
    im_start_token_id: Option<u32>,
    im_end_token_id: Option<u32>,
    system_token_id: Option<u32>,
    user_token_id: Option<u32>,
    assistant_token_id: Option<u32>,
    tts_bos_token_id: Option<u32>,
    tts_eos_token_id: Option<u32>,
    tts_pad_token_id: Option<u32>,
}

impl From<RawConfig> for Config {
    fn from(raw: RawConfig) -> Self {
        Self {
            thinker: raw.thinker_config.into(),
            talker: raw.talker_config.into(),
            code2wav: raw.code2wav_config.into(),
            enable_audio_output: raw.enable_audio_output.unwrap_or(true),
            im_start_token_id: raw.im_start_token_id.unwrap_or(151_644),
            im_end_token_id: raw.im_end_token_id.unwrap_or(151_645),
            system_token_id: raw.system_token_id.unwrap_or(8948),
            user_token_id: raw.user_token_id.unwrap_or(872),
            assistant_token_id: raw.assistant_token_id.unwrap_or(77_091),
            tts_bos_token_id: raw.tts_bos_token_id.unwrap_or(151_672),
            tts_eos_token_id: raw.tts_eos_token_id.unwrap_or(151_673),
            tts_pad_token_id: raw.tts_pad_token_id.unwrap_or(151_671),
        }
    }
}

/// `thinker_config`.
#[derive(Deserialize)]
struct RawThinker {
    audio_config: RawAudio,
    text_config: RawText,
    audio_start_token_id: Option<u32>,
    audio_end_token_id: Option<u32>,
    audio_token_id: Option<u32>,
}

impl From<RawThinker> for ThinkerConfig {
    fn from(raw: RawThinker) -> Self {
        Self {
            audio: raw.audio_config.into(),
            text: raw.text_config.resolve(&THINKER),
            audio_start_token_id: raw.audio_start_token_id.unwrap_or(151_647),
            audio_end_token_id: raw.audio_end_token_id,
            audio_token_id: raw.audio_token_id.unwrap_or(151_646),
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
    n_window_infer: Option<usize>,
    downsample_hidden_size: Option<usize>,
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
            n_window: raw.n_window.unwrap_or(50),
            n_window_infer: raw.n_window_infer.unwrap_or(800),
            downsample_hidden_size: raw.downsample_hidden_size.unwrap_or(480),
            max_source_positions: raw.max_source_positions.unwrap_or(1500),
            activation_function: raw.activation_function.unwrap_or_else(|| "gelu".to_owned()),
        }
    }
}

/// `talker_config`.
#[derive(Deserialize)]
struct RawTalker {
    text_config: RawText,
    code_predictor_config: RawCodePredictor,
    num_code_groups: Option<usize>,
    thinker_hidden_size: Option<usize>,
    accept_hidden_layer: Option<usize>,
    codec_bos_id: Option<u32>,
    codec_eos_token_id: Option<u32>,
    codec_pad_id: Option<u32>,
    codec_nothink_id: Option<u32>,
    codec_think_bos_id: Option<u32>,
    codec_think_eos_id: Option<u32>,
    speaker_id: Option<BTreeMap<String, u32>>,
}

impl From<RawTalker> for TalkerConfig {
    fn from(raw: RawTalker) -> Self {
        Self {
            text: raw.text_config.resolve(&TALKER),
            code_predictor: raw.code_predictor_config.into(),
            num_code_groups: raw.num_code_groups.unwrap_or(32),
            thinker_hidden_size: raw.thinker_hidden_size.unwrap_or(2048),
            accept_hidden_layer: raw.accept_hidden_layer.unwrap_or(18),
            codec_bos_id: raw.codec_bos_id.unwrap_or(4197),
            codec_eos_token_id: raw.codec_eos_token_id.unwrap_or(4198),
            codec_pad_id: raw.codec_pad_id.unwrap_or(4196),
            codec_nothink_id: raw.codec_nothink_id.unwrap_or(4203),
            codec_think_bos_id: raw.codec_think_bos_id.unwrap_or(4204),
            codec_think_eos_id: raw.codec_think_eos_id.unwrap_or(4205),
            speaker_id: raw.speaker_id.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::config::Rope;
    use super::*;

    fn config(value: Value) -> Config {
        serde_json::from_value::<RawConfig>(value).unwrap().into()
    }

    /// What an early published file leaves out is taken from the reference, and rotary parameters from their old place.
    #[test]
    fn absent_fields_take_the_references_defaults() {
        let config = config(json!({
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
        }));

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
            let text: RawText = serde_json::from_value(json!({
                "decoder_sparse_step": step, "mlp_only_layers": dense, "num_experts": experts,
            }))
            .unwrap();
            let text = text.resolve(&THINKER);
            (0..6).filter(|layer| text.is_moe_layer(*layer)).collect()
        };
        assert_eq!(text(1, &[], 8), [0, 1, 2, 3, 4, 5]);
        assert_eq!(text(2, &[3], 8), [1, 5]);
        assert_eq!(text(1, &[], 0), [0_usize; 0]);
    }
}
