//! Random interleavings of several sessions, compared with a serial run of each: one session alone, one command after another,
//! without speculation, cancellation or out-of-band responses.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

#[allow(dead_code)] // Each test binary uses its part.
mod common;

use std::collections::BTreeMap;

use proptest::prelude::*;
use repartee_engine::EngineConfig;
use repartee_engine::HandOff;
use repartee_engine_api::{
    Command, Content, Event, FinishReason, InsertAt, Respond, Role, Sampling, SessionError, SessionHandle,
};
use repartee_kernels::cpu::Tensor;

use common::driven::{Driven, Response, serve, submit};
use common::{Expected, folder, property};

/// Sessions at once.
const CALLERS: usize = 3;

/// One action: its kind, its session, and a number that each kind reads in its own way.
type Step = (u8, u8, u16);

/// One session and the script of its serial run.
struct Caller {
    session: SessionHandle,
    /// Commands of the serial run, in order.
    script: Vec<Command>,
    /// Out-of-band responses, each with the length of the script before it.
    out_of_band: Vec<(usize, Respond)>,
    responses: BTreeMap<u64, Response>,
    /// Responses that are not complete.
    open: Vec<u64>,
    /// Aborted and cancelled responses, whose events are ignored.
    void: Vec<u64>,
    items: Vec<u64>,
    /// Whether audio was appended and not committed.
    has_audio: bool,
    number: u64,
}

struct Run {
    engine: Driven<Tensor>,
    audio: Vec<f32>,
    callers: Vec<Caller>,
}

fn request(number: u64) -> Respond {
    let sampling = Sampling { temperature: 1.2, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
    Respond { seed: 3, max_tokens: Some(3), sampling: Some(sampling), ..Respond::new(number, 1000 + number) }
}

impl Run {
    fn caller(&mut self) -> Caller {
        Caller {
            session: self.engine.open(),
            script: Vec::new(),
            out_of_band: Vec::new(),
            responses: BTreeMap::new(),
            open: Vec::new(),
            void: Vec::new(),
            items: Vec::new(),
            has_audio: false,
            number: 0,
        }
    }

    /// Submits a command and adds it to the script.
    fn submit_scripted(&mut self, who: usize, command: Command) {
        submit(&self.callers[who].session, command.clone());
        self.callers[who].script.push(command);
    }

    fn tick(&mut self, ticks: usize) {
        self.engine.ticks(ticks);
        for caller in &mut self.callers {
            while let Some(event) = caller.session.try_next_event() {
                caller.take(event);
            }
        }
    }

    /// Ticks until a session has all its responses.
    fn drain(&mut self, who: usize) {
        for _ in 0..10_000 {
            if self.callers[who].open.is_empty() {
                return;
            }
            self.tick(1);
        }
        panic!("responses {:?} do not end", self.callers[who].open);
    }

    fn step(&mut self, (action, who, detail): Step) {
        let who = usize::from(who) % CALLERS;
        let detail = usize::from(detail);
        let number = self.callers[who].number;
        match action % 14 {
            0..=2 => {
                let from = detail % (self.audio.len() - 4000);
                let slice = self.audio[from..from + 200 + detail % 3800].to_vec();
                self.submit_scripted(who, Command::Append(slice));
                self.callers[who].has_audio = true;
            }
            3 if self.callers[who].has_audio => {
                self.submit_scripted(who, Command::Commit { item: number });
                self.callers[who].named(number);
                self.callers[who].has_audio = false;
            }
            4 => {
                let text = ["so", "and then", "what"][detail % 3].to_owned();
                let role = [Role::User, Role::Assistant, Role::System][detail % 3];
                let content = Content::Text { role, text };
                // In the middle of a history only while no response is pending: a response sees the history as it begins.
                let place = match self.callers[who].items.get(detail % 7).copied() {
                    Some(item) => {
                        self.drain(who);
                        // A response without words has left no item.
                        let response = item.checked_sub(1000).map(|number| self.callers[who].responses.get(&number));
                        let there =
                            response.is_none_or(|response| response.is_some_and(|response| !response.text.is_empty()));
                        if there { InsertAt::After(item) } else { InsertAt::End }
                    }
                    None => InsertAt::End,
                };
                self.submit_scripted(who, Command::Insert { item: number, place, content });
                self.callers[who].named(number);
            }
            5 if !self.callers[who].items.is_empty() => {
                self.drain(who);
                let at = detail % self.callers[who].items.len();
                let item = self.callers[who].items.remove(at);
                self.submit_scripted(who, Command::Delete { item });
            }
            6 if !self.callers[who].responses.is_empty() => {
                self.drain(who);
                let responses = &self.callers[who].responses;
                let (&id, response) = responses.iter().nth(detail % responses.len()).unwrap();
                let heard = response.text.chars().take(1 + detail % 3).collect();
                self.submit_scripted(who, Command::Truncate { item: 1000 + id, text: heard });
            }
            7 => {
                self.submit_scripted(who, Command::SetInstructions(["", "be brief", "be kind"][detail % 3].to_owned()))
            }
            8 | 9 => {
                self.submit_scripted(who, Command::Respond(request(number)));
                self.callers[who].asked(number);
                self.callers[who].items.push(1000 + number);
            }
            10 => {
                self.drain(who);
                let out_of_band = Respond { out_of_band: true, ..request(number) };
                submit(&self.callers[who].session, Command::Respond(out_of_band.clone()));
                let script = self.callers[who].script.len();
                self.callers[who].out_of_band.push((script, out_of_band));
                self.callers[who].asked(number);
                // Later commands must come after its prompt was built, as in the serial run.
                self.tick(1);
            }
            11 => {
                self.drain(who);
                submit(&self.callers[who].session, Command::Respond(request(number)));
                self.callers[who].number += 1;
                self.callers[who].void.push(number);
                self.tick(detail % 30);
                submit(&self.callers[who].session, Command::Cancel { response: number });
                submit(&self.callers[who].session, Command::Delete { item: 1000 + number });
            }
            12 if self.callers[who].has_audio => self.speculate(who, number, detail),
            13 if detail % 4 == 0 => {
                let fresh = self.caller();
                drop(std::mem::replace(&mut self.callers[who], fresh));
                self.tick(1);
            }
            _ => {}
        }
        self.tick(detail % 4);
    }

    /// Begins a speculation, then commits or aborts it.
    fn speculate(&mut self, who: usize, number: u64, detail: usize) {
        self.drain(who);
        self.tick(100);
        let response = request(number);
        submit(&self.callers[who].session, Command::BeginSpeculation { item: 500 + number, respond: response.clone() });
        self.callers[who].number += 1;
        self.callers[who].open.push(number);
        self.tick(detail % 40);
        let more = self.audio[..100 + detail % 900].to_vec();
        let goes_on = !detail.is_multiple_of(3);
        if goes_on {
            submit(&self.callers[who].session, Command::Append(more.clone()));
            self.tick(detail % 5);
        }
        if detail.is_multiple_of(2) {
            submit(&self.callers[who].session, Command::CommitSpeculation { response: number });
            let script = &mut self.callers[who].script;
            script.extend([Command::Commit { item: 500 + number }, Command::Respond(response)]);
            self.callers[who].named(500 + number);
            self.callers[who].items.push(1000 + number);
            self.callers[who].has_audio = goes_on;
        } else {
            submit(&self.callers[who].session, Command::AbortSpeculation { response: number });
            self.callers[who].open.retain(|&open| open != number);
            self.callers[who].responses.remove(&number);
            self.callers[who].void.push(number);
        }
        if goes_on {
            self.callers[who].script.push(Command::Append(more));
        }
    }
}

impl Caller {
    fn named(&mut self, item: u64) {
        self.items.push(item);
        self.number += 1;
    }

    fn asked(&mut self, number: u64) {
        self.open.push(number);
        self.number += 1;
    }

    fn take(&mut self, event: Event) {
        let number = match &event {
            Event::Text { response, .. } | Event::Audio { response, .. } | Event::SegmentFinished { response, .. } => {
                *response
            }
            // The commands of this test are never refused.
            other => panic!("{other:?}"),
        };
        if self.void.contains(&number) {
            return;
        }
        if self.responses.entry(number).or_default().take(number, event).unwrap() {
            self.open.retain(|&open| open != number);
        }
    }
}

/// The serial run of a script.
fn serial(folder: &std::path::Path, script: &[Command], last: Option<&Respond>) -> BTreeMap<u64, Response> {
    let config =
        EngineConfig { sessions: 1, out_of_band: 0, batch: false, session_tokens: 2048, ..EngineConfig::default() };
    let mut engine = serve(folder, &config);
    let session = engine.open();
    let mut responses = BTreeMap::new();
    for command in script {
        submit(&session, command.clone());
        if let Command::Respond(request) = command {
            responses.insert(request.response, engine.listen(&session, request.response).unwrap());
        }
        engine.settle();
    }
    if let Some(request) = last {
        submit(&session, Command::Respond(Respond { out_of_band: false, ..request.clone() }));
        responses.insert(request.response, engine.listen(&session, request.response).unwrap());
    }
    responses
}

fn check(config: &EngineConfig, steps: &[Step]) -> Result<(), TestCaseError> {
    let folder = folder("dense").join("checkpoint");
    let audio = Expected::load("dense").tensor("turn1.audio").0;
    let mut run = Run { engine: serve(&folder, config), audio, callers: Vec::new() };
    for _ in 0..CALLERS {
        let caller = run.caller();
        run.callers.push(caller);
    }
    for &step in steps {
        run.step(step);
    }
    for who in 0..CALLERS {
        run.drain(who);
    }
    for caller in &run.callers {
        let mut expected = serial(&folder, &caller.script, None);
        for (before, request) in &caller.out_of_band {
            let with = serial(&folder, &caller.script[..*before], Some(request));
            expected.insert(request.response, with[&request.response].clone());
        }
        prop_assert_eq!(caller.responses.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (number, response) in &caller.responses {
            let expected = &expected[number];
            prop_assert_eq!(&response.text, &expected.text, "response {} of {:?}", number, caller.script.len());
            prop_assert!(
                response.output() == expected.output(),
                "response {}: other samples, or another prompt",
                number
            );
        }
    }
    run.callers.clear();
    prop_assert_eq!(run.engine.left_behind(), (0, 0));
    Ok(())
}

fn cases(cases: u32, mode: impl Fn() -> EngineConfig) {
    let steps = prop::collection::vec((any::<u8>(), any::<u8>(), any::<u16>()), 1..60);
    let config = ProptestConfig { max_shrink_iters: 2000, ..property(cases, file!()) };
    proptest::test_runner::TestRunner::new(config).run(&steps, |steps| check(&mode(), &steps)).unwrap();
}

fn mode(batch: bool, hand_off: HandOff) -> EngineConfig {
    EngineConfig {
        sessions: CALLERS + 1,
        out_of_band: 4,
        session_tokens: 2048,
        batch,
        hand_off,
        ..EngineConfig::default()
    }
}

#[test]
fn speech_ending_early_keeps_the_whole_text() {
    // The talker stops early here, while the thinker has two more tokens to write.
    let steps = [(0, 0, 11400), (0, 0, 15280), (7, 0, 37594), (3, 0, 0), (8, 0, 0)];
    for hand_off in [HandOff::FullPayload, HandOff::AsyncChunk] {
        check(&mode(true, hand_off), &steps).unwrap();
    }
}

#[test]
fn interleavings_equal_serial_runs_in_batches() {
    cases(200, || mode(true, HandOff::AsyncChunk));
}

#[test]
fn interleavings_equal_serial_runs_with_full_payload() {
    cases(50, || mode(true, HandOff::FullPayload));
}

#[test]
fn interleavings_equal_serial_runs_without_batches() {
    cases(50, || mode(false, HandOff::AsyncChunk));
}

#[test]
#[ignore = "minutes: make test-long"]
fn many_interleavings_equal_serial_runs() {
    for batch in [true, false] {
        for hand_off in [HandOff::AsyncChunk, HandOff::FullPayload] {
            cases(250, || mode(batch, hand_off));
        }
    }
}

#[test]
fn non_finite_audio_ends_its_own_session_only() {
    let folder = folder("dense").join("checkpoint");
    let audio = Expected::load("dense").tensor("turn1.audio").0;
    let mut engine = serve(&folder, &mode(true, HandOff::AsyncChunk));
    let (broken, fine) = (engine.open(), engine.open());
    let mut poisoned = audio.clone();
    // Its power is beyond what single precision holds.
    poisoned[1000] = 1e30;
    for (session, audio) in [(&broken, poisoned), (&fine, audio.clone())] {
        submit(session, Command::Append(audio));
        submit(session, Command::Commit { item: 0 });
        submit(session, Command::Respond(request(0)));
    }
    let response = engine.listen(&fine, 0).unwrap();
    let error = engine.listen(&broken, 0).map(|response| response.text).unwrap_err();
    assert_eq!(error, SessionError::NotFinite { stage: "thinker" });
    drop((broken, fine));
    assert_eq!(engine.left_behind(), (0, 0));
    let alone = engine.open();
    submit(&alone, Command::Append(audio));
    submit(&alone, Command::Commit { item: 0 });
    assert!(engine.respond(&alone, request(0)).unwrap().output() == response.output());
    assert_ne!(response.reason, Some(FinishReason::Cancelled));
}
