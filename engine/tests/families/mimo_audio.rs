//! Parity of MiMo-Audio with a derivation in torch on the same weights: text and codes are equal, and each compared tensor is
//! within 1e-4 of the largest reference value.
//!
//! - `responses`: output of the engine, and its prompts
//! - `refusals`: refused checkpoints
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod refusals;
mod responses;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use repartee_engine::internals::mimo_audio::{MiMoAudio, PatchHearing, patches};
use repartee_engine::internals::{
    AudioRows, BatchEntry, Checkpoint, Encoder, EncodingProgress, LogMel, Outbox, ResponseParams, StageEnd, StageItem,
    WindowInput, load_model,
};
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::AnswerForm;
use repartee_engine_testkit::speech::{copy, difference_of_ids, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::{Cpu, Tensor};
use repartee_kernels::{NO_ID, Ops, ReadBack, RowSpec, SampleParams, SequenceRows, SpecLayout};
use repartee_kernels_testkit::host::HostOps;

/// Name of the fixture.
const NAME: &str = "mimo_audio";
/// Folder of the tokenizer of sound.
const SOUND: &str = "MiMo-Audio-Tokenizer";
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;
/// Positions in a cache block.
const BLOCK: usize = 16;
/// Id of `<|empty|>`, in whose place a patch stands.
const EMPTY: u32 = 5;
/// Frames of a patch.
const FRAMES: usize = 4;
const RUNS: [&str; 2] = ["turn0", "turn1"];
/// Windows of the codec that the fixture has: codes before the new ones, codes heard in the next window, new codes.
const WINDOWS: [usize; 3] = [12, 4, 5];

/// Compared tensors: name and difference (0 or infinite for ids).
type Findings = Vec<(String, f32)>;

fn checkpoint() -> PathBuf {
    folder(NAME).join("checkpoint")
}

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

fn load(ops: &Cpu, folder: &Path) -> MiMoAudio<Cpu> {
    MiMoAudio::load(ops, &open(folder), WeightPolicy::default()).unwrap()
}

/// Settings with windows of these sizes.
fn settings(windows: [usize; 3]) -> EngineConfig {
    let mut config = EngineConfig { sessions: 2, out_of_band: 2, session_tokens: 1024, ..EngineConfig::default() };
    let options = &mut config.stages.entry("codec".to_owned()).or_default().options;
    options.extend(["left_codes", "right_codes", "new_codes"].map(str::to_owned).into_iter().zip(windows));
    config
}

/// Spectrogram of a recording, in pushes of uneven size.
fn mel(model: &MiMoAudio<Cpu>, audio: &[f32]) -> Vec<f32> {
    let (config, window) = &model.tokenizer.mel;
    let mut stream = LogMel::new(config, *window).unwrap().stream();
    let mut closed = Vec::new();
    for piece in audio.chunks(777) {
        stream.push(piece, &mut closed);
    }
    assert!(closed.is_empty(), "the recording is one window");
    stream.finish().unwrap().data
}

/// One position: a text token, or the codes of a patch.
#[derive(Debug, Clone)]
enum Position {
    Text(u32),
    Patch(Vec<u32>),
}

/// Positions of a run's prompt, or of what it says.
fn positions(expected: &Expected, run: &str, part: &str) -> Vec<Position> {
    let ids = |kind: &str| expected.ids(&format!("{run}.{part}_{kind}"));
    let (codes, shape) = ids("codes");
    let mut patches = codes.chunks_exact(shape[1]);
    let position = |id: u32| match id {
        EMPTY => Position::Patch(patches.next().unwrap().to_vec()),
        id => Position::Text(id),
    };
    ids("text").0.into_iter().map(position).collect()
}

/// Rows of the language model after its last norm.
fn hidden(ops: &Cpu, model: &MiMoAudio<Cpu>, positions: &[Position]) -> Tensor {
    let (mut ids, mut at, mut patches) = (Vec::new(), Vec::new(), Vec::new());
    for (row, position) in positions.iter().enumerate() {
        match position {
            Position::Text(id) => ids.push(*id),
            Position::Patch(codes) => {
                ids.push(NO_ID);
                at.push(row as u32);
                patches.push(&codes[..]);
            }
        }
    }
    let (mut spec, mut back) = (RowSpec::default(), ReadBack::default());
    let rows = ops.tensor(model.patch.encode(ops, &patches, &mut spec, &mut back), model.text.width());
    let x = model.text.embed(ops, &ops.list(&ids), Some((&ops.list(&at), &rows)));
    // Blocks out of order.
    let table: Vec<u32> = (0..positions.len().div_ceil(BLOCK) as u32).rev().collect();
    let mut cache = model.text.model.cache(ops, table.len(), BLOCK);
    let batch = ops.batch(&[SequenceRows { table: &table, position: 0, rows: positions.len() }]);
    let (x, _) = model.text.model.forward(ops, x, &mut cache, &batch, None);
    model.text.model.norm(ops, &x)
}

/// Greedy codes of each row, patch by patch, and the raw logits in the order of the draws.
fn codes(ops: &Cpu, model: &MiMoAudio<Cpu>, hidden: &Tensor) -> (Vec<u32>, Vec<f32>) {
    let (rows, depth) = (ops.rows(hidden), &model.depth);
    let mut layout = SpecLayout::default();
    let sections = depth.layout(&mut layout, rows);
    let mut spec = layout.spec();
    let greedy =
        SampleParams { slot: 0, repetition_penalty: 1.0, temperature: 0.0, top_k: 0, top_p: 1.0, uniform: 0.0 };
    depth.fill(&mut spec, &sections, |_| vec![greedy; rows]);
    let mut cache = depth.cache(ops, rows);
    let mut drawn = Vec::new();
    depth.draw(ops, (&ops.upload(&spec), &sections), hidden, None, &mut cache, |ids, raw| drawn.push((ids, raw)));
    let (mut patches, mut logits) = (vec![vec![0; FRAMES * depth.codebooks.len()]; rows], vec![Vec::new(); rows]);
    for (code, (ids, raw)) in depth.order().zip(drawn) {
        let (ids, raw) = (ops.read_list(&ids), ops.read(&raw));
        let entries = raw.len() / rows;
        for (row, (id, raw)) in ids.into_iter().zip(raw.chunks_exact(entries)).enumerate() {
            patches[row][code.frame * depth.codebooks.len() + code.codebook] = id;
            logits[row].extend_from_slice(raw);
        }
    }
    (patches.concat(), logits.concat())
}

/// Samples of a run's frames by the codec's stage; `piece` of them arrive at a time.
fn samples(folder: &Path, frames: &[Vec<u32>], windows: [usize; 3], piece: usize) -> Vec<f32> {
    let mut model = load_model(&open(folder), &settings(windows)).unwrap();
    let stage = model.stages[1].as_mut();
    let params = ResponseParams {
        response: 0,
        seed: 0,
        voice: "default".to_owned(),
        audio: true,
        streamed: false,
        tools: Vec::new().into(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 1000,
        sampling: None,
    };
    let mut out = Outbox::new();
    let mut arrive = |items: Vec<StageItem>| {
        items.into_iter().for_each(|item| stage.accept(1, item, &mut out));
        while stage.runnable_rows(1).rows > 0 {
            stage.launch(&[BatchEntry { slot: 1, rows: 1 }], &mut out);
            stage.collect(&mut out);
        }
    };
    arrive(vec![StageItem::Begin(params)]);
    for frames in frames.chunks(piece) {
        arrive(frames.iter().cloned().map(StageItem::Codes).collect());
    }
    arrive(vec![StageItem::End(StageEnd::Stop)]);
    assert!(matches!(out.last(), Some((1, StageItem::End(StageEnd::Stop)))), "{out:?}");
    let sound = |(_, item)| if let StageItem::Samples(samples) = item { samples } else { Vec::new() };
    out.into_iter().flat_map(sound).collect()
}

/// Frames of what a run says.
fn frames(expected: &Expected, run: &str) -> Vec<Vec<u32>> {
    let (codes, shape) = expected.ids(&format!("{run}.said_codes"));
    codes.chunks_exact(shape[1] / FRAMES).map(<[u32]>::to_vec).collect()
}

/// Part of the model whose output is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Hearing,
    Language,
    Codec,
}

/// Runs a part of a checkpoint on the fixture's inputs of these runs; each gets the derivation's output of the part before.
fn compare(folder: &Path, expected: &Expected, part: Part, runs: &[&str]) -> Findings {
    let ops = Cpu::default();
    let mut findings = Findings::new();
    for run in runs {
        let reference = |name: &str| expected.tensor(&format!("{run}.{name}")).0;
        let mut found = |name: &str, ours: &[f32]| {
            findings.push((format!("{run}.{name}"), difference(ours, &reference(name))));
        };
        if part == Part::Codec {
            found("samples", &samples(folder, &frames(expected, run), WINDOWS, 7));
            continue;
        }
        let model = load(&ops, folder);
        if part == Part::Hearing {
            let mel = mel(&model, &reference("audio"));
            found("mel", &mel);
            let (spec, back) = (&mut RowSpec::default(), &mut ReadBack::default());
            let encoded = model.encoder.encode(&ops, &mel, spec, back);
            found("encoded", &encoded.data);
            let codes = model.encoder.quantize(&ops, encoded, spec, back);
            let off = difference_of_ids(&codes.concat(), &expected.ids(&format!("{run}.codes")).0);
            let patches = patches(codes, FRAMES);
            let patches: Vec<&[u32]> = patches.iter().map(Vec::as_slice).collect();
            found("rows", &model.patch.encode(&ops, &patches, spec, back));
            findings.push((format!("{run}.codes"), off));
            continue;
        }
        let (prompt, said) = (positions(expected, run, "prompt"), positions(expected, run, "said"));
        let x = hidden(&ops, &model, &[&prompt[..], &said].concat());
        // Each position comes of the row before, and one more token ends the response.
        let first = prompt.len() as u32 - 1;
        let all = ops.gather_at(&x, &ops.list(&(first..=first + said.len() as u32).collect::<Vec<_>>()));
        found("text_logits", &ops.read(&model.text.head(&ops, &all)));
        let is_patch = |(_, position): &(u32, &Position)| matches!(position, Position::Patch(_));
        let before: Vec<u32> = (first..).zip(&said).filter(is_patch).map(|(row, _)| row).collect();
        let (codes, logits) = codes(&ops, &model, &ops.gather_at(&x, &ops.list(&before)));
        found("code_logits", &logits);
        let off = difference_of_ids(&codes, &expected.ids(&format!("{run}.said_codes")).0);
        findings.push((format!("{run}.said_codes"), off));
    }
    findings
}

#[test]
fn every_part_equals_the_derivation() {
    let expected = Expected::load(NAME);
    let mut findings = compare(&checkpoint(), &expected, Part::Hearing, &RUNS[..1]);
    findings.extend(compare(&checkpoint(), &expected, Part::Language, &RUNS));
    findings.extend(compare(&checkpoint(), &expected, Part::Codec, &RUNS));
    assert_eq!(findings.len(), 4 + 2 * 3 + 2);
    let off: Vec<_> = findings.iter().filter(|(_, off)| *off > TOLERANCE).collect();
    assert!(off.is_empty(), "{off:?} of {findings:?}");
}

/// Codebooks that the model has no codes for, and the sums of training, are not read.
fn is_unread(name: &str) -> bool {
    let codebook = name.strip_prefix("encoder.quantizer.vq.layers.").and_then(|rest| rest.split('.').next());
    codebook.is_some_and(|number| number.parse::<usize>().unwrap() >= 8)
}

#[test]
fn zeroing_any_block_is_noticed() {
    let expected = Expected::load(NAME);
    let copy = copy(&checkpoint());
    let (mut tried, mut unnoticed) = (0, Vec::new());
    for part in ["", SOUND] {
        let names: BTreeSet<String> = open(&checkpoint().join(part)).tensor_names().map(str::to_owned).collect();
        let file = copy.path().join(part).join("model.safetensors");
        let whole = std::fs::read(&file).unwrap();
        for name in names.iter().filter(|name| !is_unread(name)) {
            zero(&file, |tensor| tensor == name);
            let of = match part {
                "" => Part::Language,
                _ if name.starts_with("encoder.") => Part::Hearing,
                _ => Part::Codec,
            };
            if compare(copy.path(), &expected, of, &RUNS[..1]).iter().all(|(_, off)| *off <= TOLERANCE) {
                unnoticed.push(name.clone());
            }
            std::fs::write(&file, &whole).unwrap();
            tried += 1;
        }
    }
    assert!(unnoticed.is_empty(), "nothing differs although these are zero: {unnoticed:#?}");
    assert!(tried > 200, "{tried}");
}

#[test]
fn windows_depend_on_codes_alone() {
    let expected = Expected::load(NAME);
    let frames = frames(&expected, RUNS[0]);
    let whole = samples(&checkpoint(), &frames, WINDOWS, frames.len());
    for piece in [1, 4, 11] {
        assert!(samples(&checkpoint(), &frames, WINDOWS, piece) == whole, "{piece} frames at a time");
    }
    // Windows as long as the response are one decode.
    let reference = expected.tensor("turn0.whole").0;
    let once = samples(&checkpoint(), &frames, [1000, 40, 1000], 3);
    assert!(difference(&once, &reference) <= TOLERANCE, "{}", difference(&once, &reference));
    println!("distance of windows {WINDOWS:?} from one decode: {:.3}", difference(&whole, &once));
    let wider = samples(&checkpoint(), &frames, [32, 8, 5], 3);
    println!("distance of windows [32, 8, 5]: {:.3}", difference(&wider, &once));
}

#[test]
fn units_give_the_bits_of_whole_recordings() {
    let ops = Cpu::default();
    let sound = Expected::load(NAME).tensor("turn0.audio").0;
    let hearing = |most: usize, patch_work: usize| {
        let MiMoAudio { encoder, patch, config, .. } = load(&ops, &checkpoint());
        PatchHearing::new(&ops, encoder.with_units(most), Arc::clone(&patch), (patch_work, config.decoder.hidden))
    };
    let (model, mut whole) = (load(&ops, &checkpoint()), hearing(usize::MAX, 1));
    let (all, bins) = (mel(&model, &sound), model.encoder.tower().shape().bins);
    let frames = all.len() / bins;
    for (most, patch_work) in [(1, 1), (100_000, 1), (100_000, 100_000), (2_000_000, 1_000_000)] {
        let mut hearing = hearing(most, patch_work);
        for frames in [1, 3, 16, 17, frames / 2, frames - 1, frames] {
            let window = WindowInput { data: &all[..frames * bins], index: 0 };
            let rows = whole.encode(&[window]).pop().map(|rows| rows.rows);
            for units in [1, 3] {
                let mut progress = EncodingProgress::default();
                let in_units = loop {
                    assert!(progress.units < hearing.units(&window), "{} units", progress.units);
                    if let Some(rows) = hearing.advance(&window, &mut progress, units) {
                        break Some(rows);
                    }
                };
                assert_eq!(progress.units, hearing.units(&window));
                let numbers = |rows: Option<AudioRows>| rows.map(|rows| rows.rows);
                assert!(numbers(in_units) == rows, "{frames} frames in units of {most}");
            }
        }
    }
    let window = WindowInput { data: &all, index: 0 };
    assert!(whole.units(&window) == 1 && hearing(1, 1).units(&window) > 100);
}
