//! Between a step's launch and its read-back a response may be aborted, a prompt replaced and a slot freed.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

#[allow(dead_code)] // Each test binary uses its part.
mod common;

use common::folder;
use repartee_engine::internals::{Checkpoint, Element, Item, Model, Outbox, ResponseParams, Work, load};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_api::Role;

const THINKER: usize = 0;
const TALKER: usize = 1;
const CODE2WAV: usize = 2;

fn model() -> Model {
    load(&Checkpoint::open(Source::Folder(folder("dense").join("checkpoint"))).unwrap(), &EngineConfig::default())
        .unwrap()
}

fn params() -> ResponseParams {
    ResponseParams {
        response: 0,
        seed: 5,
        voice: String::new(),
        audio: true,
        streamed: false,
        max_tokens: 100,
        sampling: None,
    }
}

fn prompt(ids: std::ops::Range<u32>, respond: bool) -> Item {
    let elements: Vec<Element> = ids.map(|id| Element::token(Role::User, id)).collect();
    Item::Prompt { read: vec![true; elements.len()], elements, response: respond.then(params) }
}

/// Prompt positions that were passed on: the first, and how many.
fn contexts(out: &Outbox) -> Vec<(usize, usize)> {
    let context = |item: &Item| match item {
        Item::Context { from, elements } => Some((*from, elements.len())),
        _ => None,
    };
    out.iter().filter_map(|(_, item)| context(item)).collect()
}

/// Launches `rows` rows of slot 0, gives the stage an item (or frees the slot without one), and collects.
fn meanwhile(model: &mut Model, stage: usize, rows: usize, item: Option<Item>) -> Outbox {
    let stage = &mut model.stages[stage];
    assert!(stage.need(0).rows >= rows, "{:?}", stage.need(0));
    let mut out = Vec::new();
    stage.launch(&[Work { slot: 0, rows }], &mut out);
    assert!(out.is_empty(), "{out:?}");
    match item {
        Some(item) => stage.accept(0, item, &mut out),
        None => stage.free(0),
    }
    out.clear();
    stage.collect(&mut out);
    out
}

fn accept(model: &mut Model, stage: usize, item: Item) {
    model.stages[stage].accept(0, item, &mut Vec::new());
}

/// A talker that has a frame to make.
fn speaking() -> Model {
    let mut model = model();
    for item in [Item::Begin(params()), Item::Token(20), Item::Token(21)] {
        accept(&mut model, TALKER, item);
    }
    model
}

#[test]
fn a_longer_prompt_keeps_what_is_launched() {
    let mut model = model();
    accept(&mut model, THINKER, prompt(0..10, false));
    let out = meanwhile(&mut model, THINKER, 10, Some(prompt(0..14, false)));
    assert_eq!(contexts(&out), [(0, 10)]);
    let mut out = Vec::new();
    model.stages[THINKER].step(&[Work { slot: 0, rows: 4 }], &mut out);
    assert_eq!(contexts(&out), [(10, 4)]);
}

#[test]
fn a_changed_prompt_passes_on_what_stays() {
    let mut model = model();
    accept(&mut model, THINKER, prompt(0..6, false));
    meanwhile(&mut model, THINKER, 4, Some(prompt(0..8, false)));
    let elements: Vec<u32> = (0..6).chain(100..103).collect();
    let elements: Vec<Element> = elements.into_iter().map(|id| Element::token(Role::User, id)).collect();
    let changed = Item::Prompt { read: vec![true; elements.len()], elements, response: None };
    let out = meanwhile(&mut model, THINKER, 4, Some(changed));
    assert_eq!(contexts(&out), [(4, 2)], "positions 6 and 7 are others now");
    assert_eq!((model.stages[THINKER].held(0), model.stages[THINKER].need(0).rows), (6, 3));
}

#[test]
fn an_aborted_response_samples_nothing() {
    let mut model = model();
    accept(&mut model, THINKER, prompt(0..10, true));
    let out = meanwhile(&mut model, THINKER, 10, Some(Item::Abort));
    assert_eq!(contexts(&out), [(0, 10)], "the prompt is cached all the same");
    assert_eq!(out.len(), 1, "{out:?}");
}

#[test]
fn another_response_gets_no_frame_of_the_last() {
    let mut model = speaking();
    let rows = model.stages[TALKER].need(0).rows;
    let out = meanwhile(&mut model, TALKER, rows, Some(Item::Abort));
    assert!(out.is_empty(), "{out:?}");
    // The same response again is what it would have been.
    let frame = |model: &mut Model| {
        let mut out = Vec::new();
        model.stages[TALKER].step(&[Work { slot: 0, rows }], &mut out);
        let Some((0, Item::Codes(codes))) = out.pop() else { panic!("{out:?}") };
        codes
    };
    for item in [Item::Begin(params()), Item::Token(20), Item::Token(21)] {
        accept(&mut model, TALKER, item);
    }
    assert_eq!(frame(&mut model), frame(&mut speaking()));
}

#[test]
fn a_freed_slot_gives_nothing() {
    let mut model = model();
    accept(&mut model, THINKER, prompt(0..10, true));
    assert!(meanwhile(&mut model, THINKER, 10, None).is_empty());
    let mut model = speaking();
    let rows = model.stages[TALKER].need(0).rows;
    assert!(meanwhile(&mut model, TALKER, rows, None).is_empty());
    let mut model = speaking();
    let mut out = Vec::new();
    model.stages[TALKER].step(&[Work { slot: 0, rows }], &mut out);
    let Some((_, codes)) = out.pop() else { panic!("no frame") };
    accept(&mut model, CODE2WAV, Item::Begin(params()));
    accept(&mut model, CODE2WAV, codes);
    assert!(meanwhile(&mut model, CODE2WAV, 1, None).is_empty());
}

#[test]
fn samples_of_an_aborted_response_are_dropped() {
    let mut model = speaking();
    let rows = model.stages[TALKER].need(0).rows;
    let mut out = Vec::new();
    model.stages[TALKER].step(&[Work { slot: 0, rows }], &mut out);
    let Some((_, Item::Codes(codes))) = out.pop() else { panic!("no frame") };
    let begin = |model: &mut Model| {
        accept(model, CODE2WAV, Item::Begin(params()));
        accept(model, CODE2WAV, Item::Codes(codes.clone()));
    };
    let samples = |model: &mut Model| {
        let mut out = Vec::new();
        model.stages[CODE2WAV].step(&[Work { slot: 0, rows: 1 }], &mut out);
        let Some((0, Item::Samples(samples))) = out.pop() else { panic!("{out:?}") };
        samples
    };
    begin(&mut model);
    let first = samples(&mut model);
    begin(&mut model);
    assert!(meanwhile(&mut model, CODE2WAV, 1, Some(Item::Abort)).is_empty());
    begin(&mut model);
    assert_eq!(samples(&mut model), first, "the next stream begins anew");
}
