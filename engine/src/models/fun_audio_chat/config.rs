//! config.json of Fun-Audio-Chat. Names and defaults are those of the reference's classes (`configuration_funaudiochat.py`);
//! sizes of the language models that these leave to others are the published ones.

use repartee_engine_api::Sampling;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::audio_encoder::shape::{Convolutions, EncoderShape};
use crate::models::parts::config::limits::CODES;
use crate::models::parts::config::{
    AudioTowerConfig, ConfigFile, ConfigSection, LanguageModelConfig, LayersConfig, LayersDefaults, THINKER,
    tagged_yaml,
};
use crate::models::parts::decoder::DecoderShape;
use crate::models::parts::flow_sound::FlowSoundConfig;
use crate::models::parts::group_speech::head::SpeechCodes;
use crate::models::parts::group_speech::stage::TextIds;
use crate::models::parts::language_model::LanguageModelShape;

/// Name of this family in config.json.
pub const ARCHITECTURES: [&str; 1] = ["FunAudioChatForConditionalGeneration"];
/// Folder of the flow and the vocoder: the published one of the family whose sound this is.
pub const SOUND: &str = "Fun-CosyVoice3-0.5B-2512";
const SOUND_FILE: &str = "cosyvoice3.yaml";
/// Most codes of a group.
const MOST_GROUP: usize = 64;

const QWEN3: LayersDefaults = LayersDefaults {
    hidden_size: 4096,
    intermediate_size: 12_288,
    num_hidden_layers: 36,
    heads: (32, 8),
    head_dim: Some(128),
    rope_theta: 5_000_000.0,
    ..THINKER
};
const HEAD: LayersDefaults = LayersDefaults {
    hidden_size: 1024,
    intermediate_size: 3072,
    num_hidden_layers: 28,
    heads: (16, 8),
    rope_theta: 1_000_000.0,
    ..QWEN3
};

/// Contents of config.json, and of the sound's file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Sizes of the audio tower.
    pub audio: AudioTowerConfig,
    /// Sizes of the language model.
    pub text: LanguageModelConfig,
    /// True if the language model's head is its token table.
    pub tied: bool,
    /// Ids of the text.
    pub ids: TextIds,
    /// Sizes of the layers of the speech head.
    pub head: LayersConfig,
    /// Codes of the speech.
    pub codes: SpeechCodes,
    /// The flow and the vocoder.
    pub sound: FlowSoundConfig,
}

impl Config {
    /// Reads both files; refuses values that are not served.
    pub fn load(checkpoint: &Checkpoint, sound: &Checkpoint) -> Result<Self, CheckpointError> {
        let sound = FlowSoundConfig::read(&tagged_yaml::read(sound, SOUND_FILE)?.top()?)?;
        let file = ConfigFile::of_family(checkpoint, &ARCHITECTURES)?;
        Self::read(&file.top()?, sound)
    }

    fn read(top: &ConfigSection<'_>, sound: FlowSoundConfig) -> Result<Self, CheckpointError> {
        let (at, of_audio) = (top.section("text_config")?, top.section("audio_config")?);
        let head = of_audio.section("crq_transformer_config")?;
        for section in [&at, &head] {
            section.only("model_type", "qwen3")?;
            section.only("attention_bias", false)?;
            section.only("use_sliding_window", false)?;
        }
        let text = LanguageModelConfig::read(&at, 151_936, &QWEN3)?;
        let hidden = text.layers.hidden_size;
        top.equal("hidden_size", hidden, ("text_config.hidden_size", hidden))?;
        of_audio.only("continuous_features_mode", "replace")?;
        of_audio.only("enable_audio_invert_tower", true)?;
        let audio = AudioTowerConfig::read(&of_audio, 100, ("text_config.hidden_size", hidden))?;
        let group = of_audio.size("group_size", 5, 1..=MOST_GROUP)?;
        // The rows of a window, a fourth of its mel frames, are whole groups.
        of_audio.multiple("n_window", 100, 1..=usize::MAX, ("twice group_size", 2 * group))?;
        let all = of_audio.size("codebook_size", 6565, CODES)?;
        let sounds = sound.flow.vocab_size;
        let allowed = format!("at least {}, the flow's codes and three marks", sounds + 3);
        of_audio.check("codebook_size", all, all >= sounds + 3, &allowed)?;
        let mark = |field: &str, absent: usize| {
            let allowed = format!("from {sounds}, the number of the flow's codes, to codebook_size, which is {all}");
            let holds = |id: u32| (sounds..all).contains(&(id as usize));
            of_audio.value(field, absent as u32, holds, &allowed)
        };
        let codes = SpeechCodes {
            sounds,
            all,
            begin: mark("bos_token_id", sounds)?,
            end: mark("eos_token_id", sounds + 1)?,
            group,
        };
        let id = |section: &ConfigSection<'_>, field: &str, absent| section.id(field, absent, text.vocab_size);
        Ok(Self {
            tied: at.switch("tie_word_embeddings", false)?,
            ids: TextIds {
                audio: id(top, "audio_token_index", 151_646)?,
                begin: id(&at, "audio_bos_index", 151_670)?,
                end: id(&at, "audio_eos_index", 151_671)?,
                silent: id(&at, "sil_index", 151_673)?,
            },
            head: LayersConfig::read(&head, &HEAD)?,
            audio,
            text,
            codes,
            sound,
        })
    }

    /// Shape of the audio tower: each two rows of a window become one.
    pub fn encoder(&self) -> EncoderShape {
        let projection = [("proj", self.audio.output_dim)];
        EncoderShape { pairs: true, ..self.audio.encoder(Convolutions::Conv1d, false, &projection) }
    }

    /// Shape of the language model.
    pub fn language_model(&self) -> LanguageModelShape {
        LanguageModelShape {
            vocabulary: self.text.vocab_size,
            tied: self.tied,
            decoder: layers(&self.text.layers),
            handed: None,
        }
    }
}

/// Shape of a stack of layers: queries and keys are normed.
pub fn layers(config: &LayersConfig) -> DecoderShape {
    DecoderShape { qk_norm: true, ..config.shape(None) }
}

/// Sampling of text and of codes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerationConfig {
    /// Sampling of text: the likeliest token, as in the reference's examples.
    pub text: Sampling,
    /// Sampling of codes.
    pub codes: Sampling,
}

impl GenerationConfig {
    /// Reads generation_config.json; without the file, or its fields, those of the reference's examples hold.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::optional(checkpoint, "generation_config.json")?;
        let top = file.top()?;
        let read = |kind: &str, absent: Sampling| -> Result<Sampling, CheckpointError> {
            let number = |field: &str, absent: f32, (low, high): (f32, f32)| {
                let holds = |number: f32| number >= low && number <= high;
                top.value(&format!("{kind}_{field}"), absent, holds, &format!("{low} to {high}"))
            };
            Ok(Sampling {
                temperature: number("temperature", absent.temperature, (0.0, 100.0))?,
                top_p: number("top_p", absent.top_p, (f32::MIN_POSITIVE, 1.0))?,
                repetition_penalty: number("repetition_penalty", absent.repetition_penalty, (0.01, 100.0))?,
                ..absent
            })
        };
        let codes = Sampling { temperature: 0.8, top_k: 0, top_p: 0.9, repetition_penalty: 1.2 };
        Ok(Self { text: read("text", Sampling::GREEDY)?, codes: read("audio", codes)? })
    }
}
