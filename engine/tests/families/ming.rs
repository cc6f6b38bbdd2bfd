//! Parity of Ming with a derivation in torch on the same weights: prompts are equal, and each compared tensor is within 1e-4 of
//! the largest reference value, in both published forms of a folder.
//!
//! - `speech`: output of the stages, as in the engine
//! - `refusals`: refused folders
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod refusals;
mod speech;

use std::path::{Path, PathBuf};

use repartee_engine::internals::ming::{FolderForm, Ming, PatchStart, PromptIds, UtterancePrompt};
use repartee_engine::internals::{Checkpoint, Tokenizer, load_model};
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_testkit::speech::{copy, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::{Cpu, Tensor};
use repartee_kernels::random::normal;
use repartee_kernels::{NO_ID, Ops, ReadBack, SequenceRows, SpecLayout, StepKey};
use repartee_kernels_testkit::host::HostOps;

/// A fixture, and where its files are.
struct Fixture {
    name: &'static str,
    form: FolderForm,
    /// Folder of the tokenizer and of each weight file.
    llm: &'static str,
    weights: &'static [&'static str],
}

/// Both published forms of a folder.
const FIXTURES: [Fixture; 2] = [
    Fixture { name: "ming_tts", form: FolderForm::Tts, llm: "", weights: &[""] },
    Fixture { name: "ming_flash", form: FolderForm::Flash, llm: "talker/llm", weights: &["talker", "talker/vae"] },
];
/// Texts of a fixture, and their instructions.
const RUNS: [(&str, &str, &str); 2] =
    [("plain", "the quick brown fox", ""), ("styled", "a song about the rain", "be kind")];
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;
/// Seed and response of the fixture's noise.
const SEED: u64 = 5;
const RESPONSE: u64 = 7;
/// Positions in a cache block.
const BLOCK: usize = 16;
/// Sizes of the fixtures.
const PATCH: usize = 4;
const HISTORY: usize = 32;
const LATENT: usize = 8;
const TEXT_ROWS: usize = 310;

impl Fixture {
    fn checkpoint(&self) -> PathBuf {
        folder(self.name).join("checkpoint")
    }
}

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

fn load(ops: &Cpu, folder: &Path, form: FolderForm) -> Ming<Cpu> {
    Ming::load((ops, ops), &open(folder), WeightPolicy::default(), form).unwrap()
}

/// Rows of patches, computed in one step.
fn aggregated(ops: &Cpu, model: &Ming<Cpu>, latents: &[f32]) -> Tensor {
    let aggregator = &model.speech.aggregator;
    let patches = latents.chunks(PATCH * LATENT);
    let mut layout = SpecLayout::default();
    let sections = aggregator.layout(&mut layout, patches.len());
    let mut spec = layout.spec();
    aggregator.fill(&mut spec, &sections, patches);
    aggregator.forward(ops, (&ops.upload(&spec), &sections))
}

/// Hidden rows before each patch of a run: that of the prompt's last position, and of each patch but the last.
fn conditions(ops: &Cpu, model: &Ming<Cpu>, ids: &[u32], latents: &[f32]) -> Tensor {
    let before = &latents[..latents.len() - PATCH * LATENT];
    let text = ops.embed_at(&model.speech.text, &ops.list(ids));
    let x = ops.concat(&[&text, &aggregated(ops, model, before)]);
    let rows = ops.rows(&x);
    let table: Vec<u32> = (0..rows.div_ceil(BLOCK) as u32).rev().collect();
    let mut cache = model.speech.layers.cache(ops, table.len(), BLOCK);
    let batch = ops.batch(&[SequenceRows { table: &table, position: 0, rows }]);
    let (x, _) = model.speech.layers.forward(ops, x, &mut cache, &batch, None);
    let last: Vec<u32> = (ids.len() as u32 - 1..rows as u32).collect();
    model.speech.layers.norm(ops, &ops.gather_at(&x, &ops.list(&last)))
}

/// Latents of all patches of a run, solved in one step from the derivation's latents before each.
fn solved(ops: &Cpu, model: &Ming<Cpu>, conditions: &Tensor, latents: &[f32]) -> Vec<f32> {
    let count = ops.rows(conditions);
    let padded = [vec![0.0; HISTORY * LATENT], latents.to_vec()].concat();
    let noise = |frame: usize| (0..LATENT).map(move |number| normal(SEED, RESPONSE, frame as u64, number as u64));
    let noise: Vec<f32> = (0..count * PATCH).flat_map(noise).collect();
    let start = |at: usize| PatchStart {
        history: &padded[at * PATCH * LATENT..][..HISTORY * LATENT],
        noise: &noise[at * PATCH * LATENT..][..PATCH * LATENT],
    };
    let flow = &model.speech.flow;
    let mut layout = SpecLayout::default();
    let sections = flow.layout(&mut layout, count);
    let mut spec = layout.spec();
    flow.fill(&mut spec, &sections, &(0..count).map(start).collect::<Vec<_>>());
    let mut back = ReadBack::default();
    let key = StepKey { stage: "test", rows: count, variant: 0 };
    let ticket = ops.launch(key, &spec, &mut |ops, spec, outputs| {
        outputs.rows.push(flow.solve(ops, (spec, &sections), conditions));
    });
    ops.collect(ticket, &mut back);
    back.numbers
}

/// Ids of a run's prompt.
fn ids(expected: &Expected, run: &str) -> Vec<u32> {
    // -1 is the row of no speaker.
    expected.ids(&format!("{run}.ids")).0
}

/// Differences of the conditions, stop logits and latents of a run's first patches, each from the derivation's values before
/// it.
fn compare(fixture: &Fixture, folder: &Path, run: &str, patches: usize) -> [f32; 3] {
    let (ops, expected) = (Cpu::default(), Expected::load(fixture.name));
    let reference = |name: &str| {
        let (numbers, shape) = expected.tensor(&format!("{run}.{name}"));
        // Latents have several rows for each patch.
        let rows = if name == "latents" { PATCH * patches } else { patches };
        numbers[..(rows * shape[1]).min(numbers.len())].to_vec()
    };
    let model = load(&ops, folder, fixture.form);
    let latents = reference("latents");
    let hidden = conditions(&ops, &model, &ids(&expected, run), &latents);
    let stops = ops.linear(&hidden, &model.speech.stop.0, Some(&model.speech.stop.1));
    let found = [ops.read(&hidden), ops.read(&stops), solved(&ops, &model, &hidden, &latents)];
    let names = ["conditions", "stops", "latents"];
    [0, 1, 2].map(|at| difference(&found[at], &reference(names[at])))
}

#[test]
fn steps_equal_the_derivation() {
    for fixture in &FIXTURES {
        for (run, ..) in RUNS {
            let found = compare(fixture, &fixture.checkpoint(), run, 1000);
            println!("{} {run}: conditions, stops, latents {found:?}", fixture.name);
            assert!(found.iter().all(|off| *off < TOLERANCE), "{} {run}: {found:?}", fixture.name);
        }
    }
}

#[test]
fn prompts_equal_the_derivations() {
    for fixture in &FIXTURES {
        let (expected, checkpoint) = (Expected::load(fixture.name), open(&fixture.checkpoint().join(fixture.llm)));
        let tokenizer = Tokenizer::load(&checkpoint, TEXT_ROWS).unwrap();
        let prompt = PromptIds::load(&checkpoint, &tokenizer, fixture.form).unwrap();
        for (run, text, style) in RUNS {
            let instructions = if style.is_empty() { Vec::new() } else { prompt.instructions(style) };
            let ours = prompt.rows(&tokenizer.encode(text).unwrap(), &instructions);
            assert_eq!(ours, ids(&expected, run), "{} {run}", fixture.name);
            assert_eq!(ours.iter().filter(|id| **id == NO_ID).count(), 1);
        }
    }
}

#[test]
fn every_zeroed_tensor_is_noticed() {
    for fixture in &FIXTURES {
        let copy = copy(&fixture.checkpoint());
        let expected = Expected::load(fixture.name);
        let (mut tried, mut unnoticed) = (0, Vec::new());
        let latents = &expected.tensor("plain.latents").0[..2 * PATCH * LATENT];
        let whole_samples = speech::samples(&fixture.checkpoint(), latents, PATCH);
        for part in fixture.weights {
            let names: Vec<String> = open(&fixture.checkpoint().join(part)).tensor_names().map(str::to_owned).collect();
            let file = copy.path().join(part).join("model.safetensors");
            let whole = std::fs::read(&file).unwrap();
            for name in &names {
                zero(&file, |tensor| tensor == name);
                let is_sound = name.starts_with("audio.") || part.ends_with("vae");
                let off = if is_sound {
                    difference(&speech::samples(copy.path(), latents, PATCH), &whole_samples)
                } else {
                    compare(fixture, copy.path(), "plain", 2).into_iter().fold(0.0, f32::max)
                };
                if off <= 10.0 * TOLERANCE {
                    unnoticed.push(name.clone());
                }
                std::fs::write(&file, &whole).unwrap();
                tried += 1;
            }
        }
        // Softmax ignores an addition to all of a query's scores.
        unnoticed.retain(|name| !name.ends_with("to_k.bias"));
        assert!(unnoticed.is_empty(), "{}: nothing differs although these are zero: {unnoticed:#?}", fixture.name);
        assert!(tried > 100, "{tried}");
    }
}
