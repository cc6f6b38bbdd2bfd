//! Configuration of both published folders: config.json of Ming-omni-tts, and those of Ming-flash-omni's talker, its language
//! model and its decoder of latents. Names and defaults are those of the published code.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::checkpoint::{CONFIG, Checkpoint, CheckpointError};
use crate::models::parts::config::{
    ConfigFile, ConfigSection, LanguageModelConfig, LayersDefaults, THINKER, switched_window,
};
use crate::models::parts::decoder::DecoderShape;
use crate::models::parts::flow_matching::patches::config::{PatchFlowConfig, PatchLayersConfig};
use crate::models::parts::patch_speech::model::PatchSpeechConfig;
use crate::models::parts::vocoder::latent_codec::config::LatentCodecConfig;

/// Folder of the talker in Ming-flash-omni.
pub const TALKER: &str = "talker";
/// Folders of its language model and of its decoder of latents.
pub const LLM: &str = "llm";
/// Folder of the decoder of latents.
pub const VAE: &str = "vae";
/// Beginning of `architectures` in Ming-flash-omni's config.json.
const FLASH: &str = "BailingMM2Native";

const QWEN2: LayersDefaults =
    LayersDefaults { hidden_size: 896, intermediate_size: 4864, num_hidden_layers: 24, heads: (14, 2), ..THINKER };

/// Form of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderForm {
    /// Ming-omni-tts: one config.json and one set of weights.
    Tts,
    /// Ming-flash-omni, with the talker in a folder of its own.
    Flash,
    /// That folder alone.
    Talker,
}

/// Fields of Ming-omni-tts, whose config.json names no architecture.
#[derive(Deserialize)]
struct TtsFields {
    model_type: String,
    #[serde(rename = "ditar_config")]
    _ditar: IgnoredAny,
    #[serde(rename = "aggregator_config")]
    _aggregator: IgnoredAny,
    #[serde(rename = "audio_tokenizer_config")]
    _sound: IgnoredAny,
}

/// Fields of the talker.
#[derive(Deserialize)]
struct TalkerFields {
    #[serde(rename = "flowmodel")]
    _flow: IgnoredAny,
    #[serde(rename = "aggregator")]
    _aggregator: IgnoredAny,
}

impl FolderForm {
    /// All forms with their names.
    pub const ALL: [(Self, &str); 3] = [(Self::Tts, "tts"), (Self::Flash, "flash"), (Self::Talker, "talker")];

    /// Form of a checkpoint; `None` if it is of another family.
    pub fn of(checkpoint: &Checkpoint) -> Option<Self> {
        let named = checkpoint.architectures().into_iter().next();
        if named.is_some_and(|name| name.starts_with(FLASH)) {
            return Some(Self::Flash);
        }
        if checkpoint.config::<TtsFields>().is_ok_and(|fields| fields.model_type == "dense") {
            return Some(Self::Tts);
        }
        checkpoint.config::<TalkerFields>().is_ok().then_some(Self::Talker)
    }
}

/// Contents of the files.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The language model with its flow head.
    pub speech: PatchSpeechConfig,
    /// The decoder of latents.
    pub sound: LatentCodecConfig,
}

impl Config {
    /// Reads the files of a folder of the form [`FolderForm::Tts`].
    pub fn tts(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::config(checkpoint)?;
        let top = file.top()?;
        let flow = top.section("ditar_config")?;
        let text = top.section("llm_config")?;
        let sound = top.section("audio_tokenizer_config")?;
        Self::read(&text, (&flow, &flow), &top.section("aggregator_config")?, &sound)
    }

    /// Reads the files of a talker's folder.
    pub fn talker(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let (file, inner) = (ConfigFile::config(checkpoint)?, checkpoint.part(LLM)?);
        let (top, sound) = (file.top()?, checkpoint.part(VAE)?);
        if !sound.has_file(CONFIG) {
            return Err(CheckpointError::FileMissing { file: sound.label(CONFIG) });
        }
        let sound = ConfigFile::config(&sound)?;
        let own = if top.has("llm_config") { None } else { Some(ConfigFile::config(&inner)?) };
        let text = match &own {
            Some(file) => file.top()?,
            None => top.section("llm_config")?,
        };
        Self::read(&text, (&top.section("flowmodel")?, &top), &top.section("aggregator")?, &sound.top()?)
    }

    fn read(
        text: &ConfigSection<'_>,
        (flow, sizes): (&ConfigSection<'_>, &ConfigSection<'_>),
        aggregator: &ConfigSection<'_>,
        sound: &ConfigSection<'_>,
    ) -> Result<Self, CheckpointError> {
        let sound = LatentCodecConfig::read(sound)?;
        let window = switched_window(text)?;
        let text = LanguageModelConfig::read(text, 151_936, &QWEN2)?;
        let latent = sound.latent_dim;
        sizes.equal("latent_dim", latent, ("dec_kwargs.latent_dim", latent))?;
        aggregator.equal("in_channels", latent, ("dec_kwargs.latent_dim", latent))?;
        let speech = PatchSpeechConfig {
            decoder: DecoderShape { qkv_bias: true, ..text.layers.shape(window) },
            flow: PatchFlowConfig::read(flow, sizes, (latent, text.layers.hidden_size))?,
            aggregator: PatchLayersConfig::read(aggregator, 1152)?,
            text,
        };
        Ok(Self { speech, sound })
    }
}
