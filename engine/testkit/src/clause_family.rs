//! A voice that speaks a clause at a time, and a language model that repeats its messages. Together they are a cascade whose
//! text the test decides. Neither has weights.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use repartee_engine::EngineConfig;
use repartee_engine::internals::clause_reader::{ClauseReaderPart, ClauseTemplate};
use repartee_engine::internals::given_text_stage::GivenTextPart;
use repartee_engine::internals::pipeline::{Assembly, ModelFrame, Pipeline, Placement, StagePart};
use repartee_engine::internals::{
    AudioRows, BatchEntry, Codec, Device, EdgeKind, Element, Message, Model, Outbox, PromptTemplate, ReasoningTokens,
    ResponseParams, RowKind, RunnableRows, SlotBytes, Stage, StageEnd, StageItem, Tokenizer, ToolCallTokens,
    ToolTemplate, join_voice, worker_pool,
};
use repartee_engine_api::{Command, Respond, Role, Tool};
use repartee_kernels::cpu::Cpu;
use repartee_spoken::{ClauseBounds, ReasoningMarks, WordBounds};

use crate::generic::subjects::{TEXTS, streamed};
use crate::generic::{Splitter, Subject};
use crate::text_family;

/// Geometry of the sound: a frame of 10 ms for each byte of a clause.
const CODEC: Codec = Codec { sample_rate: 8_000, frame_samples: (FRAME, 1) };
const FRAME: u32 = 80;
/// Silent frames after a clause.
pub const PAUSE_FRAMES: usize = 2;
/// Most frames of one slot in a step.
const MAX_FRAMES: usize = 4;
/// Bounds of the clauses: a word, then at most two, so that short texts have several.
const BOUNDS: ClauseBounds =
    ClauseBounds { first: WordBounds { min: 1, max: 1 }, later: WordBounds { min: 1, max: 2 } };

/// The stage of the voice, before the slots are known.
struct ClauseVoicePart;

impl<O: Device> StagePart<O> for ClauseVoicePart {
    fn name(&self) -> &'static str {
        "clause_voice"
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        SlotBytes { position: 0, fixed: 1024 }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        Box::new(ClauseVoice { slots: (0..at.slots.total()).map(|_| None).collect() })
    }
}

/// Turns clauses into sound: each frame depends on the voice, the seed, the response, the clause and its number.
struct ClauseVoice {
    slots: Vec<Option<SpokenClauses>>,
}

/// Clauses of one response.
struct SpokenClauses {
    params: ResponseParams,
    /// Frames that are not made yet: number of the clause, number of the frame, byte; 0 for silence.
    frames: VecDeque<(u64, u64, u8)>,
    /// Number of clauses so far.
    clauses: u64,
    end: Option<StageEnd>,
}

impl SpokenClauses {
    fn clause(&mut self, text: &str) {
        let bytes = text.bytes().chain([0; PAUSE_FRAMES]);
        self.frames.extend((0..).zip(bytes).map(|(number, byte)| (self.clauses, number, byte)));
        self.clauses += 1;
    }

    fn samples(&self, (clause, number, byte): (u64, u64, u8)) -> Vec<f32> {
        if byte == 0 {
            return vec![0.0; FRAME as usize];
        }
        let ResponseParams { response, seed, voice, .. } = &self.params;
        let mut state = voice.bytes().fold(*seed, |state, byte| state.wrapping_mul(31).wrapping_add(u64::from(byte)));
        for part in [*response, clause, number, u64::from(byte)] {
            state = (state ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        let sample = |at: u32| (state.rotate_left(at % 64) % 2_001) as f32 / 2_001.0 - 0.5;
        (0..FRAME).map(sample).collect()
    }
}

impl Stage for ClauseVoice {
    fn name(&self) -> &'static str {
        "clause_voice"
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Clauses
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Samples
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match (item, &mut self.slots[slot]) {
            (StageItem::Begin(params), state) => {
                let begun = params.clone();
                *state = Some(SpokenClauses { params, frames: VecDeque::new(), clauses: 0, end: None });
                out.push((slot, StageItem::Begin(begun)));
            }
            (StageItem::Clause(text), Some(speaking)) => speaking.clause(&text),
            (StageItem::End(end), Some(speaking)) if !speaking.frames.is_empty() => speaking.end = Some(end),
            (item @ (StageItem::End(_) | StageItem::Abort), state) => {
                *state = None;
                out.push((slot, item));
            }
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        RunnableRows::rows(self.slots[slot].as_ref().map_or(0, |speaking| speaking.frames.len()), RowKind::Window)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        let frames = self.slots[slot].as_ref().map_or(0, |speaking| speaking.frames.len());
        CODEC.frame() * u32::try_from(frames).unwrap()
    }

    fn max_rows(&self) -> usize {
        MAX_FRAMES
    }

    fn max_items(&self) -> usize {
        MAX_FRAMES
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for &BatchEntry { slot, rows } in work {
            let Some(speaking) = &mut self.slots[slot] else { continue };
            for _ in 0..rows {
                let Some(frame) = speaking.frames.pop_front() else { break };
                out.push((slot, StageItem::Samples(speaking.samples(frame))));
            }
            if let Some(end) = speaking.end.filter(|_| speaking.frames.is_empty()) {
                self.slots[slot] = None;
                out.push((slot, StageItem::End(end)));
            }
        }
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
    }
}

/// Assembles the voice.
pub fn voice<O: Device>(ops: &O, config: &EngineConfig) -> Assembly<O> {
    let tokenizer = Tokenizer::of_bytes().unwrap();
    let reader = ClauseReaderPart::new(&tokenizer, config).with_bounds(BOUNDS);
    Pipeline::new(ops).stage(reader).stage(ClauseVoicePart).with(ModelFrame {
        tokenizer,
        template: Box::new(ClauseTemplate),
        voices: Box::new(vec!["own".to_owned()]),
        codec: Some(CODEC),
        max_tokens: Some(1_000),
    })
}

/// Prompt of the language model that repeats its messages: the texts of all of them. Its tool calls stand in braces, its
/// reasoning text in `<think>`.
struct EchoTemplate {
    calls: ToolCallTokens,
    reasoning: ReasoningTokens,
}

impl PromptTemplate for EchoTemplate {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, _: bool) -> Vec<Element> {
        history.iter().flat_map(Message::token_ids).map(|id| Element::token(Role::User, id)).collect()
    }

    fn tools(&self) -> Option<&dyn ToolTemplate> {
        Some(self)
    }

    fn reasoning(&self) -> Option<&ReasoningTokens> {
        Some(&self.reasoning)
    }
}

impl ToolTemplate for EchoTemplate {
    fn system(&self, instructions: &str, _: &[Tool]) -> String {
        instructions.to_owned()
    }

    fn call(&self, name: &str, arguments: &str) -> String {
        format!("\u{1}{{\"name\": \"{name}\", \"arguments\": {arguments}}}\u{2}")
    }

    fn result(&self, output: &str) -> String {
        output.to_owned()
    }

    fn call_tokens(&self) -> Option<&ToolCallTokens> {
        Some(&self.calls)
    }
}

/// Assembles the language model that repeats its messages.
fn echo<O: Device>(ops: &O) -> Assembly<O> {
    let mark = |byte: u8| (u32::from(byte), char::from(byte).to_string());
    let template = EchoTemplate {
        calls: ToolCallTokens { open: mark(1), close: mark(2) },
        reasoning: ReasoningTokens { marks: ReasoningMarks::default(), open: None, close: None },
    };
    Pipeline::new(ops).stage(GivenTextPart).with(ModelFrame {
        tokenizer: Tokenizer::of_bytes().unwrap(),
        template: Box::new(template),
        voices: Box::new(Vec::new()),
        codec: None,
        max_tokens: Some(1_000),
    })
}

fn built(parts: impl FnOnce(&Cpu) -> Assembly<Cpu>, config: &EngineConfig) -> Model {
    let pool = worker_pool(config.threads());
    let model = parts(&Cpu::default().on(pool.clone())).build(config).unwrap();
    model.check().unwrap();
    Model { pool, ..model }
}

/// Builds the language model that repeats its messages.
pub fn echo_model(config: &EngineConfig) -> Model {
    built(echo, config)
}

/// Builds a cascade that speaks its messages.
pub fn echo_cascade(config: &EngineConfig) -> Model {
    built(|cpu| join_voice(echo(cpu), voice(cpu, config), &config.spoken_text).unwrap(), config)
}

/// The voice under the generic suite.
pub struct ClauseSpeech {
    /// True if text streams in; otherwise the user's message is spoken.
    pub streamed: bool,
}

impl Subject for ClauseSpeech {
    fn model(&self, config: &EngineConfig) -> Model {
        built(|cpu| voice(cpu, config), config)
    }

    fn stages(&self) -> &'static [&'static str] {
        &["reader", "clause_voice"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::text(item, Role::User, TEXTS[turn])]
    }

    fn request(&self, respond: Respond, cut: Splitter<'_>) -> Vec<Command> {
        if self.streamed { streamed(respond, cut) } else { vec![Command::Respond(respond)] }
    }

    fn writes(&self) -> bool {
        false
    }
}

/// A cascade of a language model and the voice under the generic suite.
pub struct ClauseCascade;

impl Subject for ClauseCascade {
    fn model(&self, config: &EngineConfig) -> Model {
        let think = |cpu: &Cpu| text_family::assemble(cpu, &text_family::checkpoint(), config).unwrap();
        built(|cpu| join_voice(think(cpu), voice(cpu, config), &config.spoken_text).unwrap(), config)
    }

    fn stages(&self) -> &'static [&'static str] {
        &["thinker", "voice_text", "reader", "clause_voice"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        text_family::message(turn, item)
    }
}
