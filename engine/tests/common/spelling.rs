//! A family of one stage, run by the real scheduler: it emits the tokens of its prompt in reverse, with a frame of silence for
//! each in a spoken response. Its encoder hears nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use repartee_engine::EngineConfig;
use repartee_engine::internals::{
    AudioRows, Codec, Element, Encoder, End, Gauges, Item, LogMel, LogMelConfig, MelInput, Message, Model, Outbox,
    Prompt, ResponseParams, Slots, Stage, Tokenizer, Work,
};
use repartee_engine_api::{Command, Respond, Role, SessionHandle};

use super::driven::{Driven, drive_with, submit};
use super::folder;

/// A text whose prompt panics.
pub const POISON: &str = "!";
/// Duration of a frame.
pub const FRAME: Duration = Duration::from_millis(10);
const RATE: u32 = 8000;

/// What a test changes while the engine runs.
#[derive(Default)]
pub struct Broken {
    /// The stage panics when it is asked what is ready.
    pub ready: AtomicBool,
    /// The stage panics when a slot is freed.
    pub free: AtomicBool,
    /// Whether the engine called itself ready while a slot was freed.
    pub ready_in_free: AtomicBool,
}

struct Spelling {
    left: Vec<Option<(Vec<u32>, ResponseParams)>>,
    broken: Arc<Broken>,
    gauges: Arc<Gauges>,
}

impl Stage<()> for Spelling {
    fn name(&self) -> &'static str {
        "spelling"
    }
    fn accept(&mut self, slot: usize, item: Item<()>, out: &mut Outbox<()>) {
        let id = |element: &Element<()>| match element {
            Element::Token { id, .. } => Some(*id),
            Element::Audio { .. } => None,
        };
        match item {
            Item::Prompt { elements, response: Some(params) } => {
                self.left[slot] = Some((elements.iter().filter_map(id).collect(), params.clone()));
                out.push((slot, Item::Begin(params)));
            }
            Item::Abort => {
                self.left[slot] = None;
                out.push((slot, Item::Abort));
            }
            _ => {}
        }
    }
    fn ready(&self, slot: usize) -> usize {
        assert!(!self.broken.ready.load(Ordering::Relaxed), "broken");
        usize::from(self.left[slot].is_some())
    }
    fn max_rows(&self) -> usize {
        1
    }
    fn step(&mut self, work: &[Work], out: &mut Outbox<()>) {
        for &Work { slot, .. } in work {
            let Some((left, params)) = &mut self.left[slot] else { continue };
            match left.pop() {
                Some(id) => {
                    out.push((slot, Item::Token(id)));
                    if params.audio {
                        out.push((slot, Item::Samples(vec![0.0; (FRAME.as_millis() as u32 * RATE / 1000) as usize])));
                    }
                }
                None => {
                    self.left[slot] = None;
                    out.push((slot, Item::End(End::Stop)));
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

struct Deaf;

impl Encoder<()> for Deaf {
    fn encode(&mut self, windows: &[MelInput<'_>]) -> Vec<AudioRows<()>> {
        windows.iter().map(|_| AudioRows { rows: (), count: 0 }).collect()
    }
}

/// Renders the last text, but panics over the poisoned one and over tool calls.
struct LastText(u32);

impl Prompt<()> for LastText {
    fn render(&self, history: &[Message<()>], _: Option<&[Arc<AudioRows<()>>]>, _: bool) -> Vec<Element<()>> {
        let ids = history.iter().rev().find_map(|message| match message {
            Message::UserText(ids) => Some(ids),
            _ => None,
        });
        let ids = ids.into_iter().flatten();
        ids.map(|&id| (id != self.0).then_some(Element::Token { id, user: true }).unwrap()).collect()
    }

    fn tool_call(&self, _: &str, _: &str) -> Option<String> {
        panic!("broken");
    }
}

/// An engine with `slots` slots, what can be broken in it, and its gauges.
pub fn engine(slots: usize, config: &EngineConfig) -> (Driven<()>, Arc<Broken>, Arc<Gauges>) {
    let bytes = std::fs::read(folder("dense").join("checkpoint/tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_bytes(&bytes).unwrap();
    let poison = tokenizer.encode(POISON).unwrap()[0];
    let (broken, gauges) = (Arc::new(Broken::default()), Arc::new(Gauges::default()));
    let left = (0..slots).map(|_| None).collect();
    let stage = Spelling { left, broken: Arc::clone(&broken), gauges: Arc::clone(&gauges) };
    let model = Model {
        tokenizer,
        log_mel: LogMel::new(&LogMelConfig::default(), 100).unwrap(),
        encoder: Box::new(Deaf),
        prompt: Box::new(LastText(poison)),
        stages: vec![Box::new(stage)],
        codec: Codec { sample_rate: RATE, frame: FRAME },
        voices: vec!["only".to_owned()],
        slots: Slots { sessions: slots, out_of_band: 0, context: 1000 },
        max_tokens: 1000,
    };
    (drive_with(model, config, Arc::clone(&gauges)), broken, gauges)
}

/// Submits a text and requests a response to it.
pub fn ask(session: &SessionHandle, number: u64, text: &str, audio: bool) {
    submit(session, Command::text(2 * number, Role::User, text));
    submit(session, Command::Respond(Respond { audio, ..Respond::new(number, 2 * number + 1) }));
}
