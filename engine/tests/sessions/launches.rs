//! Changes between a step's launch and its read-back: an aborted response, a replaced prompt, a freed slot.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_engine::internals::{
    BatchEntry, Checkpoint, Element, Model, Outbox, ResponseParams, StageItem, load_model,
};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_api::{AnswerForm, Role};
use repartee_engine_testkit::folder;

const THINKER: usize = 0;
const TALKER: usize = 1;
const CODE2WAV: usize = 2;

fn model() -> Model {
    load_model(&Checkpoint::open(Source::Folder(folder("dense").join("checkpoint"))).unwrap(), &EngineConfig::default())
        .unwrap()
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

fn prompt(ids: std::ops::Range<u32>, respond: bool) -> StageItem {
    let elements: Vec<Element> = ids.map(|id| Element::token(Role::User, id)).collect();
    StageItem::Prompt { read: vec![true; elements.len()], elements, response: respond.then(params) }
}

/// Prompt positions that were passed on: first position and number.
fn contexts(out: &Outbox) -> Vec<(usize, usize)> {
    let context = |item: &StageItem| match item {
        StageItem::Context { from, elements } => Some((*from, elements.len())),
        _ => None,
    };
    out.iter().filter_map(|(_, item)| context(item)).collect()
}

/// Launches `rows` rows of slot 0, gives the stage items (or frees the slot without any), and collects.
fn meanwhile(model: &mut Model, stage: usize, rows: usize, items: impl IntoIterator<Item = StageItem>) -> Outbox {
    let stage = &mut model.stages[stage];
    assert!(stage.runnable_rows(0).rows >= rows, "{:?}", stage.runnable_rows(0));
    let mut out = Vec::new();
    stage.launch(&[BatchEntry { slot: 0, rows }], &mut out);
    assert!(out.is_empty(), "{out:?}");
    let mut items = items.into_iter().peekable();
    if items.peek().is_none() {
        stage.free(0);
    }
    items.for_each(|item| stage.accept(0, item, &mut out));
    out.clear();
    stage.collect(&mut out);
    out
}

fn accept(model: &mut Model, stage: usize, item: StageItem) {
    model.stages[stage].accept(0, item, &mut Vec::new());
}

/// Items after which the talker has a frame to make.
fn spoken() -> [StageItem; 3] {
    [StageItem::Begin(params()), StageItem::Token(20), StageItem::Token(21)]
}

/// A model whose talker has a frame to make.
fn speaking_model() -> Model {
    let mut model = model();
    spoken().into_iter().for_each(|item| accept(&mut model, TALKER, item));
    model
}

/// Codes of that frame.
fn frame(model: &mut Model) -> Vec<u32> {
    let rows = model.stages[TALKER].runnable_rows(0).rows;
    let mut out = Vec::new();
    model.stages[TALKER].step(&[BatchEntry { slot: 0, rows }], &mut out);
    let Some((0, StageItem::Codes(codes))) = out.pop() else { panic!("{out:?}") };
    codes
}

/// Samples of the frame that code2wav holds.
fn samples(model: &mut Model) -> Vec<f32> {
    let mut out = Vec::new();
    model.stages[CODE2WAV].step(&[BatchEntry { slot: 0, rows: 1 }], &mut out);
    let Some((0, StageItem::Samples(samples))) = out.pop() else { panic!("{out:?}") };
    samples
}

#[test]
fn a_longer_prompt_keeps_what_is_launched() {
    let mut model = model();
    accept(&mut model, THINKER, prompt(0..10, false));
    let out = meanwhile(&mut model, THINKER, 10, [prompt(0..14, false)]);
    assert_eq!(contexts(&out), [(0, 10)]);
    let mut out = Vec::new();
    model.stages[THINKER].step(&[BatchEntry { slot: 0, rows: 4 }], &mut out);
    assert_eq!(contexts(&out), [(10, 4)]);
}

#[test]
fn a_changed_prompt_passes_on_what_stays() {
    let mut model = model();
    accept(&mut model, THINKER, prompt(0..6, false));
    meanwhile(&mut model, THINKER, 4, [prompt(0..8, false)]);
    let elements: Vec<u32> = (0..6).chain(100..103).collect();
    let elements: Vec<Element> = elements.into_iter().map(|id| Element::token(Role::User, id)).collect();
    let changed = StageItem::Prompt { read: vec![true; elements.len()], elements, response: None };
    let out = meanwhile(&mut model, THINKER, 4, [changed]);
    assert_eq!(contexts(&out), [(4, 2)], "positions 6 and 7 are others now");
    assert_eq!((model.stages[THINKER].held(0), model.stages[THINKER].runnable_rows(0).rows), (6, 3));
}

#[test]
fn an_aborted_response_samples_nothing() {
    let mut model = model();
    accept(&mut model, THINKER, prompt(0..10, true));
    let out = meanwhile(&mut model, THINKER, 10, [StageItem::Abort]);
    assert_eq!(contexts(&out), [(0, 10)], "the prompt is cached all the same");
    assert_eq!(out.len(), 1, "{out:?}");
}

#[test]
fn a_response_begun_meanwhile_samples_nothing_yet() {
    let mut model = model();
    accept(&mut model, THINKER, prompt(0..10, true));
    let out = meanwhile(&mut model, THINKER, 10, [prompt(0..12, true)]);
    assert_eq!((contexts(&out), out.len()), (vec![(0, 10)], 1), "{out:?}");
    assert_eq!(model.stages[THINKER].runnable_rows(0).rows, 2);
}

#[test]
fn another_response_gets_no_frame_of_the_last() {
    let again = || [StageItem::Abort].into_iter().chain(spoken());
    let expected = frame(&mut speaking_model());
    // The new response begins before the launched step is collected, or after that.
    for before in [again().count(), 1] {
        let mut model = speaking_model();
        let rows = model.stages[TALKER].runnable_rows(0).rows;
        let out = meanwhile(&mut model, TALKER, rows, again().take(before));
        assert!(out.is_empty(), "{out:?}");
        again().skip(before).for_each(|item| accept(&mut model, TALKER, item));
        assert_eq!(frame(&mut model), expected);
    }
}

#[test]
fn a_freed_slot_gives_nothing() {
    let mut model = model();
    accept(&mut model, THINKER, prompt(0..10, true));
    assert!(meanwhile(&mut model, THINKER, 10, []).is_empty());
    let mut model = speaking_model();
    let rows = model.stages[TALKER].runnable_rows(0).rows;
    assert!(meanwhile(&mut model, TALKER, rows, []).is_empty());
    let codes = StageItem::Codes(frame(&mut speaking_model()));
    [StageItem::Begin(params()), codes].into_iter().for_each(|item| accept(&mut model, CODE2WAV, item));
    assert!(meanwhile(&mut model, CODE2WAV, 1, []).is_empty());
}

#[test]
fn another_response_gets_no_samples_of_the_last() {
    let mut model = model();
    let codes = frame(&mut speaking_model());
    let begin = || [StageItem::Begin(params()), StageItem::Codes(codes.clone())];
    begin().into_iter().for_each(|item| accept(&mut model, CODE2WAV, item));
    let first = samples(&mut model);
    let again = || [StageItem::Abort].into_iter().chain(begin());
    for before in [again().count(), 1] {
        begin().into_iter().for_each(|item| accept(&mut model, CODE2WAV, item));
        let out = meanwhile(&mut model, CODE2WAV, 1, again().take(before));
        assert!(out.is_empty(), "{out:?}");
        again().skip(before).for_each(|item| accept(&mut model, CODE2WAV, item));
        assert_eq!(samples(&mut model), first, "the next stream begins anew");
    }
}
