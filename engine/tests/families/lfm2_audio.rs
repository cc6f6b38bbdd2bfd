//! Parity of LFM2.5-Audio with its reference implementation on the same weights: each compared tensor is within 1e-4 of the
//! largest reference value, and text and codes are equal.
//!
//! - `mimi`: the older model's codec
//! - `responses`: output of the engine, and its prompts
//! - `refusals`: refused checkpoints
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod mimi;
mod refusals;
mod responses;

use std::collections::BTreeSet;
use std::path::Path;

use repartee_engine::internals::decoder::ConvSections;
use repartee_engine::internals::lfm2_audio::{Detokenizer, Lfm2Audio, RecordingMel};
use repartee_engine::internals::vocoder::frame_stage::FrameVocoder;
use repartee_engine::internals::{Checkpoint, EncodingProgress, FrontEnd};
use repartee_engine::{Source, WeightPolicy};
use repartee_engine_testkit::speech::{copy, difference_of_ids, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::{Cpu, Tensor};
use repartee_kernels::{NO_ID, Ops, ReadBack, RowSpec, SampleParams, SequenceRows, SpecLayout, StreamRows};
use repartee_kernels_testkit::host::HostOps;

/// Name of the fixture.
const NAME: &str = "lfm2_audio";
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;
/// Positions in a cache block.
const BLOCK: usize = 16;
/// Kinds of prompt positions in the fixture.
const TEXT: u32 = 1;
const HEARD: u32 = 2;
const RUNS: [&str; 4] = ["turn0", "turn1", "speech", "transcript"];

/// Compared tensors: name and difference (0 or infinite for ids).
type Findings = Vec<(String, f32)>;

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

fn load(ops: &Cpu, folder: &Path) -> Lfm2Audio<Cpu> {
    Lfm2Audio::load(ops, &open(folder), WeightPolicy::default()).unwrap()
}

fn checkpoint() -> std::path::PathBuf {
    folder(NAME).join("checkpoint")
}

/// Spectrogram of a recording, in pushes of uneven size.
fn mel(model: &Lfm2Audio<Cpu>, audio: &[f32]) -> Vec<f32> {
    let mut stream = RecordingMel::new(model.config.mel.clone()).stream();
    let mut closed = Vec::new();
    for piece in audio.chunks(777) {
        stream.push(piece, &mut closed);
    }
    assert!(closed.is_empty(), "the recording is one window");
    stream.finish().unwrap().data
}

/// One position of a run: its kind, and its token or codes.
#[derive(Debug, Clone)]
enum Position {
    Text(u32),
    Heard(usize),
    Frame(Vec<u32>),
}

/// Positions of a run's prompt, and of its response; the kinds of the sampled ones.
fn positions(expected: &Expected, run: &str, codebooks: usize) -> (Vec<Position>, Vec<Position>) {
    let ids = |name: &str| expected.ids(&format!("{run}.{name}")).0;
    let order = |kinds: Vec<u32>, text: Vec<u32>, codes: Vec<u32>, is_text: &dyn Fn(u32) -> bool| {
        let (mut text, mut frames) =
            (text.into_iter(), codes.chunks_exact(codebooks).map(<[u32]>::to_vec).collect::<Vec<_>>().into_iter());
        let mut heard = 0..;
        let position = |kind: u32| match kind {
            kind if is_text(kind) => Position::Text(text.next().unwrap()),
            HEARD => Position::Heard(heard.next().unwrap()),
            _ => Position::Frame(frames.next().unwrap()),
        };
        let all: Vec<_> = kinds.into_iter().map(position).collect();
        assert!(text.next().is_none() && frames.next().is_none());
        all
    };
    let prompt = order(ids("prompt_kinds"), ids("prompt_text"), ids("prompt_codes"), &|kind| kind == TEXT);
    let said = order(ids("kinds"), ids("text"), ids("frames"), &|kind| kind == 0);
    (prompt, said)
}

/// Rows of the language model after its last norm, computed in steps of `rows` positions.
fn hidden(ops: &Cpu, model: &Lfm2Audio<Cpu>, positions: &[Position], heard: &Tensor, rows: usize) -> Tensor {
    let lfm = &model.lfm;
    // Blocks out of order.
    let table: Vec<u32> = (0..positions.len().div_ceil(BLOCK) as u32).rev().collect();
    let mut cache = lfm.model.cache(ops, table.len(), BLOCK);
    let mut all = Vec::new();
    for (step, positions) in positions.chunks(rows).enumerate() {
        let sequence = SequenceRows { table: &table, position: step * rows, rows: positions.len() };
        let mut layout = SpecLayout::default();
        let conv = ConvSections::new(&mut layout, positions.len(), lfm.model.conv_taps().unwrap());
        let mut spec = layout.spec();
        conv.fill(&mut spec, &[sequence], BLOCK);
        let conv = conv.rows(ops, &ops.upload(&spec));
        let id = |position: &Position| if let Position::Text(id) = position { *id } else { NO_ID };
        let ids: Vec<u32> = positions.iter().map(id).collect();
        let (mut at, mut rows) = (Vec::new(), Vec::new());
        for (row, position) in positions.iter().enumerate() {
            if let Position::Heard(heard) = position {
                at.push(row as u32);
                rows.push(*heard as u32);
            }
        }
        let rows = ops.gather_at(heard, &ops.list(&rows));
        let mut x = lfm.embed(ops, &ops.list(&ids), Some((&ops.list(&at), &rows)));
        for (codebook, table) in model.tables.iter().enumerate() {
            let code =
                |position: &Position| if let Position::Frame(codes) = position { codes[codebook] } else { NO_ID };
            let codes: Vec<u32> = positions.iter().map(code).collect();
            x = ops.add(x, &ops.embed_at(table, &ops.list(&codes)));
        }
        let batch = ops.batch(&[sequence]);
        let (x, _) = lfm.model.forward_with(ops, x, &mut cache, (&batch, Some(&conv)), None);
        all.extend(ops.read(&lfm.model.norm(ops, &x)));
    }
    ops.tensor(all, lfm.width())
}

/// Greedy codes of each row, and the raw logits, `[rows, codebooks, entries]`.
fn codes(ops: &Cpu, model: &Lfm2Audio<Cpu>, hidden: &Tensor) -> (Vec<Vec<u32>>, Vec<f32>) {
    let rows = ops.rows(hidden);
    let mut layout = SpecLayout::default();
    let sections = model.depth.layout(&mut layout, rows);
    let mut spec = layout.spec();
    let greedy =
        SampleParams { slot: 0, repetition_penalty: 1.0, temperature: 0.0, top_k: 0, top_p: 1.0, uniform: 0.0 };
    model.depth.fill(&mut spec, &sections, |_| vec![greedy; rows]);
    let (mut codes, mut logits) = (vec![Vec::new(); rows], vec![Vec::new(); rows]);
    let mut cache = model.depth.cache(ops, rows);
    let mut drawn = Vec::new();
    model.depth.draw(ops, (&ops.upload(&spec), &sections), hidden, None, &mut cache, |ids, raw| drawn.push((ids, raw)));
    for (ids, raw) in drawn {
        let (ids, raw) = (ops.read_list(&ids), ops.read(&raw));
        for (row, (id, raw)) in ids.into_iter().zip(raw.chunks_exact(model.config.entries)).enumerate() {
            codes[row].push(id);
            logits[row].extend_from_slice(raw);
        }
    }
    (codes, logits.concat())
}

/// Frames of a response but the end of the speech.
fn spoken(said: &[Position], end: u32) -> Vec<Vec<u32>> {
    let frame = |position: &Position| match position {
        Position::Frame(codes) if codes[0] != end => Some(codes.clone()),
        _ => None,
    };
    said.iter().filter_map(frame).collect()
}

/// Decodes frames in pieces of these sizes, in turn.
fn decode(ops: &Cpu, model: &Lfm2Audio<Cpu>, frames: &[Vec<u32>], pieces: &[usize]) -> Vec<f32> {
    match &model.detokenizer {
        Detokenizer::Layered(layered) => decode_by(layered.as_ref(), ops, frames, pieces),
        Detokenizer::Mimi(mimi) => decode_by(mimi.as_ref(), ops, frames, pieces),
    }
}

fn decode_by<V: FrameVocoder<Cpu>>(vocoder: &V, ops: &Cpu, frames: &[Vec<u32>], pieces: &[usize]) -> Vec<f32> {
    let mut state = vocoder.state(ops, 3, *pieces.iter().max().unwrap());
    let (mut stream, mut samples, mut position) = (V::Stream::default(), Vec::new(), 0);
    for piece in pieces.iter().cycle() {
        let frames = &frames[position..(position + piece).min(frames.len())];
        if frames.is_empty() {
            break;
        }
        let chunk = StreamRows { slot: 1, position, rows: frames.len() };
        let books = 0..vocoder.codebooks().0;
        let codes: Vec<Vec<u32>> = books.map(|book| frames.iter().map(|frame| frame[book]).collect()).collect();
        let mut layout = SpecLayout::default();
        let sections = vocoder.layout(&state, &mut layout, frames.len());
        let mut spec = layout.spec();
        vocoder.fill(&mut spec, &sections, &state, &codes, &[chunk]);
        let numbers = vocoder.forward(ops, (&ops.upload(&spec), &sections), &mut state);
        samples.extend(vocoder.samples(&mut stream, chunk, &ops.read(&numbers)));
        position += frames.len();
    }
    samples.extend(vocoder.rest(&mut stream));
    samples
}

/// Part of the model whose output is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Encoder,
    Language,
    Detokenizer,
}

/// Runs a part of a checkpoint on the fixture's inputs of these runs; each gets the reference's output of the part before.
fn compare(folder: &Path, expected: &Expected, part: Part, runs: &[&str]) -> Findings {
    let ops = Cpu::default();
    let model = load(&ops, folder);
    let end = model.config.entries as u32 - 1;
    let mut findings = Findings::new();
    for run in runs {
        let reference = |name: &str| expected.tensor(&format!("{run}.{name}")).0;
        let mut found = |name: &str, ours: &[f32]| {
            findings.push((format!("{run}.{name}"), difference(ours, &reference(name))));
        };
        if part == Part::Encoder {
            let mel = mel(&model, &reference("audio"));
            found("encoded", &model.conformer.encode(&ops, &mel, &mut RowSpec::default(), &mut ReadBack::default()));
            if *run == "turn0" {
                found("mel", &mel);
            }
            continue;
        }
        let (prompt, said) = positions(expected, run, model.config.codebooks);
        if part == Part::Detokenizer {
            found("waveform", &decode(&ops, &model, &spoken(&said, end), &[said.len()]));
            continue;
        }
        let hears = prompt.iter().any(|position| matches!(position, Position::Heard(_)));
        let heard = if *run == "transcript" { *run } else { "turn0" };
        let heard = expected.tensor(&format!("{heard}.encoded")).0;
        let heard = if hears { heard } else { vec![0.0; model.lfm.width()] };
        let all = [&prompt[..], &said].concat();
        let x = hidden(&ops, &model, &all, &ops.tensor(heard, model.lfm.width()), all.len());
        // Each sampled position comes of the row before.
        let rows = |is_text: bool| -> Vec<u32> {
            let sampled = said.iter().enumerate();
            let sampled = sampled.filter(|(_, position)| matches!(position, Position::Text(_)) == is_text);
            sampled.map(|(at, _)| (prompt.len() + at - 1) as u32).collect()
        };
        found("text_logits", &ops.read(&model.lfm.head(&ops, &ops.gather_at(&x, &ops.list(&rows(true))))));
        let frames = rows(false);
        if frames.is_empty() {
            continue;
        }
        let (codes, logits) = codes(&ops, &model, &ops.gather_at(&x, &ops.list(&frames)));
        found("code_logits", &logits);
        let ended = |codes: Vec<u32>| if codes[0] == end { vec![end; codes.len()] } else { codes };
        let codes: Vec<u32> = codes.into_iter().flat_map(ended).collect();
        let off = difference_of_ids(&codes, &expected.ids(&format!("{run}.frames")).0);
        findings.push((format!("{run}.frames"), off));
    }
    findings
}

#[test]
fn every_part_equals_the_reference() {
    let expected = Expected::load(NAME);
    let mut findings = compare(&checkpoint(), &expected, Part::Encoder, &["turn0", "transcript"]);
    findings.extend(compare(&checkpoint(), &expected, Part::Language, &RUNS));
    findings.extend(compare(&checkpoint(), &expected, Part::Detokenizer, &RUNS[..3]));
    assert_eq!(findings.len(), 3 + 4 + 2 * 3 + 3);
    let off: Vec<_> = findings.iter().filter(|(_, off)| *off > TOLERANCE).collect();
    assert!(off.is_empty(), "{off:?} of {findings:?}");
}

/// A bias of the keys adds the same to all scores of a query, which softmax ignores. The detokenizer has a table of tokens
/// that the reference does not read either.
fn is_invariant(part: &str, block: &str) -> bool {
    block.ends_with("self_attn.linear_k.bias") || (!part.is_empty() && block == "lfm.embed_tokens.weight")
}

#[test]
fn zeroing_any_block_is_noticed() {
    let expected = Expected::load(NAME);
    let (mut tried, mut unnoticed) = (0, Vec::new());
    for part in ["", "audio_detokenizer"] {
        let names: BTreeSet<String> = open(&checkpoint().join(part)).tensor_names().map(str::to_owned).collect();
        for name in names.iter().filter(|name| !is_invariant(part, name)) {
            let copy = copy(&checkpoint());
            zero(&copy.path().join(part).join("model.safetensors"), |tensor| tensor == name);
            let of = match part {
                "" if name.starts_with("conformer.") || name.starts_with("audio_adapter.") => Part::Encoder,
                "" => Part::Language,
                _ => Part::Detokenizer,
            };
            if compare(copy.path(), &expected, of, &RUNS[..1]).iter().all(|(_, off)| *off <= TOLERANCE) {
                unnoticed.push(name.clone());
            }
            tried += 1;
        }
    }
    assert!(unnoticed.is_empty(), "nothing differs although these are zero: {unnoticed:#?}");
    assert!(tried > 150, "{tried}");
}

#[test]
fn any_split_of_positions_gives_equal_bits() {
    let (ops, expected) = (Cpu::default(), Expected::load(NAME));
    let model = load(&ops, &checkpoint());
    let (prompt, said) = positions(&expected, "turn1", model.config.codebooks);
    let (rows, shape) = expected.tensor("turn0.encoded");
    let heard = ops.tensor(rows, shape[1]);
    let all = [prompt, said].concat();
    let whole = ops.read(&hidden(&ops, &model, &all, &heard, all.len()));
    for rows in [1, 2, 3, 15, 16, 17] {
        assert!(ops.read(&hidden(&ops, &model, &all, &heard, rows)) == whole, "{rows} positions at a time");
    }
}

#[test]
fn any_split_of_frames_gives_equal_bits() {
    let (ops, expected) = (Cpu::default(), Expected::load(NAME));
    let model = load(&ops, &checkpoint());
    let (_, said) = positions(&expected, "turn0", model.config.codebooks);
    let frames = spoken(&said, model.config.entries as u32 - 1);
    let whole = decode(&ops, &model, &frames, &[frames.len()]);
    for pieces in [&[1][..], &[2], &[3, 1], &[7], &[16, 1]] {
        assert!(decode(&ops, &model, &frames, pieces) == whole, "{pieces:?} frames at a time");
    }
}

#[test]
fn units_give_the_bits_of_whole_recordings() {
    let ops = Cpu::default();
    let model = load(&ops, &checkpoint());
    let bins = model.config.mel.bins;
    let sound = Expected::load(NAME).tensor("turn0.audio").0;
    let all = mel(&model, &sound);
    let (mut spec, mut back) = (RowSpec::default(), ReadBack::default());
    let conformer = model.conformer.with_units(usize::MAX);
    let frames = all.len() / bins;
    let lengths = [1, 7, 8, 9, 17, 40, frames - 1, frames];
    let whole = lengths.map(|frames| conformer.encode(&ops, &all[..frames * bins], &mut spec, &mut back));
    for most in [1, 10_000, 100_000, 1_000_000] {
        let conformer = load(&ops, &checkpoint()).conformer.with_units(most);
        for (frames, whole) in lengths.into_iter().zip(&whole) {
            for units in [1, 3] {
                let mut progress = EncodingProgress::default();
                let rows = loop {
                    assert!(progress.units < conformer.units(frames), "{} units", progress.units);
                    let mel = &all[..frames * bins];
                    let done = conformer.advance(&ops, mel, &mut progress, units, (&mut spec, &mut back));
                    if let Some(rows) = done {
                        break rows;
                    }
                };
                assert_eq!(progress.units, conformer.units(frames));
                assert!(rows == *whole, "{frames} frames in units of {most}");
            }
        }
    }
    assert!(conformer.units(frames) == 1 && load(&ops, &checkpoint()).conformer.with_units(1).units(frames) > 100);
}
