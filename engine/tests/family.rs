//! A family of two stages that has nothing in common with the real ones, driven by the real scheduler: it sees only
//! stages, so it serves this one too.
//!
//! "Spelling" answers with the letters of what it was told, in reverse, and "beeping" turns each into three samples.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

#[allow(dead_code)] // Each test binary uses its part.
mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use repartee_engine::EngineConfig;
use repartee_engine::audio::log_mel::{LogMel, LogMelConfig};
use repartee_engine::config::Waits;
use repartee_engine::scheduler::{Gauges, Scheduler};
use repartee_engine::stage::{
    AudioRows, Codec, Element, Encoder, End, Item, Lanes, MelInput, Message, Model, Outbox, Prompt, Stage, Work,
};
use repartee_engine::text::Tokenizer;
use repartee_engine_api::{Command, Event, FinishReason, Respond, Role, SessionError, SessionHandle, Wake, link};

use common::driven::drive;
use common::folder;

/// Samples that a letter becomes.
const BEEP: usize = 3;
/// A token at which the test's stages misbehave.
const POISON: &str = "!";

/// What a stage does at the poisonous token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Poison {
    /// The first stage panics in its step.
    #[default]
    Step,
    /// The second stage does.
    Later,
    /// The second stage panics as soon as it is handed over.
    Accept,
    /// The first stage never goes on.
    Silent,
}

#[derive(Default)]
struct Spelling {
    prompts: Vec<Vec<u32>>,
    left: Vec<Option<Vec<u32>>>,
    poison: u32,
    at: Poison,
}

impl Stage<()> for Spelling {
    fn name(&self) -> &'static str {
        "spelling"
    }
    fn accept(&mut self, slot: usize, item: Item<()>, out: &mut Outbox<()>) {
        match item {
            Item::Prompt { elements, answer } => {
                let id = |element: &Element<()>| match element {
                    Element::Token { id, .. } => Some(*id),
                    Element::Audio { .. } => None,
                };
                self.prompts[slot] = elements.iter().filter_map(id).collect();
                if let Some(answer) = answer {
                    self.left[slot] = Some(self.prompts[slot].clone());
                    out.push((slot, Item::Begin(answer)));
                }
            }
            Item::Abort => {
                self.left[slot] = None;
                out.push((slot, Item::Abort));
            }
            _ => {}
        }
    }
    fn ready(&self, slot: usize) -> usize {
        let stuck = |left: &Vec<u32>| self.at == Poison::Silent && left.last() == Some(&self.poison);
        usize::from(self.left[slot].as_ref().is_some_and(|left| !stuck(left)))
    }
    fn max_rows(&self) -> usize {
        1
    }
    fn step(&mut self, work: &[Work], out: &mut Outbox<()>) {
        for &Work { slot, .. } in work {
            match self.left[slot].as_mut().and_then(Vec::pop) {
                Some(id) if id == self.poison && self.at == Poison::Step => panic!("poison"),
                Some(id) => out.push((slot, Item::Token(id))),
                None => {
                    self.left[slot] = None;
                    out.push((slot, Item::End(End::Stop)));
                }
            }
        }
    }
    fn free(&mut self, slot: usize) {
        self.left[slot] = None;
        self.prompts[slot].clear();
    }
    fn held(&self, slot: usize) -> usize {
        self.prompts[slot].len()
    }
}

#[derive(Default)]
struct Beeping {
    queues: Vec<VecDeque<u32>>,
    ends: Vec<Option<End>>,
    poison: u32,
    at: Poison,
}

impl Stage<()> for Beeping {
    fn name(&self) -> &'static str {
        "beeping"
    }
    fn accept(&mut self, slot: usize, item: Item<()>, out: &mut Outbox<()>) {
        match item {
            Item::Token(id) if id == self.poison && self.at == Poison::Accept => panic!("poison"),
            Item::Token(id) => self.queues[slot].push_back(id),
            Item::End(end) if self.queues[slot].is_empty() => out.push((slot, Item::End(end))),
            Item::End(end) => self.ends[slot] = Some(end),
            Item::Begin(_) | Item::Abort => {
                self.free(slot);
                out.push((slot, item));
            }
            _ => {}
        }
    }
    fn ready(&self, slot: usize) -> usize {
        self.queues[slot].len()
    }
    fn max_rows(&self) -> usize {
        2
    }
    fn step(&mut self, work: &[Work], out: &mut Outbox<()>) {
        for &Work { slot, rows } in work {
            for id in self.queues[slot].drain(..rows) {
                assert!(id != self.poison || self.at != Poison::Later, "poison");
                out.push((slot, Item::Samples(vec![id as f32; BEEP])));
            }
            if self.queues[slot].is_empty()
                && let Some(end) = self.ends[slot].take()
            {
                out.push((slot, Item::End(end)));
            }
        }
    }
    fn free(&mut self, slot: usize) {
        self.queues[slot].clear();
        self.ends[slot] = None;
    }
    fn held(&self, _: usize) -> usize {
        0
    }
}

struct Deaf;

impl Encoder<()> for Deaf {
    fn encode(&mut self, windows: &[MelInput<'_>]) -> Vec<AudioRows<()>> {
        windows.iter().map(|_| AudioRows { rows: (), count: 0 }).collect()
    }
}

/// The last message and nothing else.
struct LastMessage;

impl Prompt<()> for LastMessage {
    fn render(&self, history: &[Message<()>], _: Option<&[Arc<AudioRows<()>>]>, _: bool) -> Vec<Element<()>> {
        match history.last() {
            Some(Message::UserText(ids)) => ids.iter().map(|&id| Element::Token { id, user: true }).collect(),
            _ => Vec::new(),
        }
    }
}

/// A model of this family with room for `slots` sessions.
fn model(slots: usize, at: Poison) -> (Tokenizer, Model<()>) {
    let bytes = std::fs::read(folder("dense").join("checkpoint/tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_bytes(&bytes).unwrap();
    let poison = tokenizer.encode(POISON).unwrap()[0];
    let model = Model {
        tokenizer: tokenizer.clone(),
        log_mel: LogMel::new(&LogMelConfig::default(), 100).unwrap(),
        encoder: Box::new(Deaf),
        prompt: Box::new(LastMessage),
        stages: vec![
            Box::new(Spelling { prompts: vec![Vec::new(); slots], left: vec![None; slots], poison, at }),
            Box::new(Beeping { queues: vec![VecDeque::new(); slots], ends: vec![None; slots], poison, at }),
        ],
        codec: Codec { sample_rate: 8000, frame: Duration::from_millis(7) },
        voices: vec!["only".to_owned()],
        lanes: Lanes { sessions: slots, beside: 0, context: 1000 },
        max_tokens: 1000,
    };
    (tokenizer, model)
}

/// A running engine of this family with room for `slots` sessions, and those sessions.
fn serve(slots: usize) -> (Tokenizer, Vec<SessionHandle>, std::thread::JoinHandle<()>) {
    let (tokenizer, model) = model(slots, Poison::default());
    let (arrivals, arriving) = flume::bounded(slots);
    let (wake, woken) = Wake::new();
    let gauges = Arc::new(Gauges::default());
    gauges.open.store(slots, Ordering::Relaxed);
    let sessions = (0..slots)
        .map(|_| {
            let (session, peer) = link(wake.clone());
            arrivals.send(peer).unwrap();
            session
        })
        .collect();
    let thread = std::thread::spawn(move || {
        // Held as long as the thread runs: without it the loop would end at once.
        let _arrivals = arrivals;
        Scheduler::new(model, &EngineConfig::default(), arriving, gauges).run(&woken);
    });
    (tokenizer, sessions, thread)
}

fn ask(session: &SessionHandle, number: u64, text: &str) {
    let message = Command::text(2 * number, Role::User, text);
    session.submit_blocking(message).unwrap();
    session.submit_blocking(Command::Respond(Respond::new(number, 2 * number + 1))).unwrap();
}

fn answer(session: &SessionHandle) -> Result<(String, Vec<f32>), SessionError> {
    let (mut text, mut samples) = (String::new(), Vec::new());
    loop {
        match session.next_event_blocking().unwrap() {
            Event::Text { text: more, .. } => text += &more,
            Event::Audio { samples: more, .. } => samples.extend(more),
            Event::SegmentFinished { reason, .. } => {
                assert_eq!(reason, FinishReason::Stop);
                return Ok((text, samples));
            }
            Event::Failed { error, .. } => return Err(error),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn two_stages_of_another_kind_are_served_by_the_same_scheduler() {
    let (tokenizer, sessions, _thread) = serve(3);
    for (number, session) in sessions.iter().enumerate() {
        ask(session, 0, &format!("w{number}xyz"));
    }
    for (number, session) in sessions.iter().enumerate() {
        let mut ids = tokenizer.encode(&format!("w{number}xyz")).unwrap();
        ids.reverse();
        let (text, samples) = answer(session).unwrap();
        assert_eq!(text, tokenizer.decode(&ids));
        let beeps: Vec<f32> = ids.iter().flat_map(|&id| [id as f32; BEEP]).collect();
        assert_eq!(samples, beeps);
    }
}

/// Text and samples.
type Spoken = (String, Vec<f32>);

/// Asks everybody for something, and somebody in their midst for poison; what each got, and what it should have got.
fn poisoned(at: Poison) -> (Vec<Result<Spoken, SessionError>>, Vec<Spoken>) {
    const CALLERS: usize = 5;
    let (tokenizer, model) = model(CALLERS, at);
    let mut engine = drive(model, &EngineConfig::default());
    let sessions: Vec<SessionHandle> = (0..CALLERS).map(|_| engine.open()).collect();
    let mut expected = Vec::new();
    for (number, session) in sessions.iter().enumerate() {
        let text = if number == 2 { format!("abc{POISON}defghijkl") } else { format!("w{number}xyz and more") };
        ask(session, 0, &text);
        let mut ids = tokenizer.encode(&text).unwrap();
        ids.reverse();
        let beeps = ids.iter().flat_map(|&id| [id as f32; BEEP]).collect();
        expected.push((tokenizer.decode(&ids), beeps));
    }
    engine.settle();
    let answers = sessions.iter().map(answer).collect();
    drop(sessions);
    assert_eq!(engine.left_behind(), (0, 0));
    (answers, expected)
}

#[test]
fn a_panic_ends_the_session_at_fault_and_no_other_answer_misses_a_sound() {
    for (at, stage) in [(Poison::Step, "spelling"), (Poison::Later, "beeping"), (Poison::Accept, "beeping")] {
        let (answers, expected) = poisoned(at);
        for (number, (answer, expected)) in answers.into_iter().zip(expected).enumerate() {
            if number == 2 {
                let error = answer.unwrap_err();
                assert!(matches!(&error, SessionError::Internal { stage: at, .. } if *at == stage), "{error}");
                continue;
            }
            assert_eq!(
                answer.unwrap(),
                expected,
                "a neighbour's panic cost caller {number} something, or said it twice"
            );
        }
    }
}

#[test]
fn a_session_that_ended_by_a_panic_is_over_and_new_ones_are_welcome() {
    let (_, sessions, _thread) = serve(2);
    ask(&sessions[0], 0, &format!("abc{POISON}def"));
    let error = answer(&sessions[0]).unwrap_err();
    assert!(matches!(&error, SessionError::Internal { stage: "spelling", .. }), "{error}");
    assert!(sessions[0].next_event_blocking().is_none(), "a session goes on after a fatal error");
    ask(&sessions[1], 0, "abc");
    assert!(answer(&sessions[1]).is_ok());
}

#[test]
fn a_stage_that_waits_for_input_in_vain_ends_with_an_error() {
    let (_, model) = model(2, Poison::Silent);
    let waits = Waits { stage_s: 9, ..Waits::default() };
    let mut engine = drive(model, &EngineConfig { waits, ..EngineConfig::default() });
    let (stuck, fine) = (engine.open(), engine.open());
    ask(&stuck, 0, &format!("abc{POISON}def"));
    engine.settle();
    engine.time.pass(Duration::from_secs(8));
    ask(&fine, 0, "abc");
    engine.settle();
    assert!(answer(&fine).is_ok());
    engine.time.pass(Duration::from_secs(1));
    engine.settle();
    let error = SessionError::TimedOut { what: "the next step of an answer", limit_s: 9 };
    assert_eq!(answer(&stuck), Err(error));
    drop((stuck, fine));
    assert_eq!(engine.left_behind(), (0, 0));
}
