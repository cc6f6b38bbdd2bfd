//! Parity of CosyVoice3 with a derivation in torch on the same weights: codes are equal, and each compared tensor is within
//! 1e-4 of the largest reference value. The stages run as in the engine, on streams in pieces.
//!
//! - `cloning`: voices out of recordings
//! - `encoders`: the encoders of recordings
//! - `refusals`: refused folders
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod cloning;
mod encoders;
mod refusals;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use repartee_checkpoint::pickle::PickleValue;
use repartee_engine::internals::cosyvoice3::CosyVoice3;
use repartee_engine::internals::{Checkpoint, Element, Model, ResponseParams, StageEnd, StageItem, load_model};
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::{AnswerForm, Role};
use repartee_engine_testkit::speech::copy;
use repartee_engine_testkit::stage_runs::run_stage;
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::{Ops, SequenceRows};
use repartee_kernels_testkit::host::HostOps;

/// Name of the fixture.
const NAME: &str = "cosyvoice3";
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;
/// Seed and response of the fixture's draws.
const SEED: u64 = 5;
const RESPONSE: u64 = 7;
/// Positions in a cache block.
const BLOCK: usize = 16;
const STAGES: [&str; 4] = ["reader", "speech_lm", "flow", "hift"];

fn checkpoint() -> PathBuf {
    folder(NAME).join("checkpoint")
}

fn settings(left_chunks: usize) -> EngineConfig {
    let mut config = EngineConfig { sessions: 2, out_of_band: 0, session_tokens: 256, ..EngineConfig::default() };
    config.stages.entry("flow".to_owned()).or_default().options.insert("left_chunks".to_owned(), left_chunks);
    config
}

fn load(folder: &Path, left_chunks: usize) -> Model {
    let checkpoint = Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap();
    let model = load_model(&checkpoint, &settings(left_chunks)).unwrap();
    assert_eq!(model.stages.iter().map(|stage| stage.name()).collect::<Vec<_>>(), STAGES);
    model
}

fn params(voice: &str, streamed: bool) -> ResponseParams {
    ResponseParams {
        response: RESPONSE,
        seed: SEED,
        voice: voice.to_owned(),
        audio: true,
        streamed,
        tools: Vec::new().into(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 1000,
        sampling: None,
    }
}

/// Items of a response with `items` between its beginning and its end.
fn response(params: ResponseParams, items: impl IntoIterator<Item = StageItem>) -> Vec<StageItem> {
    let begin = StageItem::Begin(params);
    std::iter::once(begin).chain(items).chain([StageItem::End(StageEnd::Stop)]).collect()
}

/// Codes of a text of a fixture. Names of texts that stream in end so.
fn said(model: &mut Model, expected: &Expected, name: &str, voice: &str, instructions: &str) -> Vec<u32> {
    let streamed = name.ends_with("streamed") || name == "instructed";
    let mut ids = model.tokenizer.encode(instructions).unwrap();
    if !ids.is_empty() {
        ids.push(u32::try_from(model.tokenizer.vocab_size()).unwrap());
    }
    let elements = ids.into_iter().map(|id| Element::token(Role::System, id)).collect();
    let context = StageItem::Context { from: 0, elements };
    let text = expected.ids(&format!("{name}.text")).0.into_iter().map(StageItem::Token);
    let items = std::iter::once(context).chain(response(params(voice, streamed), text));
    let given = run_stage(model.stages[1].as_mut(), items);
    assert!(matches!(given.last(), Some(StageItem::End(StageEnd::Stop))), "{given:?}");
    let code = |item: StageItem| if let StageItem::Codes(codes) = item { codes } else { Vec::new() };
    run_stage(model.stages[1].as_mut(), vec![StageItem::Rewind { to: 0 }]);
    given.into_iter().flat_map(code).collect()
}

/// Mel frames of codes.
fn frames(model: &mut Model, voice: &str, codes: &[u32]) -> Vec<f32> {
    let codes = codes.iter().map(|&code| StageItem::Codes(vec![code]));
    let given = run_stage(model.stages[2].as_mut(), response(params(voice, false), codes));
    let frame = |item| if let StageItem::Latents { rows, .. } = item { rows } else { Vec::new() };
    given.into_iter().flat_map(frame).collect()
}

/// Samples of mel frames, which arrive `piece` at a time.
fn samples(model: &mut Model, mel: &[f32], width: usize, piece: usize) -> Vec<f32> {
    let latents =
        mel.chunks(width * piece).map(|rows| StageItem::Latents { rows: rows.to_vec(), count: rows.len() / width });
    let given = run_stage(model.stages[3].as_mut(), response(params("vector", false), latents));
    let sound = |item| if let StageItem::Samples(samples) = item { samples } else { Vec::new() };
    given.into_iter().flat_map(sound).collect()
}

/// Runs of the fixture: name, voice and instructions.
const RUNS: [(&str, &str, &str); 4] = [
    ("whole", "recorded", ""),
    ("streamed", "recorded", ""),
    ("vector", "vector", ""),
    ("instructed", "vector", "be kind"),
];

/// Logits after the last row of a run.
fn logits(folder: &Path, expected: &Expected, name: &str) -> Vec<f32> {
    let ops = Cpu::default();
    let checkpoint = Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap();
    let model = CosyVoice3::load((&ops, &ops), &checkpoint, WeightPolicy::default()).unwrap();
    let rows = |kind: &str| ops.list(&expected.ids(&format!("{name}.{kind}_rows")).0);
    let count = expected.ids(&format!("{name}.text_rows")).0.len();
    let table: Vec<u32> = (0..count.div_ceil(BLOCK) as u32).rev().collect();
    let mut cache = model.llm.layers.cache(&ops, table.len(), BLOCK);
    let batch = ops.batch(&[SequenceRows { table: &table, position: 0, rows: count }]);
    let x = model.llm.rows(&ops, &rows("text"), &rows("speech"));
    let (x, _) = model.llm.layers.forward(&ops, x, &mut cache, &batch, None);
    ops.read(&model.llm.logits(&ops, &ops.gather_at(&x, &ops.list(&[count as u32 - 1]))))
}

/// Output of the part in a file.
fn output(file: &str, folder: &Path, expected: &Expected) -> Vec<f32> {
    match file {
        "llm.pt" => logits(folder, expected, "streamed"),
        "flow.pt" => frames(&mut load(folder, 4), "vector", &expected.ids("short.codes").0),
        _ => {
            let (mel, shape) = expected.tensor("sound.mel");
            samples(&mut load(folder, 4), &mel[..6 * shape[1]], shape[1], 6)
        }
    }
}

#[test]
fn stages_equal_the_derivation() {
    let expected = Expected::load(NAME);
    let mut model = load(&checkpoint(), 100);
    for (name, voice, instructions) in RUNS {
        let found = difference(&logits(&checkpoint(), &expected, name), &expected.tensor(&format!("{name}.logits")).0);
        println!("{name}: {found:.1e}");
        assert!(found < TOLERANCE, "{name}: {found}");
        let ours = said(&mut model, &expected, name, voice, instructions);
        assert_eq!(ours, expected.ids(&format!("{name}.heard")).0, "{name}");
    }
    for (name, voice) in [("behind", "recorded"), ("short", "vector")] {
        let ours = frames(&mut model, voice, &expected.ids(&format!("{name}.codes")).0);
        let found = difference(&ours, &expected.tensor(&format!("{name}.mel")).0);
        println!("{name}: {found:.1e}");
        assert!(found < TOLERANCE, "{name}: {found}");
    }
    let (mel, shape) = expected.tensor("sound.mel");
    let ours = samples(&mut model, &mel, shape[1], 7);
    let found = difference(&ours, &expected.tensor("sound.samples").0);
    println!("sound: {found:.1e}");
    assert!(found < TOLERANCE, "{found}");
}

#[test]
fn left_context_is_capped() {
    let expected = Expected::load(NAME);
    let (codes, mel) = (expected.ids("alone.codes").0, expected.tensor("alone.mel").0);
    let of = |left| frames(&mut load(&checkpoint(), left), "vector", &codes);
    let (four, all) = (of(4), of(100));
    assert!(difference(&four, &mel) < TOLERANCE, "{}", difference(&four, &mel));
    let distance = difference(&four, &all);
    println!("distance of four chunks before a chunk from all of them: {distance:.1e}");
    assert!(distance > 0.0, "the cap changes the last chunks");
    let within = 5 * 50 * mel.len() / (2 * codes.len());
    assert_eq!(four[..within], all[..within], "as long as no chunk is cut off");
}

#[test]
fn any_split_equals_one_decode() {
    let (mel, shape) = Expected::load(NAME).tensor("sound.mel");
    let mut model = load(&checkpoint(), 4);
    let whole = samples(&mut model, &mel, shape[1], 1000);
    assert_eq!(whole.len(), shape[0] * 480);
    for piece in [1, 2, 5, 11, 44] {
        assert!(samples(&mut model, &mel, shape[1], piece) == whole, "{piece} frames at a time");
    }
}

/// Module of a tensor: its weight, the parts of a weight norm and its bias are noticed together.
fn module(name: &str) -> &str {
    let module = name.rsplit_once('.').map_or(name, |(module, _)| module);
    module.strip_suffix(".parametrizations.weight").unwrap_or(module)
}

#[test]
fn every_zeroed_module_is_noticed() {
    let expected = Expected::load(NAME);
    let copy = copy(&checkpoint());
    for file in ["llm.pt", "flow.pt", "hift.pt"] {
        let bytes = std::fs::read(checkpoint().join(file)).unwrap();
        let whole = output(file, &checkpoint(), &expected);
        let pickle = PickleValue::read(file, &bytes).unwrap();
        let tensors = pickle.tensors();
        let modules: BTreeSet<&str> = tensors.iter().map(|(name, _)| module(name)).collect();
        for zeroed in modules {
            let mut changed = bytes.clone();
            // A direction of length zero has no norm.
            let of = |name: &str| module(name) == zeroed && !name.ends_with("original1");
            for (_, tensor) in tensors.iter().filter(|(name, _)| of(name)) {
                changed[tensor.place().unwrap()].fill(0);
            }
            std::fs::write(copy.path().join(file), changed).unwrap();
            let found = difference(&output(file, copy.path(), &expected), &whole);
            assert!(found > 10.0 * TOLERANCE, "{file}: {zeroed} is not noticed: {found}");
        }
        std::fs::write(copy.path().join(file), bytes).unwrap();
    }
}
