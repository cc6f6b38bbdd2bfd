//! A family of two small stages, run by the real scheduler.
//!
//! "Spelling" emits the tokens of its prompt in reverse; "beeping" turns each into three samples.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use repartee_engine::EngineConfig;
use repartee_engine::Timeouts;
use repartee_engine::internals::{
    AudioRows, BatchEntry, Codec, EdgeKind, Element, ElementValue, Gauges, Message, MessagePart, Model, Outbox,
    PromptTemplate, RowKind, RunnableRows, Scheduler, SlotCounts, Stage, StageEnd, StageItem, Tokenizer,
};
use repartee_engine_api::{Command, Event, FinishReason, Respond, Role, SessionError, SessionHandle, WakeSignal, link};

use repartee_engine_testkit::driven::{drive, drive_with};
use repartee_engine_testkit::folder;

/// Number of samples of a token.
const BEEP: usize = 3;
/// Token at which a stage fails.
const POISON: &str = "!";

/// Fault of a stage at [`POISON`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Poison {
    /// The first stage panics in its step.
    #[default]
    Step,
    /// The second stage panics in its step.
    Later,
    /// The second stage panics when it accepts the token.
    Accept,
    /// The first stage makes no progress.
    Silent,
}

#[derive(Default)]
struct Spelling {
    prompts: Vec<Vec<u32>>,
    left: Vec<Option<Vec<u32>>>,
    poison: u32,
    at: Poison,
}

impl Stage for Spelling {
    fn name(&self) -> &'static str {
        "spelling"
    }
    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Prompt { elements, response, .. } => {
                let id = |element: &Element| match element.value {
                    ElementValue::Token(id) => Some(id),
                    _ => None,
                };
                self.prompts[slot] = elements.iter().filter_map(id).collect();
                if let Some(params) = response {
                    self.left[slot] = Some(self.prompts[slot].clone());
                    out.push((slot, StageItem::Begin(params)));
                }
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
        EdgeKind::Text
    }
    fn max_items(&self) -> usize {
        1
    }
    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        let stuck = |left: &Vec<u32>| self.at == Poison::Silent && left.last() == Some(&self.poison);
        let rows = usize::from(self.left[slot].as_ref().is_some_and(|left| !stuck(left)));
        RunnableRows::rows(rows, RowKind::Decode)
    }
    fn max_rows(&self) -> usize {
        1
    }
    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for &BatchEntry { slot, .. } in work {
            match self.left[slot].as_mut().and_then(Vec::pop) {
                Some(id) if id == self.poison && self.at == Poison::Step => panic!("poison"),
                Some(id) => out.push((slot, StageItem::Token(id))),
                None => {
                    self.left[slot] = None;
                    out.push((slot, StageItem::End(StageEnd::Stop)));
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
    ends: Vec<Option<StageEnd>>,
    poison: u32,
    at: Poison,
}

impl Stage for Beeping {
    fn name(&self) -> &'static str {
        "beeping"
    }
    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Token(id) if id == self.poison && self.at == Poison::Accept => panic!("poison"),
            StageItem::Token(id) => self.queues[slot].push_back(id),
            StageItem::End(end) if self.queues[slot].is_empty() => out.push((slot, StageItem::End(end))),
            StageItem::End(end) => self.ends[slot] = Some(end),
            StageItem::Begin(_) | StageItem::Abort => {
                self.free(slot);
                out.push((slot, item));
            }
            _ => {}
        }
    }
    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }
    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Samples
    }
    fn max_items(&self) -> usize {
        2
    }
    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        RunnableRows::rows(self.queues[slot].len(), RowKind::Window)
    }
    fn max_rows(&self) -> usize {
        2
    }
    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for &BatchEntry { slot, rows } in work {
            for id in self.queues[slot].drain(..rows) {
                assert!(id != self.poison || self.at != Poison::Later, "poison");
                out.push((slot, StageItem::Samples(vec![id as f32; BEEP])));
            }
            if self.queues[slot].is_empty()
                && let Some(end) = self.ends[slot].take()
            {
                out.push((slot, StageItem::End(end)));
            }
        }
    }
    fn free(&mut self, slot: usize) {
        self.queues[slot].clear();
        self.ends[slot] = None;
    }
}

/// A template that renders only the last message.
struct LastMessage;

impl PromptTemplate for LastMessage {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, _: bool) -> Vec<Element> {
        match history.last().map(|message| &message.parts[..]) {
            Some([MessagePart::Text(ids)]) => ids.iter().map(|&id| Element::token(Role::User, id)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Builds a model of this family with `slots` slots.
fn model(slots: usize, at: Poison) -> (Tokenizer, Model) {
    let bytes = std::fs::read(folder("dense").join("checkpoint/tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_bytes(&bytes).unwrap();
    let poison = tokenizer.encode(POISON).unwrap()[0];
    let model = Model {
        tokenizer: tokenizer.clone(),
        hearing: None,
        template: Box::new(LastMessage),
        stages: vec![
            Box::new(Spelling { prompts: vec![Vec::new(); slots], left: vec![None; slots], poison, at }),
            Box::new(Beeping { queues: vec![VecDeque::new(); slots], ends: vec![None; slots], poison, at }),
        ],
        codec: Some(Codec { sample_rate: 8000, frame_samples: (56, 1) }),
        voices: Box::new(vec!["only".to_owned()]),
        slots: SlotCounts { sessions: slots, out_of_band: 0, context: 1000 },
        max_tokens: 1000,
        answer_tokens: 1000,
        pool: None,
    };
    (tokenizer, model)
}

/// Starts an engine of this family and opens all its `slots` sessions.
fn serve(slots: usize) -> (Tokenizer, Vec<SessionHandle>, std::thread::JoinHandle<()>) {
    let (tokenizer, model) = model(slots, Poison::default());
    let (arrivals, arriving) = flume::bounded(slots);
    let (wake, woken) = WakeSignal::new();
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
        // Kept while the thread runs: the loop ends when the sender is dropped.
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

fn read_response(session: &SessionHandle) -> Result<(String, Vec<f32>), SessionError> {
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
fn another_family_runs_on_the_same_scheduler() {
    let (tokenizer, sessions, _thread) = serve(3);
    for (number, session) in sessions.iter().enumerate() {
        ask(session, 0, &format!("w{number}xyz"));
    }
    for (number, session) in sessions.iter().enumerate() {
        let mut ids = tokenizer.encode(&format!("w{number}xyz")).unwrap();
        ids.reverse();
        let (text, samples) = read_response(session).unwrap();
        assert_eq!(text, tokenizer.decode(&ids));
        let beeps: Vec<f32> = ids.iter().flat_map(|&id| [id as f32; BEEP]).collect();
        assert_eq!(samples, beeps);
    }
}

#[test]
fn work_of_each_stage_is_counted() {
    let (_, model) = model(2, Poison::default());
    let gauges = Arc::new(Gauges::default());
    let mut engine = drive_with(model, &EngineConfig::default(), gauges.clone());
    let sessions = [engine.open(), engine.open()];
    for session in &sessions {
        ask(session, 0, "w0xyz");
    }
    engine.settle();
    for session in &sessions {
        read_response(session).unwrap();
    }
    let work = gauges.work();
    assert_eq!(work.iter().map(|work| work.stage).collect::<Vec<_>>(), ["encoder", "spelling", "beeping"]);
    assert_eq!((work[0].steps, work[0].rows), (0, 0), "nothing was heard");
    for stage in &work[1..] {
        assert!(stage.steps > 0 && stage.rows > stage.steps, "two responses share steps: {stage:?}");
    }
}

/// Text and samples of a response.
type Spoken = (String, Vec<f32>);

/// Requests a response in each session, a poisoned one in the third; returns the results and the expected ones.
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
    let responses = sessions.iter().map(read_response).collect();
    drop(sessions);
    assert_eq!(engine.left_behind(), (0, 0));
    (responses, expected)
}

#[test]
fn a_panic_ends_only_its_own_session() {
    for (at, stage) in [(Poison::Step, "spelling"), (Poison::Later, "beeping"), (Poison::Accept, "beeping")] {
        let (responses, expected) = poisoned(at);
        for (number, (response, expected)) in responses.into_iter().zip(expected).enumerate() {
            if number == 2 {
                let error = response.unwrap_err();
                assert!(matches!(&error, SessionError::Internal { stage: at, .. } if *at == stage), "{error}");
                continue;
            }
            assert_eq!(response.unwrap(), expected, "a neighbour's panic changed the output of session {number}");
        }
    }
}

#[test]
fn a_session_is_over_after_a_panic() {
    let (_, sessions, _thread) = serve(2);
    ask(&sessions[0], 0, &format!("abc{POISON}def"));
    let error = read_response(&sessions[0]).unwrap_err();
    assert!(matches!(&error, SessionError::Internal { stage: "spelling", .. }), "{error}");
    assert!(sessions[0].next_event_blocking().is_none(), "a session goes on after a fatal error");
    ask(&sessions[1], 0, "abc");
    assert!(read_response(&sessions[1]).is_ok());
}

#[test]
fn a_stuck_stage_times_out() {
    let (_, model) = model(2, Poison::Silent);
    let timeouts = Timeouts { stage_s: 9, ..Timeouts::default() };
    let mut engine = drive(model, &EngineConfig { timeouts, ..EngineConfig::default() });
    let (stuck, fine) = (engine.open(), engine.open());
    ask(&stuck, 0, &format!("abc{POISON}def"));
    engine.settle();
    engine.time.pass(Duration::from_secs(8));
    ask(&fine, 0, "abc");
    engine.settle();
    assert!(read_response(&fine).is_ok());
    engine.time.pass(Duration::from_secs(1));
    engine.settle();
    let error = SessionError::TimedOut { what: "the next step of a response", limit_s: 9 };
    assert_eq!(read_response(&stuck), Err(error));
    drop((stuck, fine));
    assert_eq!(engine.left_behind(), (0, 0));
}
