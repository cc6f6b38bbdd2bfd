//! config.json and the codec's as written in the files. Absent fields and `null` take the defaults of the reference's
//! configuration classes; then the result is checked.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::config::{
    ARCHITECTURE, CODEC_TYPE, CloningConfig, Config, SpeakerConfig, SpeechEncoderConfig, TalkerConfig, VoiceSource,
};
use crate::checkpoint::{BadValue, Checkpoint, CheckpointError};
use crate::models::parts::checks::ConfigSection;
use crate::models::parts::config::SpeakerEncoderConfig;
use crate::models::parts::raw_config::{
    LayersDefaults, RawCode2Wav, RawLanguageModel, RawSpeakerEncoder, checked, expect_architecture, head_size,
};

/// `tts_model_size` of the models with listed voices that follow no instructions.
const SMALL: &str = "0b6";

impl Config {
    /// Reads, resolves and checks config.json, and config.json of `codec`.
    pub fn load(checkpoint: &Checkpoint, codec: &Checkpoint) -> Result<Self, CheckpointError> {
        expect_architecture(checkpoint, &[ARCHITECTURE])?;
        let raw_codec: RawCodec = codec.config()?;
        let kind = raw_codec.model_type.as_deref().unwrap_or_default();
        let known = format!("{CODEC_TYPE}, the only codec that is served");
        checked(codec, ConfigSection("").check("model_type", kind, kind == CODEC_TYPE, &known))?;
        let sizes = checkpoint.config::<RawConfig>()?;
        let layers = checkpoint.config::<RawLayers>()?.talker_config;
        let config = checked(checkpoint, sizes.resolve(layers, raw_codec))?;
        checked(checkpoint, config.validate())?;
        checked(codec, config.validate_codec())?;
        Ok(config)
    }
}

/// Second view of config.json: `talker_config` mixes the fields of a language model with its own.
#[derive(Deserialize)]
struct RawLayers {
    talker_config: RawLanguageModel,
}

/// Contents of config.json.
#[derive(Deserialize)]
struct RawConfig {
    talker_config: RawTalker,
    speaker_encoder_config: Option<RawSpeakerEncoder>,
    tts_model_type: Option<String>,
    tts_model_size: Option<String>,
    im_start_token_id: Option<u32>,
    im_end_token_id: Option<u32>,
    tts_bos_token_id: Option<u32>,
    tts_eos_token_id: Option<u32>,
    tts_pad_token_id: Option<u32>,
}

impl RawConfig {
    fn resolve(self, layers: RawLanguageModel, codec: RawCodec) -> Result<Config, BadValue> {
        let output_sample_rate = codec.output_sample_rate.unwrap_or(24_000);
        let kind = match self.tts_model_type.as_deref() {
            Some("custom_voice") => VoiceSource::CustomVoice,
            Some("voice_design") => VoiceSource::VoiceDesign,
            Some("base") => VoiceSource::Base,
            other => {
                let value = other.unwrap_or("none").to_owned();
                let allowed = "custom_voice, voice_design or base".to_owned();
                return Err(BadValue { field: "tts_model_type".to_owned(), value, allowed });
            }
        };
        let speaker = self.speaker_encoder_config.unwrap_or_default();
        let cloning = CloningConfig {
            speaker_sample_rate: speaker.sample_rate.unwrap_or(24_000),
            speaker: speaker.resolve(speaker_encoder()),
            speech: codec.encoder_config.unwrap_or_default().into(),
            encode_downsample_rate: codec.encode_downsample_rate.unwrap_or(1920),
            encoder_valid_num_quantizers: codec.encoder_valid_num_quantizers.unwrap_or(16),
        };
        Ok(Config {
            follows_instructions: match kind {
                VoiceSource::CustomVoice => self.tts_model_size.as_deref() != Some(SMALL),
                VoiceSource::VoiceDesign => true,
                VoiceSource::Base => false,
            },
            cloning: (kind == VoiceSource::Base).then_some(cloning),
            kind,
            talker: self.talker_config.resolve(layers),
            code2wav: codec.decoder_config.with_quantizer(),
            output_sample_rate,
            im_start_token_id: self.im_start_token_id.unwrap_or(151_644),
            im_end_token_id: self.im_end_token_id.unwrap_or(151_645),
            tts_bos_token_id: self.tts_bos_token_id.unwrap_or(151_672),
            tts_eos_token_id: self.tts_eos_token_id.unwrap_or(151_673),
            tts_pad_token_id: self.tts_pad_token_id.unwrap_or(151_671),
        })
    }
}

/// Defaults of the talker's configuration class.
const TALKER: LayersDefaults = LayersDefaults {
    hidden_size: 1024,
    intermediate_size: 2048,
    num_hidden_layers: 20,
    num_attention_heads: 16,
    num_key_value_heads: 2,
    head_dim: None,
    rope_theta: 10_000.0,
};

/// Fields of `talker_config`, without its layers.
#[derive(Deserialize)]
struct RawTalker {
    text_vocab_size: Option<usize>,
    text_hidden_size: Option<usize>,
    num_code_groups: Option<usize>,
    codec_bos_id: Option<u32>,
    codec_eos_token_id: Option<u32>,
    codec_pad_id: Option<u32>,
    codec_think_id: Option<u32>,
    codec_nothink_id: Option<u32>,
    codec_think_bos_id: Option<u32>,
    codec_think_eos_id: Option<u32>,
    spk_id: Option<BTreeMap<String, u32>>,
    /// Name of a dialect, or `false`.
    spk_is_dialect: Option<BTreeMap<String, Value>>,
    codec_language_id: Option<BTreeMap<String, u32>>,
    code_predictor_config: RawLanguageModel,
}

impl RawTalker {
    fn resolve(self, mut layers: RawLanguageModel) -> TalkerConfig {
        let raw = self;
        let dialects = raw.spk_is_dialect.unwrap_or_default();
        let speaker = |(name, id): (String, u32)| {
            let dialect = dialects.get(&name).and_then(Value::as_str).map(str::to_lowercase);
            (name.to_lowercase(), SpeakerConfig { id, dialect })
        };
        let languages = raw.codec_language_id.unwrap_or_default();
        let predictor = raw.code_predictor_config;
        let window = predictor.switched_window();
        let sizes = layers.layers(&TALKER);
        TalkerConfig {
            vocab_size: layers.vocab_size.unwrap_or(3072),
            text_vocab_size: raw.text_vocab_size.unwrap_or(151_936),
            text_hidden_size: raw.text_hidden_size.unwrap_or(2048),
            max_position_embeddings: layers.positions(),
            sliding_window: layers.switched_window(),
            code_predictor: predictor.code_predictor(Some(sizes.hidden_size), window),
            layers: sizes,
            num_code_groups: raw.num_code_groups.unwrap_or(32),
            codec_bos_id: raw.codec_bos_id.unwrap_or(4197),
            codec_eos_token_id: raw.codec_eos_token_id.unwrap_or(4198),
            codec_pad_id: raw.codec_pad_id.unwrap_or(4196),
            codec_think_id: raw.codec_think_id.unwrap_or(4202),
            codec_nothink_id: raw.codec_nothink_id.unwrap_or(4203),
            codec_think_bos_id: raw.codec_think_bos_id.unwrap_or(4204),
            codec_think_eos_id: raw.codec_think_eos_id.unwrap_or(4205),
            speakers: raw.spk_id.unwrap_or_default().into_iter().map(speaker).collect(),
            languages: languages.into_iter().map(|(name, id)| (name.to_lowercase(), id)).collect(),
        }
    }
}

/// Contents of the codec's config.json.
#[derive(Deserialize)]
struct RawCodec {
    model_type: Option<String>,
    output_sample_rate: Option<u32>,
    encode_downsample_rate: Option<usize>,
    encoder_valid_num_quantizers: Option<usize>,
    decoder_config: RawCode2Wav,
    encoder_config: Option<RawSpeechEncoder>,
}

/// Defaults of the speaker encoder's configuration class.
fn speaker_encoder() -> SpeakerEncoderConfig {
    SpeakerEncoderConfig {
        mel_dim: 128,
        enc_dim: 1024,
        enc_channels: vec![512, 512, 512, 512, 1536],
        enc_kernel_sizes: vec![5, 3, 3, 3, 1],
        enc_dilations: vec![1, 2, 3, 4, 1],
        enc_attention_channels: 128,
        enc_res2net_scale: 8,
        enc_se_channels: 128,
    }
}

/// Fields of `encoder_config` of the codec.
#[derive(Default, Deserialize)]
struct RawSpeechEncoder {
    audio_channels: Option<usize>,
    sampling_rate: Option<u32>,
    hidden_size: Option<usize>,
    num_filters: Option<usize>,
    num_residual_layers: Option<usize>,
    upsampling_ratios: Option<Vec<usize>>,
    kernel_size: Option<usize>,
    last_kernel_size: Option<usize>,
    residual_kernel_size: Option<usize>,
    dilation_growth_rate: Option<usize>,
    use_causal_conv: Option<bool>,
    pad_mode: Option<String>,
    compress: Option<usize>,
    use_conv_shortcut: Option<bool>,
    codebook_size: Option<usize>,
    codebook_dim: Option<usize>,
    vector_quantization_hidden_dimension: Option<usize>,
    num_quantizers: Option<usize>,
    num_semantic_quantizers: Option<usize>,
    num_hidden_layers: Option<usize>,
    intermediate_size: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    hidden_act: Option<String>,
    norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    attention_bias: Option<bool>,
}

impl From<RawSpeechEncoder> for SpeechEncoderConfig {
    fn from(raw: RawSpeechEncoder) -> Self {
        let hidden_size = raw.hidden_size.unwrap_or(512);
        let num_attention_heads = raw.num_attention_heads.unwrap_or(8);
        Self {
            audio_channels: raw.audio_channels.unwrap_or(1),
            sampling_rate: raw.sampling_rate.unwrap_or(24_000),
            hidden_size,
            num_filters: raw.num_filters.unwrap_or(64),
            num_residual_layers: raw.num_residual_layers.unwrap_or(1),
            upsampling_ratios: raw.upsampling_ratios.unwrap_or_else(|| vec![8, 6, 5, 4]),
            kernel_size: raw.kernel_size.unwrap_or(7),
            last_kernel_size: raw.last_kernel_size.unwrap_or(3),
            residual_kernel_size: raw.residual_kernel_size.unwrap_or(3),
            dilation_growth_rate: raw.dilation_growth_rate.unwrap_or(2),
            use_causal_conv: raw.use_causal_conv.unwrap_or(true),
            pad_mode: raw.pad_mode.unwrap_or_else(|| "constant".to_owned()),
            compress: raw.compress.unwrap_or(2),
            use_conv_shortcut: raw.use_conv_shortcut.unwrap_or(false),
            codebook_size: raw.codebook_size.unwrap_or(2048),
            codebook_dim: raw.codebook_dim.unwrap_or(256),
            vector_quantization_hidden_dimension: raw.vector_quantization_hidden_dimension.unwrap_or(256),
            num_quantizers: raw.num_quantizers.unwrap_or(32),
            num_semantic_quantizers: raw.num_semantic_quantizers.unwrap_or(1),
            num_hidden_layers: raw.num_hidden_layers.unwrap_or(8),
            intermediate_size: raw.intermediate_size.unwrap_or(2048),
            num_attention_heads,
            num_key_value_heads: raw.num_key_value_heads.unwrap_or(8),
            head_dim: raw.head_dim.unwrap_or(head_size(hidden_size, num_attention_heads)),
            hidden_act: raw.hidden_act.unwrap_or_else(|| "gelu".to_owned()),
            norm_eps: raw.norm_eps.unwrap_or(1e-5),
            rope_theta: raw.rope_theta.unwrap_or(10_000.0),
            attention_bias: raw.attention_bias.unwrap_or(false),
        }
    }
}
