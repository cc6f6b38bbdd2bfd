//! A family that answers with text alone: one small language model, whose chain of stages ends in text. With the small
//! Qwen3-TTS as its voice it is a cascade, and so it is behind a recogniser.

use std::sync::Arc;

use repartee_engine::internals::decoder::{DecoderShape, FeedForward, LayerStyle, LocalLayers};
use repartee_engine::internals::language_model::{LanguageModel, LanguageModelShape};
use repartee_engine::internals::pipeline::{Assembly, ModelFrame, Pipeline};
use repartee_engine::internals::thinker_stage::{HiddenRows, ThinkerPart};
use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{
    AudioRows, Checkpoint, Device, Element, FamilyVariant, Message, MessageKind, MessagePart, Model, PromptTemplate,
    Tokenizer, join_hearing, join_voice, qwen3_tts, worker_pool,
};
use repartee_engine::{EngineConfig, LoadError, Source, Synthetic};
use repartee_engine_api::{Command, Respond, Role, Sampling};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::{AttentionShape, WeightLayout};

use crate::folder;
use crate::generic::subjects::{other_audio, spoken};
use crate::generic::{Splitter, Subject};
use crate::tone_recogniser;

/// Text ids; marks that end a message and begin the model's own.
const TEXT_IDS: usize = 300;
const END: u32 = TEXT_IDS as u32;
const BEGIN: u32 = END + 1;
/// Width of all rows.
const WIDTH: usize = 32;
const SAMPLING: Sampling = Sampling { temperature: 0.8, top_k: 20, top_p: 1.0, repetition_penalty: 1.1 };

/// Prompt: the text of each message between marks.
struct Template;

impl PromptTemplate for Template {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let mut prompt = Vec::new();
        for message in history {
            let answers = message.kind == MessageKind::Assistant;
            let role = if answers { Role::Assistant } else { Role::User };
            prompt.extend(answers.then(|| Element::token(role, BEGIN)));
            for part in &message.parts {
                if let MessagePart::Text(ids) = part {
                    prompt.extend(ids.iter().map(|&id| Element::token(role, id)));
                }
            }
            prompt.push(Element::token(role, END));
        }
        prompt.extend(respond.then(|| Element::token(Role::Assistant, BEGIN)));
        prompt
    }

    fn streamed(&self, ids: &[u32]) -> Option<Vec<Element>> {
        Some(ids.iter().map(|&id| Element::token(Role::Assistant, id)).collect())
    }
}

/// Shape of the layers.
fn plain() -> DecoderShape {
    let attention = AttentionShape { heads: 2, kv_heads: 1, head_dim: 16, window: None, chunk: None };
    DecoderShape::plain(WIDTH, 2, attention)
}

/// Loads the family's weights.
pub fn assemble<O: Device>(
    ops: &O,
    checkpoint: &Checkpoint,
    settings: &EngineConfig,
) -> Result<Assembly<O>, LoadError> {
    assemble_as(ops, checkpoint, settings, plain())
}

/// Loads weights for layers of this shape.
fn assemble_as<O: Device>(
    ops: &O,
    checkpoint: &Checkpoint,
    settings: &EngineConfig,
    decoder: DecoderShape,
) -> Result<Assembly<O>, LoadError> {
    let w = Weights::new(ops, checkpoint).with_policy(settings.weights);
    let shape = LanguageModelShape { vocabulary: TEXT_IDS + 2, tied: true, decoder, handed: None };
    let tokenizer = Tokenizer::load(checkpoint, TEXT_IDS)?;
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let allowed = |id| id == END || is_word(tokenizer.decode(&[id]).trim_start_matches(' '));
    let allowed: Vec<f32> = (0..=BEGIN).map(|id| f32::from(allowed(id))).collect();
    let thinker = ThinkerPart {
        thinker: Arc::new(LanguageModel::load(&w.at("lm"), shape, |_| FeedForward::Dense(2 * WIDTH))?),
        most_positions: 2048,
        stop: vec![END],
        sampling: SAMPLING,
        handed_over: HiddenRows::None,
        allowed: Some(w.made("allowed", WeightLayout::Vector, &allowed, &[TEXT_IDS + 2])?),
    };
    Ok(Pipeline::new(ops).stage(thinker).with(ModelFrame {
        tokenizer,
        template: Box::new(Template),
        voices: Box::new(Vec::new()),
        codec: None,
        max_tokens: Some(24),
    }))
}

/// Weights drawn for the family.
pub(crate) fn checkpoint() -> Checkpoint {
    let weights = Synthetic { folder: folder("dense").join("checkpoint"), seed: 5, layers: None, skewed: false };
    Checkpoint::open(Source::Synthetic(weights)).unwrap()
}

/// User message of a turn.
pub(crate) fn message(turn: usize, item: u64) -> Vec<Command> {
    vec![Command::text(item, Role::User, ["where are you from", "and what do you do", "tell me more"][turn])]
}

/// The family under the generic suite, on a processor.
#[derive(Default)]
pub struct TextOnly {
    /// True for layers as Gemma has them: every other one with a window.
    pub local_layers: bool,
}

impl Subject for TextOnly {
    fn model(&self, config: &EngineConfig) -> Model {
        let mut decoder = plain();
        if self.local_layers {
            decoder.local = Some(LocalLayers { every: 2, window: 9, theta: 1e3 });
            let (row_factor, score_factor) = (Some((WIDTH as f32).sqrt()), Some(0.8));
            decoder.style =
                LayerStyle { result_norms: true, offset_norms: false, gelu: true, row_factor, score_factor };
        }
        built(config, |cpu| assemble_as(cpu, &checkpoint(), config, decoder).unwrap())
    }

    fn stages(&self) -> &'static [&'static str] {
        &["thinker"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn has_audio_output(&self) -> bool {
        false
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        message(turn, item)
    }

    fn request(&self, respond: Respond, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::Respond(Respond { audio: false, ..respond })]
    }
}

/// The family with a voice, on a processor.
fn with_voice(cpu: &Cpu, config: &EngineConfig) -> Assembly<Cpu> {
    let voice = Checkpoint::open(Source::Folder(folder("tts_custom").join("checkpoint"))).unwrap();
    let voice = qwen3_tts::assemble(cpu.clone(), &voice, FamilyVariant("tts"), config).unwrap();
    join_voice(assemble(cpu, &checkpoint(), config).unwrap(), voice, &config.spoken_text).unwrap()
}

/// Builds a model on a processor.
fn built(config: &EngineConfig, parts: impl FnOnce(&Cpu) -> Assembly<Cpu>) -> Model {
    let pool = worker_pool(config.threads());
    let model = parts(&Cpu::default().on(pool.clone())).build(config).unwrap();
    model.check().unwrap();
    Model { pool, ..model }
}

/// The family with a voice under the generic suite, on a processor.
pub struct Cascade;

impl Subject for Cascade {
    fn model(&self, config: &EngineConfig) -> Model {
        built(config, |cpu| with_voice(cpu, config))
    }

    fn stages(&self) -> &'static [&'static str] {
        &["thinker", "voice_text", "reader", "talker", "code2wav"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        message(turn, item)
    }
}

/// The family behind a recogniser, with or without a voice, under the generic suite, on a processor.
pub struct HearingCascade {
    /// True if it speaks.
    pub audio_output: bool,
}

impl Subject for HearingCascade {
    fn model(&self, config: &EngineConfig) -> Model {
        built(config, |cpu| {
            let rest = match self.audio_output {
                true => with_voice(cpu, config),
                false => assemble(cpu, &checkpoint(), config).unwrap(),
            };
            join_hearing(tone_recogniser::assemble(cpu), rest).unwrap()
        })
    }

    fn stages(&self) -> &'static [&'static str] {
        match self.audio_output {
            true => &["recogniser", "thinker", "voice_text", "reader", "talker", "code2wav"],
            false => &["recogniser", "thinker"],
        }
    }

    fn audio(&self, turn: usize) -> Option<Vec<f32>> {
        Some(other_audio(turn))
    }

    fn has_audio_output(&self) -> bool {
        self.audio_output
    }

    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command> {
        spoken(&other_audio(turn), item, cut)
    }

    fn request(&self, respond: Respond, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::Respond(Respond { audio: self.audio_output && respond.audio, ..respond })]
    }
}

/// The recogniser alone, on a processor.
pub fn recogniser_alone(config: &EngineConfig) -> Model {
    built(config, tone_recogniser::assemble)
}
