//! Qwen2.5-Omni: audio tower, thinker, talker, token2wav.
//!
//! The model files follow the reference, `transformers` 5.23 `models/qwen2_5_omni`, and name its classes. Vision is not
//! supported: its weights are ignored.

pub mod config;
pub mod talker;
pub mod token2wav;
pub mod voices;

use std::sync::Arc;

use repartee_engine_api::Sampling;
use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;

use self::config::{ARCHITECTURES, Config};
use self::talker::{CodeTalker, HEADER_ROWS, Talker};
use self::token2wav::Token2Wav;
use self::token2wav::config::Token2WavConfig;
use super::family::{Family, FamilyVariant, claims_named};
use super::load_error::LoadError;
use super::parts::audio_encoder::front_end::audio_front_end;
use super::parts::audio_encoder::tower::AudioTower;
use super::parts::chat_template::ChatTemplate;
use super::parts::decoder::FeedForward;
use super::parts::generation::{Defaults, Generation};
use super::parts::language_model::LanguageModel;
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::special_tokens::{SpecialTokens, TokenReader};
use super::parts::talker::stage::TalkerPart;
use super::parts::thinker_stage::{HiddenRows, ThinkerPart};
use super::parts::weights::Weights;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// Default sampling of the talker.
const TALKER: Sampling = Sampling { temperature: 0.9, top_k: 40, top_p: 0.8, repetition_penalty: 1.05 };
/// The published template's system message for a history that begins without one.
const INSTRUCTIONS: &str = "You are a helpful assistant.";

/// Models of this family up to the codes, one field for each part of the checkpoint.
pub struct Qwen25Omni<O: Ops> {
    /// Configuration from config.json.
    pub config: Config,
    /// Weights of `thinker.audio_tower`.
    pub audio_tower: AudioTower<O>,
    /// Weights of `thinker`.
    pub thinker: Arc<LanguageModel<O>>,
    /// Weights of `talker`.
    pub talker: Talker<O>,
}

impl<O: Ops> Qwen25Omni<O> {
    /// Loads all parts, with weights as in the checkpoint.
    pub fn load(ops: &O, checkpoint: &Checkpoint) -> Result<Self, LoadError> {
        Self::load_as(ops, checkpoint, WeightPolicy::default())
    }

    /// Loads all parts, with weights in the formats of `policy`.
    pub fn load_as(ops: &O, checkpoint: &Checkpoint, policy: WeightPolicy) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint)?;
        let weights = Weights::new(ops, checkpoint).with_policy(policy);
        let of_thinker = weights.at("thinker");
        let dense = |_| FeedForward::Dense(config.thinker.text.layers.intermediate_size);
        Ok(Self {
            audio_tower: AudioTower::load(&of_thinker.at("audio_tower"), config.thinker.encoder())?,
            thinker: Arc::new(LanguageModel::load(&of_thinker, config.thinker.language_model(), dense)?),
            talker: Talker::load(&weights.at("talker"), &config.talker, config.codes)?,
            config,
        })
    }
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: ARCHITECTURES[0],
    claims: |checkpoint| claims_named(checkpoint, &ARCHITECTURES, FamilyVariant("omni")),
    assemble_cpu: assemble::<Cpu>,
    #[cfg(feature = "cuda")]
    assemble_cuda: assemble::<repartee_kernels::cuda::Cuda>,
};

/// Builds the chat template, with special ids of the configuration and of the tokenizer.
fn template(checkpoint: &Checkpoint, config: &Config, tokenizer: &Tokenizer) -> Result<ChatTemplate, CheckpointError> {
    let tokens = TokenReader::new(checkpoint, tokenizer);
    let marks = SpecialTokens {
        im_start: tokens.special("<|im_start|>")?,
        im_end: tokens.special("<|im_end|>")?,
        system: tokens.word("system")?,
        user: config.thinker.user_token_id,
        assistant: tokens.word("assistant")?,
        audio_start: config.thinker.audio_start_token_id,
        audio_end: config.thinker.audio_end_token_id,
    };
    Ok(ChatTemplate::new(checkpoint, marks, tokenizer)?.with_instructions(tokens.text(INSTRUCTIONS)?))
}

/// Loads the parts of a checkpoint of this family.
pub fn assemble<O: Device>(
    ops: O,
    checkpoint: &Checkpoint,
    _: FamilyVariant,
    settings: &EngineConfig,
) -> Result<Assembly<O>, LoadError> {
    let Qwen25Omni { config, audio_tower, thinker, talker } = Qwen25Omni::load_as(&ops, checkpoint, settings.weights)?;
    let vocabulary = config.thinker.text.vocab_size;
    let tokenizer = Tokenizer::load(checkpoint, vocabulary)?;
    let template = template(checkpoint, &config, &tokenizer)?;
    let defaults =
        Defaults { end_of_message: template.end_of_message(), talker: TALKER, code_predictor: Sampling::GREEDY };
    let generation = Generation::load(checkpoint, defaults, vocabulary)?;
    let codec = Token2WavConfig::load(checkpoint)?;
    let speakers = voices::load_speakers(checkpoint, vocabulary, &codec.dit)?;
    let bos = speakers.iter().map(|(bos, voice)| (voice.name.clone(), *bos)).collect();
    let heard: Vec<_> = speakers.into_iter().map(|(_, voice)| voice).collect();
    // One-time computations at load time always run on the CPU.
    let token2wav = Token2Wav::load((&ops, &Cpu::default()), checkpoint, &codec, &heard)?;
    let audio = audio_front_end(&ops, audio_tower, checkpoint)?;

    let (geometry, names) = (token2wav.codec(), token2wav.voices.clone());
    let (dit, bigvgan) = token2wav.parts(generation.talker_max_new_tokens as usize);
    let codes = CodeTalker { thinker: Arc::clone(&thinker), talker, config: config.talker.clone(), bos };
    let (text, codec) = (&config.thinker.text, &config.talker.text);
    let pipeline = Pipeline::new(&ops)
        .audio_input(audio, thinker.width())
        .stage(ThinkerPart::new(thinker, text, &generation, HiddenRows::All))
        .stage(TalkerPart::new(codes, codec, &generation, (HEADER_ROWS, geometry.frame())))
        .stage(dit)
        .stage(bigvgan);
    Ok(pipeline.with(ModelFrame {
        tokenizer,
        template: Box::new(template),
        voices: Box::new(names),
        codec: Some(geometry),
        max_tokens: Some(generation.thinker_max_new_tokens),
    }))
}
