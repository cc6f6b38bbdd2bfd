//! Parity of Qwen2.5-Omni's token2wav with its reference implementation on the same weights: each compared tensor is
//! within 1e-4 of the largest reference value. As a stream, any split of the codes, any batch and any number of threads
//! give equal bits.
//!
//! - `streaming`: the stages
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod streaming;

use std::collections::BTreeSet;
use std::path::Path;

use repartee_engine::Source;
use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::qwen2_5_omni::{
    BigVgan, Dit, DitConfig, DitWindow, GUIDANCE, HostRows, Prepared, Solve, Solver, SpeakerEncoder, Token2Wav,
    Token2WavConfig, Voice, Window,
};
use repartee_engine::internals::weights::Weights;
use repartee_engine_testkit::speech::{self, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::{Ops, ReadBack, SpecLayout, StepKey};
use serde_json::json;

/// Name of the fixture.
const NAME: &str = "omni25_token2wav";
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;

/// Compared tensors: name and difference.
type Findings = Vec<(&'static str, f32)>;

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

fn checkpoint() -> Checkpoint {
    open(&folder(NAME).join("checkpoint"))
}

fn voice(expected: &Expected) -> Voice {
    let numbers = |name: &str| expected.tensor(name).0;
    Voice { name: "ada".to_owned(), conditioning: numbers("conditioning"), reference_mel: numbers("reference_mel") }
}

fn load(ops: &Cpu, checkpoint: &Checkpoint, voices: &[Voice]) -> Token2Wav<Cpu> {
    let config = Token2WavConfig::load(checkpoint).unwrap();
    Token2Wav::load((ops, ops), checkpoint, &config, voices).unwrap()
}

/// Rows of one evaluation of several windows.
fn evaluate(ops: &Cpu, dit: &Dit<Cpu>, windows: &[DitWindow<'_>]) -> Vec<f32> {
    let mut layout = SpecLayout::default();
    let rows = dit.rows(windows);
    let places = dit.layout(&mut layout, rows);
    let mut spec = layout.spec();
    dit.fill(&mut spec, &places, windows);
    let ticket = ops.launch(StepKey { stage: "dit", rows, variant: 0 }, &spec, &mut |ops, spec, outputs| {
        outputs.rows.push(dit.forward(ops, spec, &places));
    });
    let mut back = ReadBack::default();
    ops.collect(ticket, &mut back);
    back.numbers
}

/// Spectrogram of codes that are solved as one window, from `noise`.
fn solve(ops: &Cpu, dit: &Dit<Cpu>, solver: &Solver, (codes, voice): (&[u32], usize), noise: &[f32]) -> Vec<f32> {
    let mut solve = Solve::new(noise.to_vec());
    loop {
        let mel = solve.input(solver);
        let rows = evaluate(ops, dit, &[DitWindow { codes, voice, mel: &mel, time: solve.time(solver) }]);
        if let Some(mel) = solve.advance(solver, GUIDANCE.combine(&rows)) {
            return mel.to_vec();
        }
    }
}

/// Spectrogram of codes, each block solved on its window, from the noise of all frames.
fn solve_windows(
    ops: &Cpu,
    model: &Token2Wav<Cpu>,
    (codes, voice): (&[u32], usize),
    noise: impl Fn(usize, usize) -> Vec<f32>,
) -> Vec<f32> {
    let config = &model.config.dit;
    let of = |codes: usize| codes * config.repeats;
    let mut mel = Vec::new();
    let mut block = 0;
    while let Some(window) = Window::of(config, block, codes.len(), true) {
        let noise = noise(of(window.from), of(window.codes()));
        let codes = &codes[window.from..window.to];
        let solved = solve(ops, &model.dit, &model.solver, (codes, voice), &noise);
        let at = |code: usize| of(code - window.from) * config.mel_dim;
        mel.extend_from_slice(&solved[at(window.block)..at(window.block_end)]);
        block = window.block_end;
    }
    mel
}

/// Samples of spectrograms, decoded in one batch.
fn vocode(ops: &Cpu, bigvgan: &BigVgan<Cpu>, mels: &[&[f32]]) -> Vec<Vec<f32>> {
    let frames: Vec<usize> = mels.iter().map(|mel| mel.len() / bigvgan.config().mel_dim).collect();
    let rows = frames.iter().sum();
    let mut layout = SpecLayout::default();
    let places = bigvgan.layout(&mut layout, rows, mels.len());
    let mut spec = layout.spec();
    bigvgan.fill(&mut spec, &places, &mels.concat(), &frames);
    let ticket = ops.launch(StepKey { stage: "bigvgan", rows, variant: 0 }, &spec, &mut |ops, spec, outputs| {
        outputs.rows.push(bigvgan.forward(ops, spec, &places));
    });
    let mut back = ReadBack::default();
    ops.collect(ticket, &mut back);
    let mut rest = &back.numbers[..];
    let samples = frames.iter().map(|frames| {
        let (mine, after) = rest.split_at(frames * bigvgan.config().samples_per_frame());
        rest = after;
        mine.to_vec()
    });
    samples.collect()
}

/// Runs every part of a checkpoint on the fixture's inputs.
fn compare(checkpoint: &Checkpoint, expected: &Expected) -> Findings {
    let mut findings = compare_but_windows(checkpoint, expected);
    let ops = Cpu::default();
    let model = load(&ops, checkpoint, &[voice(expected)]);
    let (codes, noise) = (expected.ids("codes").0, expected.tensor("noise").0);
    let of = |frames: usize| frames * model.config.dit.mel_dim;
    let windowed =
        solve_windows(&ops, &model, (&codes, 0), |first, count| noise[of(first)..of(first + count)].to_vec());
    let samples = vocode(&ops, &model.bigvgan, &[&windowed]).remove(0);
    findings.push(("windowed", difference(&windowed, &expected.tensor("windowed").0)));
    findings.push(("windowed_waveform", difference(&samples, &expected.tensor("windowed_waveform").0)));
    findings
}

/// Like [`compare`], without the solves of single windows.
fn compare_but_windows(checkpoint: &Checkpoint, expected: &Expected) -> Findings {
    let ops = Cpu::default();
    let voice = voice(expected);
    let model = load(&ops, checkpoint, std::slice::from_ref(&voice));
    let config = &model.config.dit;
    let w = Weights::new(&ops, checkpoint).at("token2wav.code2wav_dit_model");
    let encoder = SpeakerEncoder::load(&w.at("input_embed.spk_encoder"), &config.speaker).unwrap();
    let reference = HostRows { width: config.mel_dim, data: voice.reference_mel.clone() };
    let speaker = encoder.forward(&ops, &reference);
    let no_speaker = encoder.forward(&ops, &reference.map(|_| 0.0));

    let (codes, noise) = (expected.ids("codes").0, expected.tensor("noise").0);
    let time = expected.facts["time"].as_f64().unwrap() as f32;
    let prepared = Prepared::compute(&ops, &w, config, &[time], &[voice]).unwrap();
    let dit = Dit::load(&w, config, &prepared).unwrap();
    let rows = evaluate(&ops, &dit, &[DitWindow { codes: &codes, voice: 0, mel: &noise, time: 0 }]);
    let (guided, null) = rows.split_at(rows.len() / 2);

    let solved = solve(&ops, &model.dit, &model.solver, (&codes, 0), &noise);
    let decoded = |mel: &[f32]| vocode(&ops, &model.bigvgan, &[mel]).remove(0);
    let found = [
        ("speaker", speaker),
        ("no_speaker", no_speaker),
        ("evaluation.guided", guided.to_vec()),
        ("evaluation.null", null.to_vec()),
        ("vocoded", decoded(&expected.tensor("mel").0)),
        ("waveform", decoded(&solved)),
        ("solved", solved),
    ];
    found.into_iter().map(|(name, found)| (name, difference(&found, &expected.tensor(name).0))).collect()
}

#[test]
fn every_tensor_equals_the_reference() {
    let findings = compare(&checkpoint(), &Expected::load(NAME));
    for (what, off) in &findings {
        println!("{what:20} {off:.1e}");
    }
    let wrong: Vec<_> = findings.iter().filter(|(_, off)| *off > TOLERANCE).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn zeroing_any_block_is_noticed() {
    let (expected, original) = (Expected::load(NAME), folder(NAME).join("checkpoint"));
    let checkpoint = open(&original);
    let blocks = checkpoint.tensor_names().filter_map(|name| name.rsplit_once('.'));
    let blocks: BTreeSet<_> = blocks.map(|(module, _)| module).collect();
    let mut unnoticed = Vec::new();
    for block in &blocks {
        let copy = speech::copy(&original);
        zero(&copy.path().join("model.safetensors"), |tensor| {
            tensor.rsplit_once('.').is_some_and(|(module, _)| module == *block)
        });
        if compare_but_windows(&open(copy.path()), &expected).iter().all(|(_, off)| *off <= TOLERANCE) {
            unnoticed.push(block);
        }
    }
    println!("{} blocks", blocks.len());
    assert!(unnoticed.is_empty(), "nothing differs although these are zero: {unnoticed:#?}");
    assert!(blocks.len() > 150, "{}", blocks.len());
}

/// Copies the fixture's checkpoint with one field of a part's configuration changed.
fn with_field(part: &str, field: &str, value: &serde_json::Value) -> tempfile::TempDir {
    let copy = speech::copy(&folder(NAME).join("checkpoint"));
    let path = copy.path().join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["token2wav_config"][part][field] = value.clone();
    std::fs::write(&path, config.to_string()).unwrap();
    copy
}

#[test]
fn sizes_that_are_not_built_are_refused() {
    let (dit, bigvgan) = ("dit_config", "bigvgan_config");
    for (part, field, value) in [
        (dit, "hidden_size", json!(0)),
        (dit, "num_hidden_layers", json!(0)),
        (dit, "num_attention_heads", json!(1)),
        (dit, "head_dim", json!(7)),
        (dit, "block_size", json!(7)),
        (dit, "repeats", json!(0)),
        (dit, "look_ahead_layers", json!([5])),
        (dit, "look_backward_layers", json!([3, 0])),
        (dit, "num_embeds", json!(0)),
        (dit, "enc_channels", json!([16, 16, 16, 16, 47])),
        (dit, "enc_kernel_sizes", json!([5, 3])),
        (dit, "enc_res2net_scale", json!(1)),
        (bigvgan, "mel_dim", json!(13)),
        (bigvgan, "upsample_initial_channel", json!(44)),
        (bigvgan, "upsample_rates", json!([5, 3, 0])),
        (bigvgan, "upsample_kernel_sizes", json!([11, 7, 5])),
        (bigvgan, "upsample_kernel_sizes", json!([3, 7, 4])),
        (bigvgan, "resblock_kernel_sizes", json!([3, 7, 10])),
        (bigvgan, "resblock_dilation_sizes", json!([[1, 3], [1, 3], [1, 3]])),
    ] {
        let copy = with_field(part, field, &value);
        let error = Token2WavConfig::load(&open(copy.path())).unwrap_err().to_string();
        assert!(error.contains("config.json") && error.contains(&format!("{part}.{field}")), "{value}: {error}");
    }
    let (ops, expected) = (Cpu::default(), Expected::load(NAME));
    let copy = with_field(dit, "ff_mult", &json!(3));
    let checkpoint = open(copy.path());
    let config = Token2WavConfig::load(&checkpoint).unwrap();
    let error = Token2Wav::load((&ops, &ops), &checkpoint, &config, &[voice(&expected)]).err().unwrap().to_string();
    assert!(error.contains("transformer_blocks.0.ff.ff.0.weight"), "{error}");
}

#[test]
fn absent_fields_have_the_published_sizes() {
    let copy = tempfile::tempdir().unwrap();
    std::fs::write(copy.path().join("config.json"), "{}").unwrap();
    std::fs::copy(folder(NAME).join("checkpoint/model.safetensors"), copy.path().join("model.safetensors")).unwrap();
    let config = Token2WavConfig::load(&open(copy.path())).unwrap();
    let block = config.dit.block_size;
    let (before, after) = config.dit.window_blocks();
    assert_eq!((block, before * block, after * block), (24, 48, 24));
    assert_eq!((config.bigvgan.samples_per_frame(), config.bigvgan.context()), (240, (34, 34)));
}

#[test]
fn voices_that_do_not_fit_are_told() {
    let config = Token2WavConfig::load(&checkpoint()).unwrap().dit;
    let good = voice(&Expected::load(NAME));
    assert!(good.fits(&config));
    let (mel, own) = (&good.reference_mel, &good.conditioning);
    let with = |conditioning: &[f32], mel: &[f32]| {
        let (conditioning, reference_mel) = (conditioning.to_vec(), mel.to_vec());
        Voice { name: good.name.clone(), conditioning, reference_mel }.fits(&config)
    };
    assert!(!with(&own[1..], mel) && !with(own, &mel[1..]) && !with(own, &[]));
    assert!(!with(own, &mel[..4 * config.mel_dim]) && with(own, &mel[..5 * config.mel_dim]));
    assert!(!with(&vec![f32::NAN; own.len()], mel) && !with(own, &vec![f32::INFINITY; mel.len()]));
}

/// Root of the mean square difference, relative to that of the reference.
fn distance(ours: &[f32], reference: &[f32]) -> f64 {
    let square = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let off = square(&mut ours.iter().zip(reference).map(|(a, b)| a - b));
    (off / square(&mut reference.iter().copied())).sqrt()
}

#[test]
fn windowed_sound_stays_near_the_whole() {
    let (ops, expected) = (Cpu::default(), Expected::load(NAME));
    let model = load(&ops, &checkpoint(), &[voice(&expected)]);
    let (codes, noise) = (expected.ids("codes").0, expected.tensor("noise").0);
    let of = |frames: usize| frames * model.config.dit.mel_dim;
    let windowed =
        solve_windows(&ops, &model, (&codes, 0), |first, count| noise[of(first)..of(first + count)].to_vec());
    let samples = vocode(&ops, &model.bigvgan, &[&windowed]).remove(0);
    let off = [
        ("mel", distance(&windowed, &expected.tensor("solved").0)),
        ("waveform", distance(&samples, &expected.tensor("waveform").0)),
    ];
    for (what, off) in off {
        let reference = expected.facts["windowed_from_whole"][what].as_f64().unwrap();
        println!(
            "windowed {what} lies {off:.2e} from the reference's whole solve (the reference's own windows: {reference:.2e})"
        );
        // Frozen: the reference's own distance and a tenth.
        assert!(off < 1.1 * reference, "{what}");
        assert!(off > 0.9 * reference, "{what}: the windows are not those of the reference");
    }
}

/// Mel frames that do not depend on frames outside of a window equal those of the whole.
#[test]
fn one_evaluation_needs_no_more_than_its_window() {
    let (ops, expected) = (Cpu::default(), Expected::load(NAME));
    let model = load(&ops, &checkpoint(), &[voice(&expected)]);
    let config: &DitConfig = &model.config.dit;
    let codes: Vec<u32> = (0..8 * config.block_codes()).map(|i| (i * 7 % config.num_embeds) as u32).collect();
    let width = config.repeats * config.mel_dim;
    let noise: Vec<f32> = (0..codes.len() * width).map(|i| ((i * 37 % 101) as f32 - 50.0) / 30.0).collect();
    let all = |codes: std::ops::Range<usize>| codes.start * width..codes.end * width;
    let slopes = |from: usize, to: usize| {
        let mel = &noise[all(from..to)];
        let rows = evaluate(&ops, &model.dit, &[DitWindow { codes: &codes[from..to], voice: 0, mel, time: 5 }]);
        GUIDANCE.combine(&rows)
    };
    let whole = slopes(0, codes.len());
    for block in (0..codes.len()).step_by(config.block_codes()) {
        let window = Window::of(config, block, codes.len(), true).unwrap();
        let part = slopes(window.from, window.to);
        let mine = &part[all(window.block - window.from..window.block_end - window.from)];
        assert!(difference(mine, &whole[all(window.block..window.block_end)]) < 1e-5, "block at code {block}");
    }
    // A window shorter by a block on either side is not enough.
    let size = config.block_codes();
    for (from, to) in [(3 * size, 6 * size), (2 * size, 5 * size)] {
        let part = slopes(from, to);
        let off = difference(&part[all(4 * size - from..5 * size - from)], &whole[all(4 * size..5 * size)]);
        assert!(off > 1e-4, "codes {from}..{to}: {off:.1e}");
    }
}

#[test]
fn vocoder_reads_as_far_as_its_context() {
    let (ops, expected) = (Cpu::default(), Expected::load(NAME));
    let model = load(&ops, &checkpoint(), &[voice(&expected)]);
    let (bigvgan, width) = (&model.bigvgan, model.config.bigvgan.mel_dim);
    let ((context, _), frame) = (bigvgan.context(), model.config.bigvgan.samples_per_frame());
    let mel =
        |frames: usize| -> Vec<f32> { (0..frames * width).map(|i| ((i * 37 % 101) as f32 - 70.0) / 10.0).collect() };
    let whole = mel(2 * context + 9);
    let samples = vocode(&ops, bigvgan, &[&whole]).remove(0);
    // Decoded with exactly the context on either side, and together with another window: equal bits.
    for at in [context, context + 4] {
        let window = &whole[(at - context) * width..(at + 5 + context) * width];
        let found = vocode(&ops, bigvgan, &[&mel(7), window]).remove(1);
        assert!(found[context * frame..(context + 5) * frame] == samples[at * frame..(at + 5) * frame], "frame {at}");
    }
    // Frames beyond the context are not read. Those at its very ends have too small an effect to measure; nearer ones
    // change the samples.
    let at = context + 4;
    for (changed, read) in
        [(at - context - 1, false), (at + context + 1, false), (at - context / 2, true), (at + context / 2, true)]
    {
        let mut other = whole.clone();
        other[changed * width..(changed + 1) * width].iter_mut().for_each(|value| *value = 4.0);
        let found = vocode(&ops, bigvgan, &[&other]).remove(0);
        let same = found[at * frame..(at + 1) * frame] == samples[at * frame..(at + 1) * frame];
        assert_eq!(same, !read, "frame {changed} of those that frame {at} reads");
    }
}
