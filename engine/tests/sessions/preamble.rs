//! Speech around a tool call: the talker speaks the text before it while the call is generated, and text after it as a
//! new utterance.
#![allow(clippy::unwrap_used)] // A panic is a test's report.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use repartee_engine::internals::{
    AudioRows, BatchEntry, Checkpoint, Codec, EdgeKind, Element, ElementValue, Message, MessagePart, Model, Outbox,
    PromptTemplate, ResponseParams, RowKind, RunnableRows, SlotCounts, Stage, StageEnd, StageItem, Tokenizer,
    ToolCallTokens, ToolTemplate, load_model,
};
use repartee_engine::{EngineConfig, Source, StageConfig};
use repartee_engine_api::{AnswerForm, Command, Event, FinishReason, Respond, Role, SessionHandle, Tool};

use repartee_engine_testkit::driven::{Driven, drive, submit};
use repartee_engine_testkit::folder;

const TALKER: usize = 1;
/// Upper bound of the talker's steps for a response.
const STEPS: usize = 400;

fn model() -> Model {
    load_model(&Checkpoint::open(Source::Folder(folder("dense").join("checkpoint"))).unwrap(), &EngineConfig::default())
        .unwrap()
}

/// Gives items to the talker and up to `steps` steps after each; returns the codes and the end.
fn speak(model: &mut Model, items: Vec<StageItem>, steps: usize) -> (Vec<Vec<u32>>, Option<StageEnd>) {
    let talker = &mut model.stages[TALKER];
    let (mut codes, mut ended) = (Vec::new(), None);
    let params = ResponseParams { voice: model.voices.names()[0].clone(), ..params() };
    let last = items.len();
    for (i, item) in std::iter::once(StageItem::Begin(params)).chain(items).enumerate() {
        let mut out = Vec::new();
        talker.accept(0, item, &mut out);
        for _ in 0..if i == last { STEPS } else { steps } {
            let rows = talker.runnable_rows(0).rows.min(talker.max_rows());
            if rows > 0 {
                talker.step(&[BatchEntry { slot: 0, rows }], &mut out);
            }
        }
        for (_, item) in out {
            match item {
                StageItem::Codes(frame) => {
                    assert!(ended.is_none(), "a frame after the end");
                    codes.push(frame);
                }
                StageItem::End(end) => ended = Some(end),
                _ => {}
            }
        }
    }
    talker.free(0);
    (codes, ended)
}

fn params() -> ResponseParams {
    ResponseParams {
        response: 0,
        seed: 5,
        voice: String::new(),
        audio: true,
        streamed: false,
        tools: std::sync::Arc::default(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 100,
        sampling: None,
    }
}

fn tokens(ids: &[u32]) -> Vec<StageItem> {
    ids.iter().map(|&id| StageItem::Token(id)).collect()
}

fn all(parts: Vec<Vec<StageItem>>) -> Vec<StageItem> {
    parts.into_iter().flatten().collect()
}

const BEFORE: [u32; 3] = [20, 21, 22];
const AFTER: [u32; 2] = [30, 31];

fn end() -> Vec<StageItem> {
    vec![StageItem::End(StageEnd::Stop)]
}

fn pause() -> Vec<StageItem> {
    vec![StageItem::TextPause]
}

#[test]
fn speech_goes_on_where_text_pauses() {
    let mut model = model();
    let whole = speak(&mut model, all(vec![tokens(&BEFORE), end()]), 0);
    assert!(whole.0.len() > BEFORE.len() && whole.1.is_some(), "{} frames, {:?}", whole.0.len(), whole.1);
    // Without an end, everything is spoken already.
    let paused = speak(&mut model, all(vec![tokens(&BEFORE), pause()]), 0);
    assert_eq!((paused.0, paused.1), (whole.0.clone(), None));
    // The end adds nothing, at any time.
    for steps in [0, 1, STEPS] {
        let both = speak(&mut model, all(vec![tokens(&BEFORE), pause(), pause(), end()]), steps);
        assert_eq!(both, whole, "{steps} steps after each item");
    }
}

#[test]
fn text_after_a_pause_is_its_own_utterance() {
    let mut model = model();
    let before = speak(&mut model, all(vec![tokens(&BEFORE), end()]), 0);
    let after = speak(&mut model, all(vec![tokens(&AFTER), end()]), 0);
    let expected: Vec<Vec<u32>> = [before.0, after.0.clone(), after.0].concat();
    for steps in [0, 1, 7, STEPS] {
        let items = all(vec![tokens(&BEFORE), pause(), tokens(&AFTER), pause(), tokens(&AFTER), end()]);
        let (codes, ended) = speak(&mut model, items, steps);
        assert_eq!(codes, expected, "{steps} steps after each item");
        assert!(ended.is_some());
    }
}

#[test]
fn a_pause_without_text_says_nothing() {
    let mut model = model();
    assert_eq!(speak(&mut model, all(vec![pause(), end()]), 1), (Vec::new(), Some(StageEnd::Stop)));
    let after = speak(&mut model, all(vec![tokens(&AFTER), end()]), 1);
    assert_eq!(speak(&mut model, all(vec![pause(), tokens(&AFTER), end()]), 1), after);
}

/// First stage: emits the text of its prompt, one token a step.
struct Writing(Vec<Option<VecDeque<u32>>>);

impl Stage for Writing {
    fn name(&self) -> &'static str {
        "writing"
    }
    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }
    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }
    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        if let StageItem::Prompt { elements, response: Some(params), .. } = item {
            let id = |element: &Element| match element.value {
                ElementValue::Token(id) => Some(id),
                _ => None,
            };
            self.0[slot] = Some(elements.iter().filter_map(id).collect());
            out.push((slot, StageItem::Begin(params)));
        }
    }
    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        RunnableRows::rows(usize::from(self.0[slot].is_some()), RowKind::Decode)
    }
    fn max_rows(&self) -> usize {
        1
    }
    fn max_items(&self) -> usize {
        1
    }
    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for &BatchEntry { slot, .. } in work {
            let next = self.0[slot].as_mut().and_then(VecDeque::pop_front);
            out.push((slot, next.map_or(StageItem::End(StageEnd::Stop), StageItem::Token)));
            if next.is_none() {
                self.0[slot] = None;
            }
        }
    }
    fn free(&mut self, slot: usize) {
        self.0[slot] = None;
    }
}

/// Last stage: gives a sample for each token's id once no more text follows.
struct Saying(Vec<Vec<u32>>);

impl Stage for Saying {
    fn name(&self) -> &'static str {
        "saying"
    }
    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }
    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Samples
    }
    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Token(id) => self.0[slot].push(id),
            StageItem::TextPause | StageItem::End(_) => {
                out.extend(self.0[slot].drain(..).map(|id| (slot, StageItem::Samples(vec![id as f32]))));
                if let StageItem::End(_) = item {
                    out.push((slot, item));
                }
            }
            _ => {}
        }
    }
    fn runnable_rows(&self, _: usize) -> RunnableRows {
        RunnableRows::NONE
    }
    fn max_rows(&self) -> usize {
        1
    }
    fn max_items(&self) -> usize {
        1
    }
    fn launch(&mut self, _: &[BatchEntry], _: &mut Outbox) {}
    fn free(&mut self, slot: usize) {
        self.0[slot].clear();
    }
}

/// Renders the last text; `[` and `]` delimit calls.
struct Brackets(ToolCallTokens);

impl ToolTemplate for Brackets {
    fn system(&self, instructions: &str, _: &[Tool]) -> String {
        instructions.to_owned()
    }
    fn call(&self, _: &str, arguments: &str) -> String {
        arguments.to_owned()
    }
    fn result(&self, output: &str) -> String {
        output.to_owned()
    }
    fn call_tokens(&self) -> Option<&ToolCallTokens> {
        Some(&self.0)
    }
}

impl PromptTemplate for Brackets {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, _: bool) -> Vec<Element> {
        let last = history.iter().rev().find_map(|message| match &message.parts[..] {
            [MessagePart::Text(ids)] if !ids.is_empty() => Some(ids),
            _ => None,
        });
        last.into_iter().flatten().map(|&id| Element::token(Role::User, id)).collect()
    }
    fn tools(&self) -> Option<&dyn ToolTemplate> {
        Some(self)
    }
}

/// An engine that speaks the text of its prompt.
fn engine(slots: usize, config: &EngineConfig) -> Driven {
    let bytes = std::fs::read(folder("dense").join("checkpoint/tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_bytes(&bytes).unwrap();
    let mark = |text: &str| (tokenizer.encode(text).unwrap()[0], text.to_owned());
    let marks = ToolCallTokens { open: mark("["), close: mark("]") };
    let model = Model {
        tokenizer,
        hearing: None,
        template: Box::new(Brackets(marks)),
        stages: vec![Box::new(Writing(vec![None; slots])), Box::new(Saying(vec![Vec::new(); slots]))],
        codec: Some(Codec { sample_rate: 8000, frame_samples: (1, 1) }),
        voices: Box::new(vec!["only".to_owned()]),
        slots: SlotCounts { sessions: slots, out_of_band: 0, context: 1000 },
        max_tokens: 1000,
        answer_tokens: 1000,
        pool: None,
    };
    drive(model, config)
}

/// Events in order: `T` for text, `A` for audio, `C` for a call, `J` for its arguments.
fn events(text: &str) -> String {
    let mut engine = engine(1, &EngineConfig::default());
    let session = engine.open();
    submit(&session, Command::text(0, Role::User, text));
    submit(&session, Command::Respond(Respond::new(0, 1)));
    let mut seen = String::new();
    loop {
        let Some(event) = session.try_next_event() else {
            engine.ticks(1);
            continue;
        };
        let letter = match event {
            Event::Text { .. } => 'T',
            Event::Audio { .. } => 'A',
            Event::ToolCall { .. } => 'C',
            Event::ToolArguments { .. } => 'J',
            Event::SegmentFinished { reason, .. } => {
                assert_eq!(reason, FinishReason::Stop);
                return seen;
            }
            other => panic!("{other:?}"),
        };
        if !seen.ends_with(letter) {
            seen.push(letter);
        }
    }
}

#[test]
fn a_preamble_is_heard_before_the_call() {
    let call = r#"[{"name":"f","arguments":{"a":1}}]"#;
    assert_eq!(events(&format!("wait{call}")), "TACJ");
    assert_eq!(events(call), "CJ");
    assert_eq!(events(&format!("wait{call}so")), "TACJTA");
    assert_eq!(events("wait"), "TA");
}

#[test]
fn blanks_between_calls_are_not_spoken() {
    let call = r#"[{"name":"f","arguments":{}}]"#;
    assert_eq!(events(&format!("wait{call} {call} ")), "TACJTCJT");
}

#[test]
fn a_call_does_not_precede_speech() {
    let stage = StageConfig { batch_rows: Some(1), ..StageConfig::default() };
    let stages = BTreeMap::from([("writing".to_owned(), stage)]);
    let mut engine = engine(2, &EngineConfig { stages, ..EngineConfig::default() });
    let (calls, speaks) = (engine.open(), engine.open());
    let long = format!(r#"wait[{{"name":"f","arguments":{{"a":"{}"}}}}]"#, "x".repeat(100));
    submit(&calls, Command::text(0, Role::User, long));
    submit(&calls, Command::Respond(Respond::new(0, 1)));
    // The speech before the call has been played.
    let mut tick = || {
        engine.ticks(1);
        engine.time.pass(Duration::from_millis(1));
    };
    (0..12).for_each(|_| tick());
    submit(&speaks, Command::text(0, Role::User, "hello"));
    submit(&speaks, Command::Respond(Respond::new(0, 1)));
    (0..12).for_each(|_| tick());
    let ended = |session: &SessionHandle| {
        std::iter::from_fn(|| session.try_next_event()).any(|event| matches!(event, Event::SegmentFinished { .. }))
    };
    assert!(ended(&speaks), "a call holds up speech");
    assert!(!ended(&calls));
}
