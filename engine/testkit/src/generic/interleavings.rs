//! Random interleavings of several sessions, compared with a serial run of each: one session alone, one command after
//! another, without speculation, cancellation or out-of-band responses.

use std::collections::BTreeMap;

use proptest::prelude::*;
use repartee_engine::{EngineConfig, HandOff};
use repartee_engine_api::{Command, Event, InsertAt, MessageContent, Respond, Role, Sampling, SessionHandle};

use super::{Bed, Subject, submit_all, whole};
use crate::driven::{Response, submit};
use crate::property;

/// Number of concurrent sessions.
const CALLERS: usize = 3;

/// One action: its kind, its session, and a number that each kind interprets.
pub type Step = (u8, u8, u16);

/// One session, and the commands of its serial run.
struct Caller {
    session: SessionHandle,
    /// Commands of the serial run, in order.
    script: Vec<Command>,
    /// Out-of-band responses, each with the length of the script before it.
    out_of_band: Vec<(usize, Respond)>,
    responses: BTreeMap<u64, Response>,
    /// Ids of incomplete responses.
    open: Vec<u64>,
    /// Aborted and cancelled responses, whose events are ignored.
    void: Vec<u64>,
    items: Vec<u64>,
    /// True if audio was appended and not committed.
    has_audio: bool,
    number: u64,
}

struct Run<'a, S: Subject> {
    bed: Bed<'a, S>,
    audio: Option<Vec<f32>>,
    callers: Vec<Caller>,
}

fn request(number: u64) -> Respond {
    let sampling = Sampling { temperature: 1.2, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
    Respond { seed: 3, max_tokens: Some(3), sampling: Some(sampling), ..Respond::new(number, 1000 + number) }
}

impl<S: Subject> Run<'_, S> {
    fn caller(&mut self) -> Caller {
        Caller {
            session: self.bed.engine.open(),
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

    /// Commands of a request.
    fn requested(&self, respond: Respond) -> Vec<Command> {
        self.bed.subject.request(respond, &mut whole())
    }

    /// A piece of a turn's audio.
    fn slice(&self, detail: usize) -> Option<Vec<f32>> {
        let audio = self.audio.as_ref()?;
        let from = detail % (audio.len() - 4000);
        Some(audio[from..from + 200 + detail % 3800].to_vec())
    }

    fn tick(&mut self, ticks: usize) {
        self.bed.engine.ticks(ticks);
        for caller in &mut self.callers {
            while let Some(event) = caller.session.try_next_event() {
                caller.take(event);
            }
        }
    }

    /// Ticks until all responses of a session are complete.
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
                if let Some(slice) = self.slice(detail) {
                    self.submit_scripted(who, Command::Append(slice));
                    self.callers[who].has_audio = true;
                }
            }
            3 if self.callers[who].has_audio => {
                self.submit_scripted(who, Command::Commit { item: number });
                self.callers[who].named(number);
                self.callers[who].has_audio = false;
            }
            4 => {
                let text = ["so", "and then", "what"][detail % 3].to_owned();
                let role = [Role::User, Role::Assistant, Role::System][detail % 3];
                let content = MessageContent::Text { role, text };
                // In the middle of a history only while no response is pending: a response reads the history at its
                // begin.
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
                for command in self.requested(request(number)) {
                    self.submit_scripted(who, command);
                }
                self.callers[who].asked(number);
                self.callers[who].items.push(1000 + number);
            }
            10 => {
                self.drain(who);
                // All audio is encoded, so that its prompt is built in the next tick.
                self.tick(100);
                let out_of_band = Respond { out_of_band: true, ..request(number) };
                submit_all(&self.callers[who].session, self.requested(out_of_band.clone()));
                let script = self.callers[who].script.len();
                self.callers[who].out_of_band.push((script, out_of_band));
                self.callers[who].asked(number);
                // Later commands must come after its prompt was built, as in the serial run.
                self.tick(1);
            }
            11 => {
                self.drain(who);
                submit_all(&self.callers[who].session, self.requested(request(number)));
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
        let response = self.bed.subject.speculative(request(number));
        submit(&self.callers[who].session, Command::BeginSpeculation { item: 500 + number, respond: response.clone() });
        self.callers[who].number += 1;
        self.callers[who].open.push(number);
        self.tick(detail % 40);
        let Some(more) = self.audio.as_ref().map(|audio| audio[..100 + detail % 900].to_vec()) else { return };
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

/// Runs the commands of a script serially.
fn serial<S: Subject>(subject: &S, script: &[Command], last: Option<&Respond>) -> BTreeMap<u64, Response> {
    let config =
        EngineConfig { sessions: 1, out_of_band: 0, batch: false, session_tokens: 2048, ..EngineConfig::default() };
    let mut bed = Bed::new(subject, &config);
    let session = bed.engine.open();
    let mut responses = BTreeMap::new();
    for command in script {
        submit(&session, command.clone());
        let asked = match command {
            Command::Respond(request) if !request.streamed => Some(request.response),
            Command::EndText { response } => Some(*response),
            _ => None,
        };
        if let Some(number) = asked {
            responses.insert(number, bed.engine.listen(&session, number).unwrap());
        }
        bed.engine.settle();
    }
    if let Some(request) = last {
        let response = bed.respond(&session, Respond { out_of_band: false, ..request.clone() });
        responses.insert(request.response, response);
    }
    responses
}

/// Runs the steps and compares each session with its serial run.
pub fn check<S: Subject>(subject: &S, config: &EngineConfig, steps: &[Step]) -> Result<(), TestCaseError> {
    let audio = subject.audio(1);
    let mut run = Run { bed: Bed::new(subject, config), audio, callers: Vec::new() };
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
        let mut expected = serial(subject, &caller.script, None);
        for (before, request) in &caller.out_of_band {
            let with = serial(subject, &caller.script[..*before], Some(request));
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
    prop_assert_eq!(run.bed.engine.left_behind(), (0, 0));
    Ok(())
}

/// Checks `cases` random runs, with and without batches and with both hand-off modes.
pub fn equal_serial_runs<S: Subject>(subject: &S, cases: u32) {
    let steps = prop::collection::vec((any::<u8>(), any::<u8>(), any::<u16>()), 1..60);
    for (batch, hand_off, share) in
        [(true, HandOff::AsyncChunk, 4), (true, HandOff::FullPayload, 1), (false, HandOff::AsyncChunk, 1)]
    {
        let config = ProptestConfig { max_shrink_iters: 2000, ..property(cases * share, file!()) };
        let mode = mode(batch, hand_off);
        proptest::test_runner::TestRunner::new(config).run(&steps, |steps| check(subject, &mode, &steps)).unwrap();
    }
}

/// Settings for a run.
pub fn mode(batch: bool, hand_off: HandOff) -> EngineConfig {
    EngineConfig {
        sessions: CALLERS + 1,
        out_of_band: 4,
        session_tokens: 2048,
        batch,
        hand_off,
        ..EngineConfig::default()
    }
}
