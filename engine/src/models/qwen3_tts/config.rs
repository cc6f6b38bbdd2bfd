//! Configuration of the Qwen3-TTS family, from config.json, the codec's config.json and generation_config.json.
//!
//! Names and defaults are those of the reference, `configuration_qwen3_tts.py` and
//! `configuration_qwen3_tts_tokenizer_v2.py` of qwen-tts 0.1.1.

use std::collections::BTreeMap;

use repartee_engine_api::Sampling;
use serde_json::Value;

use super::cloning::mel;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::config::limits::{CODEBOOKS, FRAME, RATE, RESPONSE, VOCABULARY, WIDTH};
use crate::models::parts::config::{
    Code2WavConfig, CodeInput, CodePredictorConfig, ConfigFile, ConfigSection, LanguageModelConfig, SpeakerDefaults,
    SpeakerEncoderConfig, SpeechCodecConfig, TALKER, switched_window,
};
use crate::models::parts::generation::{generation_file, sampling};
use crate::models::parts::talker::codec_lm::SUPPRESSED_TAIL;
use crate::models::parts::talker::utterance::UtteranceIds;

/// Name of this family in config.json.
pub const ARCHITECTURE: &str = "Qwen3TTSForConditionalGeneration";
/// Type of the one supported codec.
const CODEC_TYPE: &str = "qwen3_tts_tokenizer_12hz";
/// `tts_model_size` of the models with listed voices that follow no instructions.
const SMALL: &str = "0b6";
/// Defaults of the speaker encoder.
const SPEAKER: SpeakerDefaults = SpeakerDefaults { channels: 512, inner: 128, scale: 8 };

/// Source of a checkpoint's voices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoiceSource {
    /// A list of speakers, each a codec id.
    CustomVoice,
    /// Instructions describe the voice.
    VoiceDesign,
    /// A recording is cloned.
    Base,
}

/// Contents of config.json, and of the codec's.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Source of the voices, `tts_model_type`.
    pub kind: VoiceSource,
    /// True if the model is trained to follow instructions; otherwise they are left out, as in the reference.
    pub follows_instructions: bool,
    /// The talker: text in, codec frames out.
    pub talker: TalkerConfig,
    /// The codec's decoder: codec frames in, samples out.
    pub code2wav: Code2WavConfig,
    /// Output sample rate of the codec's decoder, in Hz.
    pub output_sample_rate: u32,
    /// Encoders of recordings; `None` if voices are not cloned.
    pub cloning: Option<CloningConfig>,
    /// Id of `<|im_start|>`, which opens a message.
    pub im_start_token_id: u32,
    /// Id of `<|im_end|>`, which closes a message.
    pub im_end_token_id: u32,
}

impl Config {
    /// Reads config.json, and config.json of `codec`.
    pub fn load(checkpoint: &Checkpoint, codec: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::of_family(checkpoint, &[ARCHITECTURE])?;
        let codec_file = ConfigFile::config(codec)?;
        Self::read(&file.top()?, &codec_file.top()?)
    }

    fn read(top: &ConfigSection<'_>, codec: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        let codec_type = codec.get::<String>("model_type")?.unwrap_or_default();
        let allowed = format!("{CODEC_TYPE}, the only codec that is served");
        codec.check("model_type", &codec_type, codec_type == CODEC_TYPE, &allowed)?;
        let (kind, follows_instructions) = VoiceSource::read(top)?;
        let talker = top.section("talker_config")?;
        let groups = talker.size("num_code_groups", 32, CODEBOOKS)?;
        let set_by = ("talker_config.num_code_groups of config.json", groups);
        let decoder = codec.section("decoder_config")?;
        let code2wav = Code2WavConfig::read(&decoder, CodeInput::quantizer(&decoder)?, set_by)?;
        let talker = TalkerConfig::read((top, &talker), (groups, code2wav.codebook_size), kind)?;
        let id = |field, absent| top.id(field, absent, talker.text_vocab_size);
        let hidden_size = talker.model.layers.hidden_size;
        let cloning = || CloningConfig::read(top, codec, hidden_size, (set_by, code2wav.codebook_size));
        Ok(Self {
            kind,
            follows_instructions,
            output_sample_rate: codec.size("output_sample_rate", 24_000, RATE)? as u32,
            cloning: (kind == VoiceSource::Base).then(cloning).transpose()?,
            im_start_token_id: id("im_start_token_id", 151_644)?,
            im_end_token_id: id("im_end_token_id", 151_645)?,
            talker,
            code2wav,
        })
    }
}

impl VoiceSource {
    /// Reads the source, and whether such a model follows instructions.
    fn read(top: &ConfigSection<'_>) -> Result<(Self, bool), CheckpointError> {
        let kind = top.get::<String>("tts_model_type")?.unwrap_or_else(|| "none".to_owned());
        let large = top.get::<String>("tts_model_size")?.as_deref() != Some(SMALL);
        let known = [
            ("custom_voice", (Self::CustomVoice, large)),
            ("voice_design", (Self::VoiceDesign, true)),
            ("base", (Self::Base, false)),
        ];
        let found = known.into_iter().find(|(name, _)| *name == kind).map(|(_, source)| source);
        found.ok_or_else(|| top.refusal("tts_model_type", &kind, "custom_voice, voice_design or base"))
    }
}

/// The talker: a language model over codec tokens, and its code predictor.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerConfig {
    /// Ids, which are codes of codebook 0 and special tokens, layers and positions. `hidden_act` is also the activation
    /// of the text projection.
    pub model: LanguageModelConfig,
    /// Number of text ids.
    pub text_vocab_size: usize,
    /// Width of a text embedding.
    pub text_hidden_size: usize,
    /// Attention window of each layer, in positions; `None` for all positions.
    pub sliding_window: Option<usize>,
    /// Codebooks of a frame.
    pub num_code_groups: usize,
    /// Special ids of its utterances.
    pub ids: UtteranceIds,
    /// Speakers of the checkpoint, by lower-case name.
    pub speakers: BTreeMap<String, SpeakerConfig>,
    /// Codec token of each language and dialect, by lower-case name.
    pub languages: BTreeMap<String, u32>,
    /// Code predictor for the other codebooks of a frame.
    pub code_predictor: CodePredictorConfig,
}

impl TalkerConfig {
    /// Reads `talker_config`; a codebook of the codec has `entries` entries.
    fn read(
        (top, at): (&ConfigSection<'_>, &ConfigSection<'_>),
        (groups, entries): (usize, usize),
        kind: VoiceSource,
    ) -> Result<Self, CheckpointError> {
        at.only("attention_bias", false)?;
        let model = LanguageModelConfig::read(at, 3072, &TALKER)?;
        let vocab_size = model.vocab_size;
        let most = SUPPRESSED_TAIL + entries;
        let allowed = format!("above {SUPPRESSED_TAIL}, the last of which are never spoken, and at most {most}");
        at.check("vocab_size", vocab_size, (SUPPRESSED_TAIL + 1..=most).contains(&vocab_size), &allowed)?;
        let text_vocab_size = at.size("text_vocab_size", 151_936, VOCABULARY)?;
        let lower = |(name, id): (String, u32)| (name.to_lowercase(), id);
        let languages: BTreeMap<_, _> = at.ids("codec_language_id", vocab_size)?.into_iter().map(lower).collect();
        let predictor = at.section("code_predictor_config")?;
        let sizes = (Some(model.layers.hidden_size), groups, entries);
        Ok(Self {
            model,
            text_vocab_size,
            text_hidden_size: at.size("text_hidden_size", 2048, WIDTH)?,
            sliding_window: switched_window(at)?,
            num_code_groups: groups,
            ids: UtteranceIds::read((top, at), (text_vocab_size, vocab_size), true)?,
            speakers: speakers(at, vocab_size, &languages, kind)?,
            languages,
            code_predictor: CodePredictorConfig::read(&predictor, sizes, switched_window(&predictor)?)?,
        })
    }
}

/// A speaker of the checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeakerConfig {
    /// Codec token of the speaker.
    pub id: u32,
    /// Dialect that the speaker uses instead of Chinese, and by default.
    pub dialect: Option<String>,
}

/// Reads `spk_id` and `spk_is_dialect`, which has the name of a speaker's dialect, or `false`.
fn speakers(
    at: &ConfigSection<'_>,
    vocabulary: usize,
    languages: &BTreeMap<String, u32>,
    kind: VoiceSource,
) -> Result<BTreeMap<String, SpeakerConfig>, CheckpointError> {
    let ids = at.ids("spk_id", vocabulary)?;
    at.check("spk_id", "{}", kind != VoiceSource::CustomVoice || !ids.is_empty(), "at least one voice")?;
    let dialects = at.get::<BTreeMap<String, Value>>("spk_is_dialect")?.unwrap_or_default();
    let speaker = |(name, id): (String, u32)| -> Result<_, CheckpointError> {
        let dialect = dialects.get(&name).and_then(Value::as_str).map(str::to_lowercase);
        if let Some(dialect) = &dialect {
            let known = languages.contains_key(dialect);
            at.check(&format!("spk_is_dialect.{name}"), dialect, known, "a name of codec_language_id, or false")?;
        }
        Ok((name.to_lowercase(), SpeakerConfig { id, dialect }))
    };
    ids.into_iter().map(speaker).collect()
}

/// Encoders of recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct CloningConfig {
    /// Sizes of the speaker encoder.
    pub speaker: SpeakerEncoderConfig,
    /// Sizes of the codec's encoder.
    pub speech: SpeechCodecConfig,
    /// Samples of a frame of codes.
    pub encode_downsample_rate: usize,
}

impl CloningConfig {
    /// Reads `speaker_encoder_config`, and the encoder of the codec's file. A row of the talker has `hidden_size`
    /// numbers. `groups` is the number of codes in a frame, and the field that sets it; a codebook has `entries`
    /// entries.
    fn read(
        top: &ConfigSection<'_>,
        codec: &ConfigSection<'_>,
        hidden_size: usize,
        (groups, entries): ((&str, usize), usize),
    ) -> Result<Self, CheckpointError> {
        let at = top.optional_section("speaker_encoder_config")?;
        at.only("mel_dim", mel::MEL.bins)?;
        at.only("sample_rate", mel::RATE)?;
        let enc_dim = at.equal("enc_dim", 1024, ("talker_config.hidden_size", hidden_size))?;
        codec.equal("encoder_valid_num_quantizers", 16, groups)?;
        Ok(Self {
            speaker: SpeakerEncoderConfig::read(&at, (mel::MEL.bins, enc_dim), SPEAKER)?,
            speech: SpeechCodecConfig::read(
                &codec.optional_section("encoder_config")?,
                mel::RATE,
                ("decoder_config.codebook_size", (groups.1, entries)),
            )?,
            encode_downsample_rate: codec.size("encode_downsample_rate", 1920, FRAME)?,
        })
    }
}

/// Sampling of talker and code predictor, and the length limit.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationConfig {
    /// Sampling of the talker's first codebook.
    pub talker: Sampling,
    /// Sampling of the code predictor's codebooks.
    pub code_predictor: Sampling,
    /// Most codec frames of a response.
    pub max_new_tokens: u32,
}

impl GenerationConfig {
    /// Reads generation_config.json if it exists; defaults are those of the reference's `generate`.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = generation_file(checkpoint)?;
        let at = file.top()?;
        let talker = Sampling { temperature: 0.9, top_k: 50, top_p: 1.0, repetition_penalty: 1.05 };
        let code_predictor = Sampling { repetition_penalty: 1.0, ..talker };
        Ok(Self {
            talker: sampling(&at, &[""], "do_sample", (talker, true))?,
            code_predictor: sampling(&at, &["subtalker_"], "dosample", (code_predictor, true))?,
            max_new_tokens: at.size("max_new_tokens", 2048, RESPONSE)? as u32,
        })
    }
}
