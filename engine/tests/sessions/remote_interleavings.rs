//! Random interleavings of several sessions with a language model outside of the engine: each response ends once, with
//! its own text alone, and nothing is left.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use repartee_engine_api::{
    Command, Event, FinishReason, RemoteAnswer, RemoteEnd, RemoteEvent, RemoteFailure, RemoteFailureKind,
    RemoteMessage, RemoteRequest, RemoteThinker, Respond, Role, SessionError, SessionHandle, WakeSignal,
};
use repartee_engine_testkit::driven::{Driven, drive, submit};
use repartee_engine_testkit::generic::config;
use repartee_engine_testkit::property;
use repartee_engine_testkit::remote_family::model;

/// Number of concurrent sessions.
const CALLERS: usize = 3;
const SORRY: &str = "sorry";

/// One action: its kind, its session, and a number that each kind interprets.
type Step = (u8, u8, u8);

/// Answers by the question that they answer, with their events; `None` once an answer was dropped.
type Answers = Arc<Mutex<BTreeMap<String, Option<VecDeque<RemoteEvent>>>>>;

#[derive(Debug, Default)]
struct TaggedThinker(Answers);

impl RemoteThinker for TaggedThinker {
    fn ask(&self, request: RemoteRequest, _: WakeSignal) -> Box<dyn RemoteAnswer> {
        let Some(RemoteMessage::User(question)) = request.messages.last() else { panic!("{request:?}") };
        assert!(self.0.lock().unwrap().insert(question.clone(), Some(VecDeque::new())).is_none(), "asked twice");
        Box::new(TaggedAnswer(question.clone(), self.0.clone()))
    }
}

struct TaggedAnswer(String, Answers);

impl RemoteAnswer for TaggedAnswer {
    fn poll(&mut self) -> Option<RemoteEvent> {
        self.1.lock().unwrap().get_mut(&self.0)?.as_mut()?.pop_front()
    }
}

impl Drop for TaggedAnswer {
    fn drop(&mut self) {
        self.1.lock().unwrap().insert(self.0.clone(), None);
    }
}

/// One session, with its responses by id.
struct Caller {
    session: SessionHandle,
    /// Unfinished responses, with their questions and texts so far.
    open: BTreeMap<u64, (String, String)>,
}

struct Run {
    engine: Driven,
    answers: Answers,
    callers: Vec<Caller>,
    voice: bool,
    number: u64,
}

impl Run {
    fn new(voice: bool) -> Self {
        let answers = Answers::default();
        let config = config();
        let model = model(Arc::new(TaggedThinker(answers.clone())), Some(SORRY), voice, &config);
        let engine = drive(model, &config);
        let callers = (0..CALLERS).map(|_| Caller { session: engine.open(), open: BTreeMap::new() }).collect();
        Self { engine, answers, callers, voice, number: 0 }
    }

    fn step(&mut self, (action, who, detail): Step) {
        let who = usize::from(who) % CALLERS;
        let number = self.number;
        let caller = &mut self.callers[who];
        match action % 10 {
            // A question has the number of its response; each tag ends, so that none is the prefix of another.
            0 | 1 if caller.open.len() < 4 => {
                self.number += 1;
                let question = format!("q{number};");
                submit(&caller.session, Command::text(2 * number, Role::User, question.clone()));
                let audio = self.voice && detail % 4 != 0;
                submit(&caller.session, Command::Respond(Respond { audio, ..Respond::new(number, 2 * number + 1) }));
                caller.open.insert(number, (question, String::new()));
                // A later question must not come before this one's prompt was built.
                self.tick(1);
            }
            2..=5 => {
                let mut answers = self.answers.lock().unwrap();
                let open = answers.iter_mut().filter_map(|(question, events)| Some((question, events.as_mut()?)));
                let mut open: Vec<_> = open.filter(|(_, events)| !events.iter().any(is_end)).collect();
                if open.is_empty() {
                    return;
                }
                let at = usize::from(detail) % open.len();
                let (question, events) = &mut open[at];
                events.push_back(match action % 10 {
                    2 | 3 => RemoteEvent::Text(format!("{question} ")),
                    4 if detail % 3 == 0 => RemoteEvent::Progress,
                    4 => RemoteEvent::Call { name: "f".to_owned(), arguments: format!("\"{question}\"") },
                    _ => ending(detail),
                });
            }
            6 => {
                if let Some(&response) = caller.open.keys().next() {
                    submit(&caller.session, Command::Cancel { response });
                }
            }
            7 if detail % 4 == 0 => {
                caller.open.clear();
                caller.session = self.engine.open();
                // The old session's slot is free after a tick.
                self.tick(1);
            }
            8 => self.engine.time.pass(Duration::from_millis(u64::from(detail))),
            _ => {}
        }
        self.tick(usize::from(detail % 5));
    }

    fn tick(&mut self, ticks: usize) {
        for _ in 0..ticks {
            self.engine.ticks(1);
            for caller in &mut self.callers {
                while let Some(event) = caller.session.try_next_event() {
                    caller.take(event);
                }
            }
        }
    }

    /// Ends every answer, and waits for all responses.
    fn finish(mut self) {
        for _ in 0..2_000 {
            if self.callers.iter().all(|caller| caller.open.is_empty()) {
                break;
            }
            for events in self.answers.lock().unwrap().values_mut().flatten() {
                if !events.iter().any(is_end) {
                    events.push_back(ending(0));
                }
            }
            self.tick(1);
        }
        let open: Vec<_> = self.callers.iter().flat_map(|caller| caller.open.keys()).collect();
        assert!(open.is_empty(), "responses {open:?} do not end");
        self.tick(50);
        self.callers.clear();
        assert_eq!(self.engine.left_behind(), (0, 0));
        assert!(self.answers.lock().unwrap().values().all(Option::is_none), "an answer outlives its response");
    }
}

fn is_end(event: &RemoteEvent) -> bool {
    matches!(event, RemoteEvent::Finished(_) | RemoteEvent::Failed(_))
}

fn ending(detail: u8) -> RemoteEvent {
    match detail % 3 {
        0 => RemoteEvent::Finished(RemoteEnd::Stop),
        1 => RemoteEvent::Finished(RemoteEnd::Length),
        _ => RemoteEvent::Failed(RemoteFailure { kind: RemoteFailureKind::Late, message: "late".to_owned() }),
    }
}

impl Caller {
    fn take(&mut self, event: Event) {
        match event {
            Event::Text { response, text } => {
                let (question, so_far) = self.open.get_mut(&response).expect("text of an open response");
                so_far.push_str(&text);
                let rest = so_far.replace(&format!("{question} "), "");
                let partial = rest.is_empty() || format!("{question} ").starts_with(&rest) || rest == SORRY;
                assert!(partial, "{so_far:?} answers {question:?}");
            }
            Event::ToolArguments { response, arguments, .. } => {
                assert_eq!(arguments, format!("\"{}\"", self.open[&response].0));
            }
            Event::Audio { response, .. } | Event::ToolCall { response, .. } => {
                assert!(self.open.contains_key(&response), "output of response {response} after its end");
            }
            Event::SegmentFinished { response, reason, .. } => {
                assert!(self.open.remove(&response).is_some(), "response {response} ends twice");
                assert!(matches!(reason, FinishReason::Stop | FinishReason::Length | FinishReason::Cancelled));
            }
            Event::Failed { response, error } => {
                assert!(matches!(error, SessionError::Thinker { .. }), "{error}");
                assert!(response.is_some_and(|response| self.open.remove(&response).is_some()), "a second end");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Runs `cases` random interleavings.
fn check(voice: bool, cases: u32) {
    let steps = prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 1..80);
    proptest::test_runner::TestRunner::new(property(cases, file!()))
        .run(&steps, |steps| {
            let mut run = Run::new(voice);
            steps.into_iter().for_each(|step| run.step(step));
            run.finish();
            Ok(())
        })
        .unwrap();
}

#[test]
fn written_responses_end_once_with_their_text() {
    check(false, 64);
}

#[test]
fn spoken_responses_end_once_with_their_text() {
    check(true, 24);
}
