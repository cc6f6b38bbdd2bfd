//! Panics outside of the stages' steps: a session at fault ends alone, a fault of the engine ends every session, and the loop
//! goes on.
#![allow(clippy::unwrap_used)] // A panic is a test's report.

#[allow(dead_code)] // Each test binary uses its part.
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use repartee_engine::EngineConfig;
use repartee_engine::internals::{
    AudioRows, CallMarks, Codec, EdgeKind, Element, End, Gauges, Item, Message, MessageKind, Model, Need, Outbox,
    RowKind, Script, Slots, Stage, Tokenizer, ToolTemplate, Value, Work,
};
use repartee_engine_api::{Command, Content, Event, InsertAt, Respond, Role, SessionError, SessionHandle, Tool};

use common::driven::{Driven, drive_with, submit};
use common::folder;

/// A text whose prompt panics.
const POISON: &str = "!";

/// What the tests break while the engine runs.
#[derive(Default)]
struct Broken {
    /// The stage panics when it is asked what it needs.
    need: AtomicBool,
    /// The stage panics when a slot is freed.
    free: AtomicBool,
    /// Whether the engine called itself ready while a slot was freed.
    ready_in_free: AtomicBool,
}

/// Emits the tokens of its prompt in reverse.
struct Spelling {
    left: Vec<Option<Vec<u32>>>,
    broken: Arc<Broken>,
    gauges: Arc<Gauges>,
}

impl Stage<()> for Spelling {
    fn name(&self) -> &'static str {
        "spelling"
    }
    fn accept(&mut self, slot: usize, item: Item<()>, out: &mut Outbox<()>) {
        let id = |element: &Element<()>| match element.value {
            Value::Token(id) => Some(id),
            _ => None,
        };
        match item {
            Item::Prompt { elements, response: Some(params), .. } => {
                self.left[slot] = Some(elements.iter().filter_map(id).collect());
                out.push((slot, Item::Begin(params)));
            }
            Item::Abort => {
                self.left[slot] = None;
                out.push((slot, Item::Abort));
            }
            _ => {}
        }
    }
    fn takes(&self) -> EdgeKind {
        EdgeKind::Prompt
    }
    fn gives(&self) -> EdgeKind {
        EdgeKind::Text
    }
    fn max_items(&self) -> usize {
        1
    }
    fn need(&self, slot: usize) -> Need {
        assert!(!self.broken.need.load(Ordering::Relaxed), "broken");
        Need::rows(usize::from(self.left[slot].is_some()), RowKind::Decode)
    }
    fn max_rows(&self) -> usize {
        1
    }
    fn step(&mut self, work: &[Work], out: &mut Outbox<()>) {
        for &Work { slot, .. } in work {
            match self.left[slot].as_mut().and_then(Vec::pop) {
                Some(id) => out.push((slot, Item::Token(id))),
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
        self.left[slot].as_ref().map_or(0, Vec::len)
    }
    fn blocks(&self) -> usize {
        self.left.iter().flatten().count()
    }
}

/// Renders the last text, but panics over the poisoned one.
struct LastText(u32, CallMarks);

impl Script<()> for LastText {
    fn render(&self, history: &[Message<()>], _: Option<&[Arc<AudioRows<()>>]>, _: bool) -> Vec<Element<()>> {
        let text = history.iter().rev().find(|message| message.kind == MessageKind::User);
        let ids = text.into_iter().flat_map(Message::token_ids);
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
    fn marks(&self) -> &CallMarks {
        &self.1
    }
}

/// An engine with `slots` slots, and what can be broken in it.
fn engine(slots: usize) -> (Driven<()>, Arc<Broken>, Arc<Gauges>) {
    let bytes = std::fs::read(folder("dense").join("checkpoint/tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_bytes(&bytes).unwrap();
    let poison = tokenizer.encode(POISON).unwrap()[0];
    let (broken, gauges) = (Arc::new(Broken::default()), Arc::new(Gauges::default()));
    let stage = Spelling { left: vec![None; slots], broken: Arc::clone(&broken), gauges: Arc::clone(&gauges) };
    let marks = CallMarks { open: (u32::MAX, String::new()), close: (u32::MAX, String::new()) };
    let model = Model {
        tokenizer,
        ears: None,
        script: Box::new(LastText(poison, marks)),
        stages: vec![Box::new(stage)],
        codec: Codec { sample_rate: 8000, frame_samples: (56, 1) },
        voices: Box::new(vec!["only".to_owned()]),
        slots: Slots { sessions: slots, out_of_band: 0, context: 1000 },
        max_tokens: 1000,
    };
    (drive_with(model, &EngineConfig::default(), Arc::clone(&gauges)), broken, gauges)
}

fn ask(session: &SessionHandle, number: u64, text: &str) {
    submit(session, Command::text(2 * number, Role::User, text));
    submit(session, Command::Respond(Respond::new(number, 2 * number + 1)));
}

/// What the session ended with, if it did.
fn last_error(session: &SessionHandle) -> Option<SessionError> {
    let events = std::iter::from_fn(|| session.try_next_event());
    let errors = events.filter_map(|event| match event {
        Event::Failed { error, .. } => Some(error),
        _ => None,
    });
    errors.last()
}

fn is_internal(error: Option<SessionError>, part: &str) -> bool {
    matches!(error, Some(SessionError::Internal { stage, .. }) if stage == part)
}

#[test]
fn a_panicking_prompt_ends_its_session_alone() {
    let (mut engine, _, _) = engine(3);
    let sessions: Vec<SessionHandle> = (0..3).map(|_| engine.open()).collect();
    for (session, text) in sessions.iter().zip(["abc", POISON, "def"]) {
        ask(session, 0, text);
    }
    engine.settle();
    assert!(is_internal(last_error(&sessions[1]), "session"));
    assert_eq!(sessions[1].next_event_blocking(), None, "the session goes on");
    for session in [&sessions[0], &sessions[2]] {
        assert_eq!(last_error(session), None);
        assert!(engine.respond(session, Respond::new(1, 9)).is_ok(), "a neighbour's panic reached it");
    }
    drop(sessions);
    assert_eq!(engine.left_behind(), (0, 0));
}

#[test]
fn a_panicking_command_ends_its_session_alone() {
    let (mut engine, _, gauges) = engine(2);
    let (broken, fine) = (engine.open(), engine.open());
    ask(&fine, 0, "abc");
    let content = Content::ToolCall { name: "find".to_owned(), arguments: "{}".to_owned() };
    engine.send(&broken, Command::Insert { item: 1, place: InsertAt::End, content });
    assert!(is_internal(last_error(&broken), "session"));
    assert_eq!(broken.next_event_blocking(), None, "the session goes on");
    assert_eq!(engine.listen(&fine, 0).unwrap().text, "cba");
    assert_eq!(gauges.open.load(Ordering::Relaxed), 1, "its slot is not free");
}

#[test]
fn a_panicking_engine_fails_all_and_restarts() {
    let (mut engine, broken, gauges) = engine(3);
    let sessions: Vec<SessionHandle> = (0..3).map(|_| engine.open()).collect();
    for session in &sessions {
        ask(session, 0, "abc");
    }
    engine.ticks(2);
    assert!(gauges.ready.load(Ordering::Relaxed));
    assert_eq!(gauges.open.load(Ordering::Relaxed), 3);
    broken.need.store(true, Ordering::Relaxed);
    engine.ticks(1);
    assert!(!gauges.ready.load(Ordering::Relaxed), "it is ready while it is broken");
    assert!(!broken.ready_in_free.load(Ordering::Relaxed), "it was ready while sessions were freed");
    for session in &sessions {
        assert!(is_internal(last_error(session), "engine"));
        assert_eq!(session.next_event_blocking(), None, "the session goes on");
    }
    assert_eq!(gauges.open.load(Ordering::Relaxed), 0);

    broken.need.store(false, Ordering::Relaxed);
    engine.ticks(1);
    assert!(gauges.ready.load(Ordering::Relaxed), "it is not ready again");
    assert_eq!(engine.left_behind(), (0, 0));
    let next: Vec<SessionHandle> = (0..3).map(|_| engine.open()).collect();
    for session in &next {
        ask(session, 0, "abc");
        assert_eq!(engine.listen(session, 0).unwrap().text, "cba");
    }
}

#[test]
fn slots_stay_free_when_freeing_panics() {
    let (mut engine, broken, gauges) = engine(1);
    for round in 0..3 {
        let session = engine.open();
        ask(&session, 0, "abc");
        engine.settle();
        broken.free.store(round < 2, Ordering::Relaxed);
        drop(session);
        engine.settle();
        assert_eq!(gauges.open.load(Ordering::Relaxed), 0, "round {round}");
    }
    assert_eq!(engine.left_behind(), (0, 0));
}
