//! A family of one stage, run by the real scheduler: it emits the tokens of its prompt in reverse, with a frame of
//! silence for each in a spoken response. Its encoder ignores the audio.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use repartee_engine::EngineConfig;
use repartee_engine::internals::{
    AudioFrontEnd, AudioRows, BatchEntry, Codec, EdgeKind, Element, ElementValue, Encoder, Gauges, Hearing, LogMel,
    LogMelConfig, Message, MessageKind, Model, Outbox, PromptTemplate, ResponseParams, RowKind, RunnableRows,
    SlotCounts, Stage, StageEnd, StageItem, Tokenizer, ToolCallTokens, ToolTemplate, WindowInput,
};
use repartee_engine_api::{Command, Respond, Role, SessionHandle, Tool};

use super::driven::{Driven, drive_with, submit};
use super::folder;

/// A text whose prompt panics.
pub const POISON: &str = "!";
/// Duration of a frame.
pub const FRAME: Duration = Duration::from_millis(10);
const RATE: u32 = 8000;

/// Faults that a test switches on while the engine runs.
#[derive(Default)]
pub struct Broken {
    /// The stage panics in `need`.
    pub need: AtomicBool,
    /// The stage panics in `free`.
    pub free: AtomicBool,
    /// True if the engine reported itself ready while a slot was freed.
    pub ready_in_free: AtomicBool,
}

struct Spelling {
    left: Vec<Option<(Vec<u32>, ResponseParams)>>,
    broken: Arc<Broken>,
    gauges: Arc<Gauges>,
}

impl Stage for Spelling {
    fn name(&self) -> &'static str {
        "spelling"
    }
    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        let id = |element: &Element| match element.value {
            ElementValue::Token(id) => Some(id),
            _ => None,
        };
        match item {
            StageItem::Prompt { elements, response: Some(params), .. } => {
                self.left[slot] = Some((elements.iter().filter_map(id).collect(), params.clone()));
                out.push((slot, StageItem::Begin(params)));
            }
            StageItem::Abort => {
                self.left[slot] = None;
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }
    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }
    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Samples
    }
    fn max_items(&self) -> usize {
        2
    }
    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        assert!(!self.broken.need.load(Ordering::Relaxed), "broken");
        RunnableRows::rows(usize::from(self.left[slot].is_some()), RowKind::Decode)
    }
    fn max_rows(&self) -> usize {
        1
    }
    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for &BatchEntry { slot, .. } in work {
            let Some((left, params)) = &mut self.left[slot] else { continue };
            match left.pop() {
                Some(id) => {
                    out.push((slot, StageItem::Token(id)));
                    if params.audio {
                        out.push((
                            slot,
                            StageItem::Samples(vec![0.0; (FRAME.as_millis() as u32 * RATE / 1000) as usize]),
                        ));
                    }
                }
                None => {
                    self.left[slot] = None;
                    out.push((slot, StageItem::End(StageEnd::Stop)));
                }
            }
        }
    }
    fn free(&mut self, slot: usize) {
        self.broken.ready_in_free.store(self.gauges.ready.load(Ordering::Relaxed), Ordering::Relaxed);
        self.left[slot] = None;
        assert!(!self.broken.free.load(Ordering::Relaxed), "broken");
    }
    fn held(&self, slot: usize) -> usize {
        self.left[slot].as_ref().map_or(0, |(left, _)| left.len())
    }
    fn blocks(&self) -> usize {
        self.left.iter().flatten().count()
    }
}

struct NullEncoder;

impl Encoder for NullEncoder {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        windows.iter().map(|_| AudioRows::default()).collect()
    }
}

/// Renders the last text, but panics over [`POISON`] and over tool calls.
struct LastText(u32, ToolCallTokens);

impl PromptTemplate for LastText {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, _: bool) -> Vec<Element> {
        let text = |message: &&Message| message.kind == MessageKind::User && message.token_ids().next().is_some();
        let ids = history.iter().rev().find(text).into_iter().flat_map(Message::token_ids);
        ids.map(|id| (id != self.0).then_some(Element::token(Role::User, id)).unwrap()).collect()
    }

    fn tools(&self) -> Option<&dyn ToolTemplate> {
        Some(self)
    }
}

impl ToolTemplate for LastText {
    fn system(&self, _: &str, _: &[Tool]) -> String {
        panic!("broken");
    }
    fn call(&self, _: &str, _: &str) -> String {
        panic!("broken");
    }
    fn result(&self, _: &str) -> String {
        panic!("broken");
    }
    fn call_tokens(&self) -> Option<&ToolCallTokens> {
        Some(&self.1)
    }
}

/// An engine with `slots` slots, its faults, and its gauges.
pub fn engine(slots: usize, config: &EngineConfig) -> (Driven, Arc<Broken>, Arc<Gauges>) {
    let bytes = std::fs::read(folder("dense").join("checkpoint/tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_bytes(&bytes).unwrap();
    let poison = tokenizer.encode(POISON).unwrap()[0];
    let (broken, gauges) = (Arc::new(Broken::default()), Arc::new(Gauges::default()));
    let left = (0..slots).map(|_| None).collect();
    let stage = Spelling { left, broken: Arc::clone(&broken), gauges: Arc::clone(&gauges) };
    let marks = ToolCallTokens { open: (u32::MAX, String::new()), close: (u32::MAX, String::new()) };
    let model = Model {
        tokenizer,
        hearing: Some(Hearing::Rows(AudioFrontEnd {
            front_end: Box::new(LogMel::new(&LogMelConfig::default(), 100).unwrap()),
            encoder: Box::new(NullEncoder),
        })),
        template: Box::new(LastText(poison, marks)),
        stages: vec![Box::new(stage)],
        codec: Some(Codec { sample_rate: RATE, frame_samples: (FRAME.as_millis() as u32 * RATE / 1000, 1) }),
        voices: Box::new(vec!["only".to_owned()]),
        slots: SlotCounts { sessions: slots, out_of_band: 0, context: 1000 },
        max_tokens: 1000,
        answer_tokens: 1000,
        pool: None,
    };
    (drive_with(model, config, Arc::clone(&gauges)), broken, gauges)
}

/// Submits a text and requests a response to it.
pub fn ask(session: &SessionHandle, number: u64, text: &str, audio: bool) {
    submit(session, Command::text(2 * number, Role::User, text));
    submit(session, Command::Respond(Respond { audio, ..Respond::new(number, 2 * number + 1) }));
}
