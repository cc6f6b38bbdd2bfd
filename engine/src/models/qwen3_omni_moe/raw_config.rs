//! config.json as written in the file. Absent fields take the defaults of the reference's configuration classes and
//! older names are resolved; then the result is checked.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::config::{ARCHITECTURE, AudioConfig, Config, TalkerConfig, TextConfig, ThinkerConfig};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::raw_config::{
    LayersDefaults, RawAudio, RawCode2Wav, RawLanguageModel, checked, expect_architecture, load_omni_config,
};

impl Config {
    /// Reads, resolves and checks config.json.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        expect_architecture(checkpoint, &[ARCHITECTURE])?;
        let config = Self::from(load_omni_config::<RawConfig>(checkpoint)?);
        checked(checkpoint, config.validate())?;
        Ok(config)
    }
}

/// Contents of config.json.
#[derive(Deserialize)]
struct RawConfig {
    thinker_config: RawThinker,
    talker_config: RawTalker,
    code2wav_config: RawCode2Wav,
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
            code2wav: raw.code2wav_config.with_embedding(),
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

/// Fields of `thinker_config`.
#[derive(Deserialize)]
struct RawThinker {
    audio_config: RawAudio,
    text_config: RawLanguageModel,
    audio_start_token_id: Option<u32>,
    audio_end_token_id: Option<u32>,
    audio_token_id: Option<u32>,
}

impl From<RawThinker> for ThinkerConfig {
    fn from(raw: RawThinker) -> Self {
        Self {
            audio: raw.audio_config.into(),
            text: text(raw.text_config, &THINKER),
            audio_start_token_id: raw.audio_start_token_id.unwrap_or(151_647),
            audio_end_token_id: raw.audio_end_token_id,
            audio_token_id: raw.audio_token_id.unwrap_or(151_646),
        }
    }
}

impl From<RawAudio> for AudioConfig {
    fn from(raw: RawAudio) -> Self {
        Self {
            n_window_infer: raw.n_window_infer.unwrap_or(800),
            downsample_hidden_size: raw.downsample_hidden_size.unwrap_or(480),
            tower: raw.tower(50),
        }
    }
}

/// Defaults that differ between the reference's two configuration classes.
struct TextDefaults {
    vocab_size: usize,
    layers: LayersDefaults,
    moe_intermediate_size: usize,
    norm_topk_prob: bool,
}

/// Defaults of `Qwen3OmniMoeTextConfig`.
const THINKER: TextDefaults = TextDefaults {
    vocab_size: 3584,
    layers: LayersDefaults {
        hidden_size: 2048,
        intermediate_size: 18_944,
        num_hidden_layers: 28,
        num_attention_heads: 28,
        num_key_value_heads: 4,
        head_dim: None,
        rope_theta: 1_000_000.0,
    },
    moe_intermediate_size: 768,
    norm_topk_prob: true,
};

/// Defaults of `Qwen3OmniMoeTalkerTextConfig`.
const TALKER: TextDefaults = TextDefaults {
    vocab_size: 3072,
    layers: LayersDefaults {
        hidden_size: 1024,
        intermediate_size: 2048,
        num_hidden_layers: 20,
        num_attention_heads: 16,
        num_key_value_heads: 2,
        head_dim: None,
        rope_theta: 10_000.0,
    },
    moe_intermediate_size: 384,
    norm_topk_prob: false,
};

/// Resolves `text_config` of the thinker or the talker, with `absent` for absent fields.
fn text(mut raw: RawLanguageModel, absent: &TextDefaults) -> TextConfig {
    TextConfig {
        vocab_size: raw.vocab_size.unwrap_or(absent.vocab_size),
        layers: raw.layers(&absent.layers),
        max_position_embeddings: raw.positions(),
        tie_word_embeddings: raw.tie_word_embeddings.unwrap_or(false),
        decoder_sparse_step: raw.decoder_sparse_step.unwrap_or(1),
        num_experts: raw.num_experts.or(raw.num_local_experts).unwrap_or(128),
        num_experts_per_tok: raw.num_experts_per_tok.unwrap_or(8),
        moe_intermediate_size: raw.moe_intermediate_size.unwrap_or(absent.moe_intermediate_size),
        norm_topk_prob: raw.norm_topk_prob.unwrap_or(absent.norm_topk_prob),
        shared_expert_intermediate_size: raw.shared_expert_intermediate_size,
        mlp_only_layers: raw.mlp_only_layers.unwrap_or_default(),
    }
}

/// Fields of `talker_config`.
#[derive(Deserialize)]
struct RawTalker {
    text_config: RawLanguageModel,
    code_predictor_config: RawLanguageModel,
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
        let predictor = raw.code_predictor_config;
        let window = predictor.window_of_layers();
        Self {
            text: text(raw.text_config, &TALKER),
            code_predictor: predictor.code_predictor(None, window),
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

    use super::*;
    use crate::models::parts::config::Rope;

    fn config(value: Value) -> Config {
        serde_json::from_value::<RawConfig>(value).unwrap().into()
    }

    /// An early published file: absent fields come from the reference, rotary parameters from their old place.
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
        assert_eq!((thinker.layers.head_dim, thinker.vocab_size, thinker.num_experts), (24, 3584, 128));
        assert_eq!(thinker.layers.rope, Rope { theta: 500_000.0, kind: "default".into(), partial_rotary_factor: 1.0 });
        assert!(thinker.norm_topk_prob);
        let talker = &config.talker.text;
        assert_eq!((talker.vocab_size, talker.num_experts, talker.norm_topk_prob), (3072, 6, false));
        assert_eq!((talker.layers.rope.theta, talker.layers.rope.kind.as_str()), (3.0, "yarn"));
        assert_eq!(config.talker.code_predictor.layers.rope.theta, 10_000.0);
        assert_eq!(config.talker.code_predictor.sliding_window, None, "no layer of it has a window");
        assert!(config.talker.speaker_id.is_empty());
        assert_eq!((config.code2wav.layers.head_dim, config.code2wav.layers.rope.theta), (64, 20_000.0));
        assert_eq!(config.code2wav.samples_per_frame(), 1920);
        assert_eq!((config.thinker.audio.tower.d_model, config.thinker.audio.n_window_infer), (64, 800));
        assert_eq!((config.im_end_token_id, config.talker.codec_eos_token_id), (151_645, 4198));
    }

    #[test]
    fn expert_layers_follow_step_and_exceptions() {
        let layers = |step: usize, dense: &[usize], experts: usize| -> Vec<usize> {
            let raw: RawLanguageModel = serde_json::from_value(json!({
                "decoder_sparse_step": step, "mlp_only_layers": dense, "num_experts": experts,
            }))
            .unwrap();
            let text = text(raw, &THINKER);
            (0..6).filter(|layer| text.is_moe_layer(*layer)).collect()
        };
        assert_eq!(layers(1, &[], 8), [0, 1, 2, 3, 4, 5]);
        assert_eq!(layers(2, &[3], 8), [1, 5]);
        assert_eq!(layers(1, &[], 0), [0_usize; 0]);
    }
}
