//! Times single steps of each stage of the demo model by shape of the batch, for the cost tables of
//! `tests/deadlines.rs`.
//!
//! A prefill step has rows of one slot; a decode step has one row (one frame in code2wav) of each slot. Prints the
//! fastest of several steps in microseconds, because other work on the machine only adds to a time.
#![allow(clippy::unwrap_used)] // A panic is this benchmark's report.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use repartee_engine::internals::{
    BatchEntry, Checkpoint, Element, Model, Outbox, ResponseParams, StageItem, load_model,
};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_api::{AnswerForm, Role, Sampling};

const ROWS: [usize; 12] = [1, 2, 4, 8, 9, 16, 17, 32, 64, 65, 128, 256];
const SLOTS: [usize; 10] = [1, 2, 3, 4, 8, 9, 16, 17, 32, 64];
const FRAMES: [usize; 8] = [1, 2, 3, 4, 8, 16, 17, 32];
/// Number of timed steps of each shape.
const REPEATS: usize = 7;
/// Rows of the prompt before a decode step.
const PROMPT: usize = 40;

const THINKER: usize = 0;
const TALKER: usize = 1;
const CODE2WAV: usize = 2;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let config = EngineConfig { sessions: 96, session_tokens: 512, ..EngineConfig::default() };
    let mut model = load_model(&Checkpoint::open(Source::Folder(folder)).unwrap(), &config).unwrap();
    print("thinker, prefill", ROWS.map(|rows| (rows, fastest(&mut model, THINKER, |model| prefill(model, rows)))));
    print("thinker, decode", SLOTS.map(|slots| (slots, fastest(&mut model, THINKER, |model| decode(model, slots)))));
    print("talker, prefill", ROWS.map(|rows| (rows, fastest(&mut model, TALKER, |model| talker_prefill(model, rows)))));
    print("talker, decode", SLOTS.map(|slots| (slots, fastest(&mut model, TALKER, |model| speak(model, slots)))));
    print("code2wav, one slot", FRAMES.map(|n| (n, fastest(&mut model, CODE2WAV, |model| frames(model, 1, n)))));
    print("code2wav, one frame each", SLOTS.map(|n| (n, fastest(&mut model, CODE2WAV, |model| frames(model, n, 1)))));
}

fn print<const N: usize>(what: &str, points: [(usize, Duration); N]) {
    let points: Vec<String> = points.iter().map(|(rows, took)| format!("({rows}, {})", took.as_micros())).collect();
    println!("{what}: [{}]", points.join(", "));
}

/// Prepares a step of `stage` several times; returns the shortest duration.
fn fastest(model: &mut Model, stage: usize, prepare: impl Fn(&mut Model) -> Vec<BatchEntry>) -> Duration {
    let time = |_| {
        let work = prepare(model);
        let begun = Instant::now();
        black_box(step(model, stage, &work));
        let took = begun.elapsed();
        for slot in 0..model.slots.total() {
            model.stages.iter_mut().for_each(|stage| stage.free(slot));
        }
        took
    };
    (0..REPEATS).map(time).min().unwrap()
}

fn step(model: &mut Model, stage: usize, work: &[BatchEntry]) -> Outbox {
    let mut out = Vec::new();
    model.stages[stage].step(work, &mut out);
    out
}

/// Delivers items to a stage and ignores its output.
fn deliver(model: &mut Model, stage: usize, items: Outbox) {
    for (slot, item) in items {
        model.stages[stage].accept(slot, item, &mut Vec::new());
    }
}

fn params(slot: usize) -> ResponseParams {
    let sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
    let voice = String::new();
    ResponseParams {
        response: 0,
        seed: slot as u64,
        voice,
        audio: true,
        streamed: false,
        tools: std::sync::Arc::default(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 100,
        sampling: Some(sampling),
    }
}

fn prompt(rows: usize, slot: usize, respond: bool) -> StageItem {
    // The first ids differ, so that no slot forks another's prefix.
    let elements = (0..rows).map(|i| Element::token(Role::User, ((i + 7 * slot) % 200) as u32)).collect();
    StageItem::Prompt { elements, read: Vec::new(), response: respond.then(|| params(slot)) }
}

fn prefill(model: &mut Model, rows: usize) -> Vec<BatchEntry> {
    deliver(model, THINKER, vec![(0, prompt(rows, 0, false))]);
    vec![BatchEntry { slot: 0, rows }]
}

/// Returns `slots` slots of which `stage` has one row ready.
fn ready(model: &Model, stage: usize, slots: usize) -> Vec<BatchEntry> {
    let ready = (0..model.slots.total()).filter(|&slot| model.stages[stage].runnable_rows(slot).rows == 1);
    let work: Vec<BatchEntry> = ready.map(|slot| BatchEntry { slot, rows: 1 }).take(slots).collect();
    assert_eq!(work.len(), slots, "too many responses ended at their first step");
    work
}

/// Number of slots to begin for `slots` unfinished responses: some end at their first step.
fn primed(model: &Model, slots: usize) -> usize {
    (slots + slots / 4 + 8).min(model.slots.total())
}

fn decode(model: &mut Model, slots: usize) -> Vec<BatchEntry> {
    for slot in 0..primed(model, slots) {
        deliver(model, THINKER, vec![(slot, prompt(PROMPT, slot, true))]);
        step(model, THINKER, &[BatchEntry { slot, rows: PROMPT }]);
    }
    ready(model, THINKER, slots)
}

fn talker_prefill(model: &mut Model, rows: usize) -> Vec<BatchEntry> {
    let work = prefill(model, rows);
    let out = step(model, THINKER, &work);
    deliver(model, TALKER, out);
    vec![BatchEntry { slot: 0, rows }]
}

fn speak(model: &mut Model, slots: usize) -> Vec<BatchEntry> {
    for slot in 0..primed(model, slots) {
        deliver(model, THINKER, vec![(slot, prompt(PROMPT, slot, false))]);
        let mut items = step(model, THINKER, &[BatchEntry { slot, rows: PROMPT }]);
        items.push((slot, StageItem::Begin(params(slot))));
        items.extend((20..30).map(|id| (slot, StageItem::Token(id))));
        deliver(model, TALKER, items);
        let rows = model.stages[TALKER].runnable_rows(slot).rows;
        step(model, TALKER, &[BatchEntry { slot, rows }]);
    }
    ready(model, TALKER, slots)
}

fn frames(model: &mut Model, slots: usize, each: usize) -> Vec<BatchEntry> {
    // One frame before the timed ones, as in the middle of a response. The talker makes its codes, so that their number
    // is right.
    speak(model, 1);
    let mut made = Vec::new();
    while made.is_empty() {
        let work = ready(model, TALKER, 1);
        made.extend(step(model, TALKER, &work).into_iter().filter_map(|(_, item)| match item {
            StageItem::Codes(codes) => Some(codes),
            _ => None,
        }));
    }
    let codes = made.swap_remove(0);
    for slot in 0..slots {
        deliver(model, CODE2WAV, vec![(slot, StageItem::Begin(params(slot))), (slot, StageItem::Codes(codes.clone()))]);
        step(model, CODE2WAV, &[BatchEntry { slot, rows: 1 }]);
        deliver(model, CODE2WAV, (0..each).map(|_| (slot, StageItem::Codes(codes.clone()))).collect());
    }
    (0..slots).map(|slot| BatchEntry { slot, rows: each }).collect()
}
