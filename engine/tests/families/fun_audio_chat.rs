//! Parity of Fun-Audio-Chat with a derivation in torch on the same weights: ids and codes are equal, and each compared tensor is
//! within 1e-4 of the largest reference value. Its sound has the tests of the family that it is of.
//!
//! - `responses`: output of the engine, its prompts, and what is cached
//! - `refusals`: refused checkpoints
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod refusals;
mod responses;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use repartee_engine::internals::autoregressive::{BLOCK, Sampler, StepInput, StepShape};
use repartee_engine::internals::fun_audio_chat::{FunAudioChat, GroupHearing};
use repartee_engine::internals::{
    BatchEntry, Checkpoint, Encoder, EncodingProgress, LogMel, LogMelConfig, Outbox, ResponseParams, StageEnd,
    StageItem, WindowInput, load_model,
};
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::AnswerForm;
use repartee_engine_testkit::speech::{copy, difference_of_ids, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::{NO_ID, Ops, ReadBack, RowSpec, SampleParams, SequenceRows, SpecLayout, StateSpec};
use repartee_kernels_testkit::host::HostOps;

/// Name of the fixture.
const NAME: &str = "fun_audio_chat";
/// Folder of the sound.
const SOUND: &str = "Fun-CosyVoice3-0.5B-2512";
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;
const RUNS: [&str; 2] = ["turn0", "turn1"];
/// Ids that stand for audio, and that begin and end speech.
const AUDIO: u32 = 3;
const BEGIN: u32 = 4;
const END: u32 = 5;
/// Codes of a group.
const GROUP: usize = 5;
/// Penalty of the fixture's codes.
const PENALTY: f32 = 1.2;

/// Compared tensors: name and difference (0 or infinite for ids).
type Findings = Vec<(String, f32)>;

fn checkpoint() -> PathBuf {
    folder(NAME).join("checkpoint")
}

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

fn load(ops: &Cpu, folder: &Path) -> FunAudioChat<Cpu> {
    FunAudioChat::load((ops, ops), &open(folder), WeightPolicy::default()).unwrap()
}

fn settings() -> EngineConfig {
    EngineConfig { sessions: 2, out_of_band: 2, session_tokens: 1024, ..EngineConfig::default() }
}

fn params() -> ResponseParams {
    ResponseParams {
        response: 0,
        seed: 0,
        voice: "中文女".to_owned(),
        audio: true,
        streamed: false,
        tools: Vec::new().into(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 1000,
        sampling: None,
    }
}

/// Windows of a recording's spectrogram, which comes in pushes of uneven size.
fn windows(model: &FunAudioChat<Cpu>, folder: &Path, audio: &[f32]) -> Vec<Vec<f32>> {
    let shape = model.tower.tower.shape();
    let config = LogMelConfig::load(&open(folder), shape.bins).unwrap();
    let mut stream = LogMel::new(&config, shape.window).unwrap().stream();
    let mut closed = Vec::new();
    audio.chunks(777).for_each(|piece| stream.push(piece, &mut closed));
    closed.extend(stream.finish());
    closed.into_iter().map(|window| window.data).collect()
}

/// Rows of a recording, and those of the tower before.
fn heard(ops: &Cpu, model: &FunAudioChat<Cpu>, windows: &[Vec<f32>]) -> (Vec<f32>, Vec<f32>) {
    let (mut spec, mut back) = (RowSpec::default(), ReadBack::default());
    let inputs: Vec<_> = windows.iter().enumerate().map(|(index, data)| WindowInput { data, index }).collect();
    let rows = model.tower.tower.encode(ops, &inputs, &mut spec, &mut back);
    let grouped = rows.iter().flat_map(|rows| model.tower.grouped(ops, rows, (&mut spec, &mut back)).rows);
    (rows.concat(), grouped.collect())
}

/// Logits and codes of a run's steps, each of which gets the reference's ids and codes of the step before.
fn speak(ops: &Cpu, model: &FunAudioChat<Cpu>, expected: &Expected, run: &str) -> Findings {
    let ids = |name: &str| expected.ids(&format!("{run}.{name}")).0;
    let (prompt, said, drawn) = (ids("prompt"), ids("said"), ids("drawn"));
    let turns = RUNS.iter().position(|other| *other == run).unwrap();
    let audio = RUNS[..=turns].iter().flat_map(|run| expected.tensor(&format!("{run}.rows")).0).collect();
    let (text, head, layers) = (&model.text, &model.head, model.config.text.layers.num_hidden_layers);
    let is_audio = |at: &u32| prompt[*at as usize] == AUDIO;
    let audio_at: Vec<u32> = (0..prompt.len() as u32).filter(is_audio).collect();
    let tokens: Vec<u32> = prompt.iter().map(|&id| if id == AUDIO { NO_ID } else { id }).collect();
    // Blocks out of order.
    let blocks = (prompt.len() + said.len()).div_ceil(BLOCK);
    let table: Vec<u32> = (0..blocks as u32).rev().collect();
    let mut cache = text.model.cache(ops, blocks + 1, BLOCK);
    assert_eq!(cache.len(), layers);
    let mut of_head = head.cache(ops, blocks + 1);
    let mut codes_said = ops.state(StateSpec::TokenMask { slots: 1, vocabulary: head.codes().all });
    let greedy =
        SampleParams { slot: 0, repetition_penalty: PENALTY, temperature: 0.0, top_k: 0, top_p: 1.0, uniform: 0.0 };
    let mut x = text.embed(ops, &ops.list(&tokens), Some((&ops.list(&audio_at), &ops.tensor(audio, text.width()))));
    let (mut rows, mut position, mut speaks) = (prompt.clone(), 0, false);
    let (mut text_logits, mut code_logits, mut codes) = (Vec::new(), Vec::new(), Vec::new());
    let params = params();
    for (step, &id) in said.iter().enumerate() {
        let sequences = [SequenceRows { table: &table, position, rows: rows.len() }];
        let (hidden, _) = text.model.forward(ops, x, &mut cache, &ops.batch(&sequences), None);
        let normed = text.model.norm(ops, &hidden);
        text_logits.extend(ops.read(&text.head(ops, &ops.gather_at(&normed, &ops.list(&[rows.len() as u32 - 1])))));
        let hidden = ops.add(normed, &ops.embed_at(&text.embed_tokens, &ops.list(&rows)));
        // The head's own sections, as the stage fills them.
        let before = (step > 0).then(|| drawn[GROUP * step - 1]);
        let inputs = vec![before; rows.len()];
        let at: Vec<(usize, usize)> = (position..position + rows.len()).map(|position| (0, position)).collect();
        let samplers = [Sampler { slot: 0, row: rows.len() - 1, params: &params, step, held: None }];
        let input = StepInput { rows: &inputs, at: &at, sequences: &sequences, samplers: &samplers };
        let special = if step == 0 { rows.len() } else { 0 };
        let (mut layout, shape) = (SpecLayout::default(), StepShape { rows: rows.len(), sampled: 1, special, held: 0 });
        let sections = head.layout(shape, &mut layout, (1, blocks));
        let mut spec = layout.spec();
        let begun = (step <= 1).then_some(0).into_iter();
        head.fill((&input, &mut spec), &sections, |before| *before, begun, |_| vec![greedy], blocks as u32);
        head.draw(ops, (&ops.upload(&spec), &sections), &hidden, (&mut of_head, &mut codes_said), |ids, logits| {
            codes.extend(ops.read_list(&ids));
            code_logits.extend(ops.read(&logits));
        });
        // The next row.
        position += rows.len();
        rows = vec![id];
        x = text.embed(ops, &ops.list(&[id]), None);
        let group = &drawn[GROUP * step..GROUP * (step + 1)];
        speaks &= id != END;
        if speaks {
            let lists: Vec<_> = group.iter().map(|code| ops.list(&[*code])).collect();
            x = ops.scale_all(ops.add(x, &head.spoken(ops, &lists).unwrap()), 0.5);
        }
        speaks |= id == BEGIN;
    }
    let found = |name: &str, ours: &[f32]| {
        let name = format!("{run}.{name}");
        let off = difference(ours, &expected.tensor(&name).0[..ours.len()]);
        (name, off)
    };
    // Codes that are drawn after the end of the speech have no use, and in the reference another history.
    let speech = GROUP * said.iter().position(|id| *id == END).map_or(said.len(), |end| end + 1);
    code_logits.truncate(speech * head.codes().all);
    let off = difference_of_ids(&codes[..speech], &drawn[..speech]);
    vec![found("text_logits", &text_logits), found("code_logits", &code_logits), (format!("{run}.drawn"), off)]
}

/// Mel frames of a run's codes by the flow's stage.
fn frames(folder: &Path, codes: &[u32]) -> Vec<f32> {
    let mut model = load_model(&open(folder), &settings()).unwrap();
    let stage = model.stages[1].as_mut();
    let mut out = Outbox::new();
    let codes = codes.iter().map(|&code| StageItem::Codes(vec![code]));
    let items = std::iter::once(StageItem::Begin(params())).chain(codes).chain([StageItem::End(StageEnd::Stop)]);
    for item in items {
        stage.accept(1, item, &mut out);
        while stage.runnable_rows(1).rows > 0 {
            stage.launch(&[BatchEntry { slot: 1, rows: 1 }], &mut out);
            stage.collect(&mut out);
        }
    }
    let rows = |(_, item)| if let StageItem::Latents { rows, .. } = item { rows } else { Vec::new() };
    out.into_iter().flat_map(rows).collect()
}

/// Runs all parts of a checkpoint but the sound on the fixture's inputs; each gets the derivation's output of the part before.
fn compare(folder: &Path, expected: &Expected, runs: &[&str]) -> Findings {
    let ops = Cpu::default();
    let model = load(&ops, folder);
    let bins = model.tower.tower.shape().bins;
    let mut findings = Findings::new();
    for run in runs {
        let reference = |name: &str| expected.tensor(&format!("{run}.{name}")).0;
        let mut found = |name: &str, ours: &[f32]| {
            findings.push((format!("{run}.{name}"), difference(ours, &reference(name))));
        };
        let windows = windows(&model, folder, &reference("audio"));
        let frames: Vec<&[f32]> = windows.iter().flat_map(|window| window.chunks(bins)).collect();
        let mel: Vec<f32> = (0..bins).flat_map(|bin| frames.iter().map(move |frame| frame[bin])).collect();
        found("mel", &mel);
        let (tower, rows) = heard(&ops, &model, &windows);
        found("tower", &tower);
        found("rows", &rows);
        findings.extend(speak(&ops, &model, expected, run));
    }
    findings
}

#[test]
fn every_part_equals_the_derivation() {
    let expected = Expected::load(NAME);
    let mut findings = compare(&checkpoint(), &expected, &RUNS);
    for run in RUNS {
        let frames = frames(&checkpoint(), &expected.ids(&format!("{run}.heard")).0);
        findings.push((format!("{run}.frames"), difference(&frames, &expected.tensor(&format!("{run}.frames")).0)));
    }
    assert_eq!(findings.len(), 2 * 7);
    println!("{findings:?}");
    let off: Vec<_> = findings.iter().filter(|(_, off)| *off > TOLERANCE).collect();
    assert!(off.is_empty(), "{off:?} of {findings:?}");
}

/// Marks of the tower that its own family had no use for, either.
const UNREAD: &str = "continuous_audio_tower.audio_bos_eos_token.weight";

#[test]
fn zeroing_any_block_is_noticed() {
    let expected = Expected::load(NAME);
    let copy = copy(&checkpoint());
    let file = copy.path().join("model.safetensors");
    let whole = std::fs::read(&file).unwrap();
    let names: BTreeSet<String> = open(&checkpoint()).tensor_names().map(str::to_owned).collect();
    let mut unnoticed = Vec::new();
    for name in names.iter().filter(|name| *name != UNREAD) {
        zero(&file, |tensor| tensor == name);
        if compare(copy.path(), &expected, &RUNS[..1]).iter().all(|(_, off)| *off <= TOLERANCE) {
            unnoticed.push(name.clone());
        }
        std::fs::write(&file, &whole).unwrap();
    }
    assert!(unnoticed.is_empty(), "nothing differs although these are zero: {unnoticed:#?}");
    assert!(names.len() > 80, "{}", names.len());
}

#[test]
fn units_give_the_bits_of_whole_windows() {
    let ops = Cpu::default();
    let hearing = |most: usize| {
        let mut tower = load(&ops, &checkpoint()).tower;
        tower.tower = tower.tower.with_units(most);
        GroupHearing::new(&ops, tower)
    };
    let model = load(&ops, &checkpoint());
    let windows = windows(&model, &checkpoint(), &Expected::load(NAME).tensor("turn0.audio").0);
    for most in [1, 100_000, 1_000_000] {
        let (mut whole, mut hearing) = (hearing(usize::MAX), hearing(most));
        for (index, data) in windows.iter().enumerate() {
            let window = WindowInput { data, index };
            let mut progress = EncodingProgress::default();
            let in_units = loop {
                assert!(progress.units < hearing.units(&window));
                if let Some(rows) = hearing.advance(&window, &mut progress, 2) {
                    break rows;
                }
            };
            let rows = whole.encode(&[window]).pop().unwrap();
            assert!(in_units.rows == rows.rows && rows.count > 0, "window {index} in units of {most}");
        }
    }
}
