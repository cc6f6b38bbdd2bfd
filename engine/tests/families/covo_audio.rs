//! Parity of Covo-Audio-Chat with a derivation in torch on the same weights: ids are equal, and each compared tensor is within 1e-4 of
//! the largest reference value.
//!
//! - `responses`: output of the engine, its prompts, and what is cached
//! - `refusals`: refused checkpoints, licences and codes
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod refusals;
mod responses;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use repartee_checkpoint::pickle::PickleValue;
use repartee_engine::internals::autoregressive::BLOCK;
use repartee_engine::internals::covo_audio::{CovoAudio, PaddedFrontEnd, PaddedHearing};
use repartee_engine::internals::{
    BatchEntry, Checkpoint, Encoder, EncodingProgress, FrontEndStream, LogMel, LogMelConfig, Model, Outbox,
    ResponseParams, StageEnd, StageItem, WindowInput, load_model,
};
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::AnswerForm;
use repartee_engine_testkit::speech::{copy, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::{NO_ID, Ops, ReadBack, RowSpec, SequenceRows};
use repartee_kernels_testkit::host::HostOps;

/// Name of the fixture, and of its licence.
const NAME: &str = "covo_audio";
const LICENCE: &str = "covo-audio";
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;
const RUNS: [&str; 2] = ["turn0", "turn1"];
/// Id that stands for audio in the fixture's prompts, and id of code 0.
const AUDIO: u32 = 4;
const FIRST_CODE: u32 = 400;
/// Mel bins of the fixture, and frames of a window of hearing.
const BINS: usize = 64;
const WINDOW: usize = 160;
/// Settings of the fixture's windows.
const WINDOWS: [(&str, usize); 3] = [("left_codes", 6), ("new_codes", 5), ("ahead_codes", 2)];

/// Compared tensors: name and difference.
type Findings = Vec<(String, f32)>;

fn checkpoint() -> PathBuf {
    folder(NAME).join("checkpoint")
}

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

fn load(ops: &Cpu, folder: &Path) -> CovoAudio<Cpu> {
    CovoAudio::load((ops, ops), &open(folder), WeightPolicy::default()).unwrap()
}

/// Settings with these codes of a window: left, new, ahead.
fn settings(windows: [(&str, usize); 3]) -> EngineConfig {
    let mut config = EngineConfig {
        sessions: 2,
        out_of_band: 2,
        session_tokens: 1024,
        accept_licence: vec![LICENCE.to_owned()],
        ..EngineConfig::default()
    };
    let options = windows.map(|(name, codes)| (name.to_owned(), codes));
    config.stages.entry("flow".to_owned()).or_default().options.extend(options);
    config
}

fn params() -> ResponseParams {
    ResponseParams {
        response: 0,
        seed: 0,
        voice: "default_female".to_owned(),
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
fn windows(folder: &Path, audio: &[f32]) -> Vec<Vec<f32>> {
    let config = LogMelConfig::load(&open(folder), BINS).unwrap();
    let mut stream = PaddedFrontEnd(LogMel::new(&config, WINDOW).unwrap()).stream();
    let mut closed = Vec::new();
    audio.chunks(777).for_each(|piece| stream.push(piece, &mut closed));
    closed.extend(Box::new(stream).finish());
    closed.into_iter().map(|window| window.data).collect()
}

/// Mel frames of whole windows as `[bins, frames]`, rows of the encoder, and rows of the language model.
fn heard(folder: &Path, audio: &[f32]) -> [Vec<f32>; 3] {
    let ops = Cpu::default();
    let (tower, windows) = (load(&ops, folder).tower, windows(folder, audio));
    assert_eq!((tower.tower.shape().bins, tower.tower.shape().window), (BINS, WINDOW));
    let inputs = windows.iter().enumerate().map(|(index, data)| WindowInput { data, index });
    let padded: Vec<Vec<f32>> = inputs.clone().map(|window| tower.padded(&window)).collect();
    let frames: Vec<&[f32]> = padded.iter().flat_map(|window| window.chunks(BINS)).collect();
    let mel = (0..BINS).flat_map(|bin| frames.iter().map(move |frame| frame[bin])).collect();
    let whole: Vec<_> = padded.iter().enumerate().map(|(index, data)| WindowInput { data, index }).collect();
    let (mut spec, mut back) = (RowSpec::default(), ReadBack::default());
    let encoded = tower.tower.encode(&ops, &whole, &mut spec, &mut back).concat();
    let rows = PaddedHearing::new(&ops, tower).encode(&inputs.collect::<Vec<_>>());
    [mel, encoded, rows.into_iter().flat_map(|rows| rows.rows).collect()]
}

/// Logits of a run's steps, each of which gets the reference's id of the step before.
fn logits(folder: &Path, expected: &Expected, run: &str) -> Vec<f32> {
    let ops = Cpu::default();
    let text = load(&ops, folder).text;
    let ids = |name: &str| expected.ids(&format!("{run}.{name}")).0;
    let (prompt, said) = (ids("prompt"), ids("said"));
    let turns = RUNS.iter().position(|other| *other == run).unwrap();
    let audio = RUNS[..=turns].iter().flat_map(|run| expected.tensor(&format!("{run}.rows")).0).collect();
    let all: Vec<u32> = prompt.iter().chain(&said[..said.len() - 1]).copied().collect();
    let audio_at: Vec<u32> = (0..prompt.len() as u32).filter(|at| prompt[*at as usize] == AUDIO).collect();
    let tokens: Vec<u32> = all.iter().map(|&id| if id == AUDIO { NO_ID } else { id }).collect();
    // Blocks out of order.
    let table: Vec<u32> = (0..all.len().div_ceil(BLOCK) as u32).rev().collect();
    let mut cache = text.model.cache(&ops, table.len(), BLOCK);
    let x = text.embed(&ops, &ops.list(&tokens), Some((&ops.list(&audio_at), &ops.tensor(audio, text.width()))));
    let batch = ops.batch(&[SequenceRows { table: &table, position: 0, rows: all.len() }]);
    let (x, _) = text.forward(&ops, x, &ops.list(&tokens), &mut cache, &batch);
    let steps: Vec<u32> = (prompt.len() as u32 - 1..all.len() as u32).collect();
    ops.read(&text.logits(&ops, &x, &ops.list(&steps)))
}

/// Output of a stage for the items of a response.
fn run(model: &mut Model, stage: usize, items: impl IntoIterator<Item = StageItem>) -> Vec<StageItem> {
    let (stage, mut out) = (model.stages[stage].as_mut(), Outbox::new());
    let items = std::iter::once(StageItem::Begin(params())).chain(items).chain([StageItem::End(StageEnd::Stop)]);
    for item in items {
        stage.accept(1, item, &mut out);
        while stage.runnable_rows(1).rows > 0 {
            stage.launch(&[BatchEntry { slot: 1, rows: 1 }], &mut out);
            stage.collect(&mut out);
        }
    }
    out.into_iter().map(|(_, item)| item).collect()
}

/// Model of a folder.
fn model(folder: &Path, windows: [(&str, usize); 3]) -> Model {
    load_model(&open(folder), &settings(windows)).unwrap()
}

/// Latents of codes in windows.
fn latents(model: &mut Model, codes: &[u32]) -> Vec<f32> {
    let given = run(model, 1, codes.iter().map(|&code| StageItem::Codes(vec![code])));
    let rows = |item| if let StageItem::Latents { rows, .. } = item { rows } else { Vec::new() };
    given.into_iter().flat_map(rows).collect()
}

/// Samples of latents, which arrive `piece` codes at a time.
fn samples(model: &mut Model, latents: &[f32], piece: usize) -> Vec<f32> {
    // Four latents of eight numbers for each code.
    let latents = latents.chunks(32 * piece);
    let given = run(model, 2, latents.map(|rows| StageItem::Latents { rows: rows.to_vec(), count: rows.len() / 8 }));
    let sound = |item| if let StageItem::Samples(samples) = item { samples } else { Vec::new() };
    given.into_iter().flat_map(sound).collect()
}

/// Windows of which one has all codes.
fn whole(codes: &[u32]) -> [(&'static str, usize); 3] {
    [("left_codes", 1), ("new_codes", codes.len()), ("ahead_codes", 1)]
}

#[test]
fn hearing_and_text_equal_the_derivation() {
    let expected = Expected::load(NAME);
    let mut findings = Findings::new();
    for run in RUNS {
        let reference = |name: &str| expected.tensor(&format!("{run}.{name}")).0;
        for (name, ours) in ["mel", "encoded", "rows"].into_iter().zip(heard(&checkpoint(), &reference("audio"))) {
            findings.push((format!("{run}.{name}"), difference(&ours, &reference(name))));
        }
        let ours = logits(&checkpoint(), &expected, run);
        findings.push((format!("{run}.logits"), difference(&ours, &reference("logits"))));
    }
    println!("{findings:?}");
    assert!(findings.iter().all(|(_, off)| *off <= TOLERANCE), "{findings:?}");
}

#[test]
fn sound_equals_the_derivation() {
    let expected = Expected::load(NAME);
    let codes = expected.ids("sound.codes").0;
    for (name, windows) in [("whole", whole(&codes)), ("windowed", WINDOWS)] {
        let reference = expected.tensor(&format!("sound.{name}")).0;
        let mut model = model(&checkpoint(), windows);
        let ours = latents(&mut model, &codes);
        let sound = samples(&mut model, &reference, 3);
        let off =
            (difference(&ours, &reference), difference(&sound, &expected.tensor(&format!("sound.{name}_samples")).0));
        println!("{name}: {off:?}");
        assert!(off.0 <= TOLERANCE && off.1 <= TOLERANCE, "{name}: {off:?}");
    }
}

#[test]
fn windows_keep_near_one_solve() {
    let codes = Expected::load(NAME).ids("sound.codes").0;
    let one = latents(&mut model(&checkpoint(), whole(&codes)), &codes);
    let rms = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|number| number * number).sum::<f32>().sqrt();
    let size = rms(&mut one.iter().copied());
    for windows in [
        WINDOWS,
        [("left_codes", 16), ("new_codes", 5), ("ahead_codes", 2)],
        [("left_codes", 16), ("new_codes", 5), ("ahead_codes", 16)],
    ] {
        let ours = latents(&mut model(&checkpoint(), windows), &codes);
        let off = rms(&mut ours.iter().zip(&one).map(|(a, b)| a - b)) / size;
        println!("distance of {windows:?} from one solve of random weights: {:.0} %", 100.0 * off);
        assert!(off > 0.001 && off < 1.0, "{windows:?}: {off}");
    }
}

#[test]
fn any_split_equals_one_decode() {
    let (mel, mut model) = (Expected::load(NAME).tensor("sound.whole").0, model(&checkpoint(), WINDOWS));
    let whole = samples(&mut model, &mel, 1000);
    assert_eq!(whole.len(), 23 * 960);
    for piece in [1, 2, 5] {
        assert!(samples(&mut model, &mel, piece) == whole, "{piece} codes at a time");
    }
}

#[test]
fn zeroing_any_tensor_is_noticed() {
    let expected = Expected::load(NAME);
    let copy = copy(&checkpoint());
    // Three points of time spare most evaluations.
    let sound = copy.path().join("token2wav/config.json");
    let text = std::fs::read_to_string(&sound).unwrap();
    std::fs::write(sound, text.replacen("\"s_steps\": 10", "\"s_steps\": 3", 1)).unwrap();
    let (hears, speaks) = (copy.path().join("model.safetensors"), copy.path().join("token2wav/model.pt"));
    let mut unnoticed = Vec::new();
    let audio = expected.tensor("turn0.audio").0;
    let output = |sound: bool| -> Vec<f32> {
        if sound {
            // Two windows, the first of which looks ahead.
            let (codes, mut model) = (&expected.ids("sound.codes").0[..6], model(copy.path(), WINDOWS));
            let latents = latents(&mut model, codes);
            return [samples(&mut model, &latents[..64], 2), latents].concat();
        }
        let [_, _, rows] = heard(copy.path(), &audio);
        [logits(copy.path(), &expected, RUNS[0]), rows].concat()
    };
    let whole = std::fs::read(&hears).unwrap();
    let names: BTreeSet<String> = open(&checkpoint()).tensor_names().map(str::to_owned).collect();
    let all = output(false);
    for name in &names {
        zero(&hears, |tensor| tensor == name);
        if difference(&output(false), &all) <= TOLERANCE {
            unnoticed.push(name.clone());
        }
        std::fs::write(&hears, &whole).unwrap();
    }
    let (bytes, all) = (std::fs::read(&speaks).unwrap(), output(true));
    let pickle = PickleValue::read("model.pt", &bytes).unwrap();
    // A direction of length zero has no norm.
    let tensors: Vec<_> = pickle.tensors().into_iter().filter(|(name, _)| !name.ends_with("weight_v")).collect();
    for (name, tensor) in &tensors {
        let mut changed = bytes.clone();
        changed[tensor.place().unwrap()].fill(0);
        std::fs::write(&speaks, changed).unwrap();
        if difference(&output(true), &all) <= TOLERANCE {
            unnoticed.push(name.clone());
        }
    }
    assert!(unnoticed.is_empty(), "nothing differs although these are zero: {unnoticed:#?}");
    assert!(names.len() > 70 && tensors.len() > 200, "{} {}", names.len(), tensors.len());
}

#[test]
fn units_give_the_bits_of_whole_windows() {
    let ops = Cpu::default();
    let hearing = |most: usize| {
        let mut tower = load(&ops, &checkpoint()).tower;
        tower.tower = tower.tower.with_units(most);
        PaddedHearing::new(&ops, tower)
    };
    let windows = windows(&checkpoint(), &Expected::load(NAME).tensor("turn1.audio").0);
    assert_eq!(windows.len(), 2);
    for (most, each) in [(1, 3), (50_000, 2), (1_000_000, 1), (usize::MAX, 2)] {
        let (mut whole, mut hearing) = (hearing(usize::MAX), hearing(most));
        for (index, data) in windows.iter().enumerate() {
            let window = WindowInput { data, index };
            let mut progress = EncodingProgress::default();
            let in_units = loop {
                assert!(progress.units < hearing.units(&window));
                if let Some(rows) = hearing.advance(&window, &mut progress, each) {
                    break rows;
                }
            };
            let rows = whole.encode(&[window]).pop().unwrap();
            assert!(in_units.rows == rows.rows && rows.count > 0, "window {index} in units of {most}");
        }
    }
}

#[test]
fn rows_of_silence_alone_are_left_out() {
    let ops = Cpu::default();
    // A window has 160 frames of 160 samples, a row 16 of them.
    for (samples, rows) in [(159, 0), (160, 1), (2560, 1), (2720, 2), (25_599, 10), (25_600, 10), (25_760, 11)] {
        let windows = windows(&checkpoint(), &vec![0.1; samples]);
        let mut hearing = PaddedHearing::new(&ops, load(&ops, &checkpoint()).tower);
        let inputs: Vec<_> = windows.iter().enumerate().map(|(index, data)| WindowInput { data, index }).collect();
        let found: usize = hearing.encode(&inputs).iter().map(|window| window.count).sum();
        assert_eq!(found, rows, "{samples} samples");
    }
}
