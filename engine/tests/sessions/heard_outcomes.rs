//! Random commands to a cascade of three parts, in random time: each response has one outcome, nothing comes after it,
//! each transcript is of its own audio, and every slot is free at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use repartee_engine_api::{
    Command, Event, FinishReason, InsertAt, Listen, MessageContent, Respond, ResponseInput, SessionHandle, Transcribe,
};
use repartee_engine_testkit::driven::{Driven, drive, submit};
use repartee_engine_testkit::generic::{Subject as _, interleavings};
use repartee_engine_testkit::property;
use repartee_engine_testkit::text_family::HearingCascade;
use repartee_engine_testkit::tone_recogniser::words;

const HEARS: HearingCascade = HearingCascade { audio_output: true };
/// Number of concurrent sessions.
const CALLERS: usize = 3;

/// One action: its kind, its session, and a number that each kind interprets.
type Step = (u8, u8, u16);

/// One session, and what is known of it.
struct Caller {
    session: SessionHandle,
    /// Sound of the open audio.
    open: Vec<f32>,
    /// Sound of each audio item.
    items: BTreeMap<u64, Vec<f32>>,
    /// Item of the open speculation, its response, and the sound since its begin.
    speculation: Option<(u64, u64, Vec<f32>)>,
    /// Requested responses, each with the audio item that it writes down.
    asked: BTreeMap<u64, Option<u64>>,
    /// Texts of transcripts.
    heard: BTreeMap<u64, String>,
    /// Outcomes.
    ended: BTreeMap<u64, Option<FinishReason>>,
    number: u64,
    /// Number of events read so far.
    read_events: usize,
}

impl Caller {
    fn new(session: SessionHandle) -> Self {
        Self {
            session,
            open: Vec::new(),
            items: BTreeMap::new(),
            speculation: None,
            asked: BTreeMap::new(),
            heard: BTreeMap::new(),
            ended: BTreeMap::new(),
            number: 0,
            read_events: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn ask(&mut self, of: Option<u64>) -> u64 {
        let number = self.next();
        self.asked.insert(number, of);
        number
    }

    /// A number that was given out.
    fn any(&self, detail: usize) -> u64 {
        1 + detail as u64 % self.number.max(1)
    }

    fn step(&mut self, action: u8, detail: usize, audio: &[f32]) {
        let from = detail % (audio.len() - 4_000);
        let slice = audio[from..from + 200 + detail % 3_800].to_vec();
        let respond =
            |number| Respond { max_tokens: Some(1 + detail as u32 % 4), ..Respond::new(number, 10_000 + number) };
        match action % 16 {
            0..=3 => {
                match &mut self.speculation {
                    Some((_, _, held)) => held.extend(&slice),
                    None => self.open.extend(&slice),
                }
                submit(&self.session, Command::Append(slice));
            }
            4 | 5 => {
                let item = self.next();
                self.abort();
                if !self.open.is_empty() {
                    self.items.insert(item, std::mem::take(&mut self.open));
                    submit(&self.session, Command::Commit { item });
                }
            }
            6 => {
                self.abort();
                self.open.clear();
                submit(&self.session, Command::Clear);
            }
            // Only while no response is unfinished, so that it is not refused.
            7 if !self.open.is_empty() && self.speculation.is_none() && self.asked.len() == self.ended.len() => {
                let (item, response) = (self.next(), self.ask(None));
                submit(&self.session, Command::BeginSpeculation { item, respond: respond(response) });
                self.speculation = Some((item, response, Vec::new()));
            }
            8 => {
                if let Some((item, response, held)) = self.speculation.take() {
                    if detail.is_multiple_of(2) {
                        submit(&self.session, Command::CommitSpeculation { response });
                        self.items.insert(item, std::mem::replace(&mut self.open, held));
                    } else {
                        submit(&self.session, Command::AbortSpeculation { response });
                        self.open.extend(held);
                    }
                }
            }
            9 => {
                let response = self.ask(None);
                submit(&self.session, Command::Respond(respond(response)));
            }
            10 => {
                let response = self.ask(None);
                let input = Some(vec![ResponseInput::Content(MessageContent::Audio(slice))]);
                submit(&self.session, Command::Respond(Respond { input, out_of_band: true, ..respond(response) }));
            }
            11 | 12 => {
                let item = self.any(detail);
                let response = self.ask(Some(item));
                let request = Transcribe::new(response, item);
                submit(&self.session, Command::Transcribe(request));
            }
            13 => {
                let response = self.any(detail);
                if self.speculation.as_ref().is_some_and(|(_, speculative, _)| *speculative == response) {
                    self.abort();
                }
                submit(&self.session, Command::Cancel { response });
            }
            14 => {
                let item = self.any(detail / 2);
                let item = if detail.is_multiple_of(2) { item } else { 10_000 + item };
                let command = match detail % 3 {
                    0 => Command::Truncate { item, text: "so".to_owned() },
                    _ => Command::Delete { item },
                };
                submit(&self.session, command);
            }
            15 => {
                let item = self.next();
                if detail.is_multiple_of(2) {
                    self.items.insert(item, slice.clone());
                    let content = MessageContent::Audio(slice);
                    submit(&self.session, Command::Insert { item, place: InsertAt::End, content });
                } else {
                    submit(&self.session, Command::Listen(Listen::new(item)));
                }
            }
            _ => {}
        }
    }

    /// A commit or clear aborts the speculation.
    fn abort(&mut self) {
        if let Some((_, _, held)) = self.speculation.take() {
            self.open.extend(held);
        }
    }

    /// Reads the session's events.
    fn read(&mut self) -> Result<(), TestCaseError> {
        while let Some(event) = self.session.try_next_event() {
            self.read_events += 1;
            let Some(response) = event.response() else {
                prop_assert!(!matches!(&event, Event::Failed { error, .. } if error.is_fatal()), "{:?}", event);
                continue;
            };
            prop_assert!(self.asked.contains_key(&response), "nobody asked: {:?}", event);
            prop_assert!(!self.ended.contains_key(&response), "after its end: {:?}", event);
            match event {
                Event::InputText { item, text, stable, .. } => {
                    prop_assert_eq!(self.asked[&response], Some(item));
                    let heard = self.heard.entry(response).or_default();
                    prop_assert!(text.starts_with(&**heard) && stable >= heard.len());
                    text[..stable].clone_into(heard);
                }
                Event::SegmentFinished { reason, .. } => {
                    self.ended.insert(response, Some(reason));
                }
                Event::Failed { error, .. } => {
                    prop_assert!(!error.is_fatal(), "{}", error);
                    self.ended.insert(response, None);
                }
                Event::Text { .. } | Event::Audio { .. } => {
                    prop_assert_eq!(self.asked[&response], None, "a transcript is no response");
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        Ok(())
    }

    /// Checks the outcomes once everything has ended.
    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.asked.keys().collect::<Vec<_>>(), self.ended.keys().collect::<Vec<_>>());
        for (response, of) in &self.asked {
            let whole = of.and_then(|item| self.items.get(&item)).map(|samples| words(samples));
            match (whole, self.ended[response]) {
                (Some(whole), Some(FinishReason::Stop)) => {
                    prop_assert_eq!(self.heard.get(response), Some(&whole), "transcript {}", response);
                }
                (Some(whole), _) => {
                    let heard = self.heard.get(response).map_or("", String::as_str);
                    prop_assert!(whole.starts_with(heard), "{:?} of {:?}", heard, whole);
                }
                (None, _) => {}
            }
        }
        Ok(())
    }
}

/// Ticks until nothing is runnable, although the callers read.
fn drain(engine: &mut Driven, callers: &mut [Caller]) -> Result<(), TestCaseError> {
    loop {
        engine.settle();
        let before: usize = callers.iter().map(|caller| caller.read_events).sum();
        callers.iter_mut().try_for_each(Caller::read)?;
        if callers.iter().map(|caller| caller.read_events).sum::<usize>() == before {
            return Ok(());
        }
    }
}

fn check(steps: &[Step], threads: usize) -> Result<(), TestCaseError> {
    let mode = interleavings::mode(true, repartee_engine::HandOff::AsyncChunk);
    let config = repartee_engine::EngineConfig { threads: Some(threads), ..mode };
    let audio = HEARS.audio(1).unwrap();
    let mut engine: Driven = drive(HEARS.model(&config), &config);
    let mut callers: Vec<Caller> = (0..CALLERS).map(|_| Caller::new(engine.open())).collect();
    for &(action, who, detail) in steps {
        let (who, detail) = (usize::from(who) % CALLERS, usize::from(detail));
        if action == u8::MAX {
            let fresh = Caller::new({
                let Caller { session, .. } = callers.remove(who);
                drop(session);
                engine.ticks(1);
                engine.open()
            });
            callers.insert(who, fresh);
        }
        callers[who].step(action, detail, &audio);
        engine.ticks(detail % 6);
        engine.time.pass(Duration::from_millis(detail as u64 % 50));
        callers.iter_mut().try_for_each(Caller::read)?;
    }
    drain(&mut engine, &mut callers)?;
    // An undecided speculation holds back the responses after it.
    for caller in &mut callers {
        if let Some((_, response, _)) = &caller.speculation {
            submit(&caller.session, Command::AbortSpeculation { response: *response });
            caller.abort();
        }
    }
    drain(&mut engine, &mut callers)?;
    callers.iter().try_for_each(Caller::check)?;
    callers.clear();
    prop_assert_eq!(engine.left_behind(), (0, 0));
    Ok(())
}

fn run(cases: u32, threads: usize) {
    let steps = prop::collection::vec((any::<u8>(), any::<u8>(), any::<u16>()), 1..80);
    let config = ProptestConfig { max_shrink_iters: 2_000, ..property(cases, file!()) };
    TestRunner::new(config).run(&steps, |steps| check(&steps, threads)).unwrap();
}

#[test]
fn each_response_has_one_outcome() {
    run(24, 1);
    run(8, 2);
}

#[test]
#[ignore = "minutes: make test-long"]
fn each_response_of_many_has_one_outcome() {
    run(600, 1);
}
