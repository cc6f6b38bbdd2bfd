//! Qwen3-Omni: audio tower, thinker, talker with code predictor, code2wav.
//!
//! The model files follow the reference, `transformers` 5.23 `models/qwen3_omni_moe`, and name its classes. Vision is
//! not supported: its weights are ignored.

pub mod config;
pub mod talker;

use std::sync::Arc;

use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;

use self::config::{ARCHITECTURE, Config, TextConfig};
use super::family::{Family, FamilyVariant, claims_named};
use super::load_error::LoadError;
use super::parts::audio_encoder::front_end::audio_front_end;
use super::parts::audio_encoder::tower::AudioTower;
use super::parts::chat_template::ChatTemplate;
use super::parts::decoder::FeedForward;
use super::parts::language_model::{HandedRow, LanguageModel, LanguageModelShape};
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::special_tokens::{SpecialTokens, TokenReader};
use super::parts::talker::frame_talker::FrameTalkerWeights;
use super::parts::talker::stage::TalkerPart;
use super::parts::thinker_stage::{HiddenRows, ThinkerPart};
use super::parts::vocoder::code2wav::Code2Wav;
use super::parts::vocoder::frame_stage::FrameVocoderPart;
use super::parts::weights::Weights;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// Sample rate of the family's codec in Hz; the reference hard-codes it in its file output.
const SAMPLE_RATE: u32 = 24_000;

/// Models of this family, one field for each part of the checkpoint.
pub struct Qwen3Omni<O: Ops> {
    /// Configuration from config.json.
    pub config: Config,
    /// Weights of `thinker.audio_tower`.
    pub audio_tower: AudioTower<O>,
    /// Weights of `thinker`.
    pub thinker: Arc<LanguageModel<O>>,
    /// Weights of `talker`.
    pub talker: FrameTalkerWeights<O>,
    /// Weights of `code2wav`.
    pub code2wav: Code2Wav<O>,
}

impl<O: Ops> Qwen3Omni<O> {
    /// Loads all parts, with weights as in the checkpoint.
    pub fn load(ops: &O, checkpoint: &Checkpoint) -> Result<Self, LoadError> {
        Self::load_as(ops, checkpoint, WeightPolicy::default())
    }

    /// Loads all parts, with weights in the formats of `policy`.
    pub fn load_as(ops: &O, checkpoint: &Checkpoint, policy: WeightPolicy) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint)?;
        let weights = Weights::new(ops, checkpoint).with_policy(policy);
        let of_thinker = weights.at("thinker");
        let thinker = Arc::new(load_thinker(&of_thinker, &config.thinker.text, config.talker.accept_hidden_layer)?);
        Ok(Self {
            audio_tower: AudioTower::load(&of_thinker.at("audio_tower"), config.thinker.audio.encoder())?,
            talker: talker::load(&weights.at("talker"), &config.talker, Arc::clone(&thinker))?,
            thinker,
            code2wav: Code2Wav::load(&weights.at("code2wav"), &config.code2wav)?,
            config,
        })
    }
}

/// Loads `thinker.model` and `thinker.lm_head`, after `Qwen3OmniMoeThinkerForConditionalGeneration`; the talker gets the
/// rows that enter layer `accept_hidden_layer`.
fn load_thinker<O: Ops>(
    w: &Weights<'_, O>,
    text: &TextConfig,
    accept_hidden_layer: usize,
) -> Result<LanguageModel<O>, LoadError> {
    let shape = LanguageModelShape {
        vocabulary: text.model.vocab_size,
        tied: text.tie_word_embeddings,
        decoder: text.decoder(),
        handed: Some(HandedRow::Entering(accept_hidden_layer)),
    };
    let dense = FeedForward::Dense(text.model.layers.intermediate_size);
    LanguageModel::load(w, shape, |layer| if text.is_moe_layer(layer) { text.experts(None) } else { dense })
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: ARCHITECTURE,
    claims: |checkpoint| claims_named(checkpoint, &[ARCHITECTURE], FamilyVariant("omni")),
    assemble_cpu: assemble::<Cpu>,
    #[cfg(feature = "cuda")]
    assemble_cuda: assemble::<repartee_kernels::cuda::Cuda>,
};

/// Builds the chat template with the configuration's special ids.
fn template(checkpoint: &Checkpoint, config: &Config, tokenizer: &Tokenizer) -> Result<ChatTemplate, CheckpointError> {
    let tokens = TokenReader::new(checkpoint, tokenizer);
    let audio_end = config.thinker.audio_end_token_id.map_or_else(|| tokens.special("<|audio_end|>"), Ok)?;
    let marks = SpecialTokens {
        im_start: config.im_start_token_id,
        im_end: config.im_end_token_id,
        system: config.system_token_id,
        user: config.user_token_id,
        assistant: config.assistant_token_id,
        audio_start: config.thinker.audio_start_token_id,
        audio_end,
    };
    Ok(ChatTemplate::new(checkpoint, marks, tokenizer)?.with_tools(tokenizer))
}

/// Loads the parts of a checkpoint of this family.
pub fn assemble<O: Device>(
    ops: O,
    checkpoint: &Checkpoint,
    _: FamilyVariant,
    settings: &EngineConfig,
) -> Result<Assembly<O>, LoadError> {
    let Qwen3Omni { config, audio_tower, thinker, talker, code2wav } =
        Qwen3Omni::load_as(&ops, checkpoint, settings.weights)?;
    let generation = config.generation(checkpoint)?;
    let tokenizer = Tokenizer::load(checkpoint, config.thinker.text.model.vocab_size)?;
    let template = template(checkpoint, &config, &tokenizer)?;
    let audio = audio_front_end(&ops, audio_tower, checkpoint)?;

    let geometry = config.code2wav.geometry(SAMPLE_RATE);
    let mut voices: Vec<String> = config.talker.speaker_id.keys().cloned().collect();
    voices.sort_by_key(|voice| config.talker.speaker_id[voice]);
    let (text, codec) = (&config.thinker.text.model, &config.talker.text.model);
    let frames = talker::talker(talker, &config, template.response_header());
    let pipeline = Pipeline::new(&ops)
        .audio_input(audio, thinker.width())
        .stage(ThinkerPart::new(thinker, text, &generation, HiddenRows::Heard))
        .stage(TalkerPart::new(frames, codec, &generation, (talker::HEADER_ROWS, geometry.frame())))
        .stage(FrameVocoderPart::new(code2wav, geometry.frame()).with_left_context::<O>(settings));
    Ok(pipeline.with(ModelFrame {
        tokenizer,
        template: Box::new(template),
        voices: Box::new(voices),
        codec: Some(geometry),
        max_tokens: Some(generation.thinker_max_new_tokens),
    }))
}
