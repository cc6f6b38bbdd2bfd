//! Parity of Dynin-Omni with a derivation in torch on the same weights: prompts, choices and frames are equal, and each compared
//! tensor is within 1e-4 of the largest reference value.
//!
//! - `speech`: output of the stages, as in the engine, and canvases that are cut
//! - `refusals`: refused folders
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod refusals;
mod speech;

use std::path::{Path, PathBuf};

use repartee_engine::internals::dynin_omni::{
    BlockSound, CODEC, Canvas, Denoiser, DyninOmni, Pass, Refined, RefinementPlan, UnitBlock, frames,
};
use repartee_engine::internals::{Checkpoint, load_model};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_testkit::speech::{copy, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::random::uniform;

/// Name of the fixture.
const NAME: &str = "dynin_omni";
/// Texts of the fixture.
const RUNS: [(&str, &str); 2] = [("plain", "the quick brown fox"), ("other", "a song about the rain")];
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;
/// Seed and response of the fixture's noise.
const SEED: u64 = 5;
const RESPONSE: u64 = 7;
/// Places of a block and of the canvas.
const BLOCK: usize = 8;
const CANVAS: usize = 24;
/// Refinement steps of a block.
const STEPS: usize = 3;
/// Most multiplications of a unit that is never cut.
const WHOLE: usize = usize::MAX;

fn checkpoint() -> PathBuf {
    folder(NAME).join("checkpoint")
}

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

fn load(folder: &Path) -> DyninOmni<Cpu> {
    DyninOmni::load(&Cpu::default(), &open(folder), &EngineConfig::default()).unwrap()
}

/// Logits of the wanted positions of canvases, in one pass whose units have at most `most` multiplications.
fn logits(model: &DyninOmni<Cpu>, canvases: &[&Canvas], most: usize) -> Vec<Vec<f32>> {
    let ops = Cpu::default();
    let ids: Vec<&[u32]> = canvases.iter().map(|canvas| canvas.ids()).collect();
    let mut pass = Pass::new(&ops, &model.units, &ids);
    let mut units = 1;
    while !pass.advance(&ops, &model.units, most) {
        units += 1;
    }
    assert_eq!(units, if most == WHOLE { 1 } else { model.units.layers() }, "a unit has a layer or all");
    pass.logits(&ops, &model.units, &canvases.iter().map(|canvas| canvas.wanted()).collect::<Vec<_>>())
}

fn refine(model: &DyninOmni<Cpu>, canvas: &mut Canvas, logits: &[f32]) -> Refined {
    let uniform = |step, place: usize| uniform(SEED, RESPONSE, step, place as u64);
    canvas.refine(logits, uniform, |choice| model.units.id(choice))
}

fn canvas(model: &DyninOmni<Cpu>, run: &str) -> Canvas {
    Canvas::new(&Expected::load(NAME).ids(&format!("{run}.ids")).0, model.units.mask(), model.units.plan())
}

/// Choices of a run, from its prompt on.
fn choices(model: &DyninOmni<Cpu>, run: &str) -> Vec<u32> {
    let (mut canvas, mut all) = (canvas(model, run), Vec::new());
    while !canvas.is_whole() {
        let found = logits(model, &[&canvas], 1);
        match refine(model, &mut canvas, &found[0]) {
            Refined::Block(choices) => all.extend(choices),
            Refined::Open => {}
            Refined::NotFinite => panic!("not finite"),
        }
    }
    all
}

/// Units of a run's blocks.
fn blocks(run: &str) -> Vec<UnitBlock> {
    let units = Expected::load(NAME).ids(&format!("{run}.units")).0;
    let block = |(number, units): (usize, &[u32])| UnitBlock {
        units: units.to_vec(),
        style: 0,
        noise: (SEED, RESPONSE),
        number: number as u64,
    };
    units.chunks(BLOCK).enumerate().map(block).collect()
}

/// Means and deviations, logarithms of durations, and latents of a run's first blocks.
fn encoded(model: &DyninOmni<Cpu>, blocks: &[UnitBlock]) -> [Vec<f32>; 3] {
    let (ops, codec) = (Cpu::default(), &model.codec);
    let mut found = [Vec::new(), Vec::new(), Vec::new()];
    for block in blocks {
        let style = codec.style(&ops, block.style);
        let x = codec.encoder.embedded(&ops, &block.units);
        let x = (0..codec.encoder.layers()).fold(x, |x, at| codec.encoder.layer(&ops, at, &x));
        let stats = ops.read(&codec.encoder.stats(&ops, &x));
        let rows = codec.durations.rows(&ops, &x, &style);
        let logs = codec.durations.draw(&ops, &rows, block.pairs());
        let latents = ops.tensor(block.latents(&stats, &frames(&logs)), codec.config.latent);
        let latents = (0..codec.flow.couplings()).fold(latents, |x, at| codec.flow.undo(&ops, at, &x, &style));
        found[0].extend(stats);
        found[1].extend(logs);
        found[2].extend(ops.read(&latents));
    }
    found
}

/// Samples of blocks, whose units have at most `most` multiplications.
fn samples(model: &DyninOmni<Cpu>, blocks: &[UnitBlock], most: usize) -> Vec<f32> {
    let sound = |block: &UnitBlock| {
        let mut work = BlockSound::new(block.clone());
        loop {
            if let Some(samples) = work.step(&Cpu::default(), &model.codec, most) {
                return samples;
            }
        }
    };
    blocks.iter().flat_map(sound).collect()
}

/// Largest difference of what the language model's tensors make of the first run, and of what the codec's make of its first
/// block.
fn compare(folder: &Path) -> [f32; 2] {
    let (expected, model) = (Expected::load(NAME), load(folder));
    let empty = logits(&model, &[&canvas(&model, "plain")], WHOLE);
    let first = &blocks("plain")[..1];
    let [stats, logs, _] = encoded(&model, first);
    let parts = [("stats", stats), ("logs", logs), ("samples", samples(&model, first, WHOLE))];
    let off = parts.map(|(part, ours)| {
        // Other durations give another number of samples.
        let reference = expected.tensor(&format!("plain.{part}")).0;
        reference.get(..ours.len()).map_or(f32::INFINITY, |reference| difference(&ours, reference))
    });
    [difference(&empty[0], &expected.tensor("plain.null").0), off.into_iter().fold(0.0, f32::max)]
}

#[test]
fn choices_equal_the_derivations() {
    let (expected, model) = (Expected::load(NAME), load(&checkpoint()));
    assert_eq!(
        model.units.plan(),
        RefinementPlan { canvas: CANVAS, block: BLOCK, steps: STEPS, guidance: 2.5, temperature: 1.0 }
    );
    for (run, text) in RUNS {
        let ids = expected.ids(&format!("{run}.ids")).0;
        assert_eq!(model.units.prompts(text).unwrap(), [ids], "{run}");
        let empty = logits(&model, &[&canvas(&model, run)], WHOLE);
        let off = difference(&empty[0], &expected.tensor(&format!("{run}.null")).0);
        println!("{run}: logits {off:.1e}");
        assert!(off < TOLERANCE, "{run}: {off}");
        let ours = choices(&model, run);
        assert_eq!(ours, expected.ids(&format!("{run}.choices")).0, "{run}");
        let units: Vec<u32> = ours.iter().map_while(|&choice| model.units.code(choice)).collect();
        assert_eq!(units, expected.ids(&format!("{run}.units")).0, "{run}");
    }
}

#[test]
fn guided_logits_lead_away_from_the_empty_canvas() {
    let (expected, model) = (Expected::load(NAME), load(&checkpoint()));
    let guidance = model.units.plan().guidance;
    let width = model.units.choices();
    for (run, _) in RUNS {
        let (mut canvas, mut guided) = (canvas(&model, run), Vec::new());
        let empty = logits(&model, &[&canvas], WHOLE).remove(0);
        for at in 0..CANVAS / BLOCK {
            let own = logits(&model, &[&canvas], WHOLE).remove(0);
            let rows = &empty[at * BLOCK * width..][..BLOCK * width];
            // The first step of all takes the logits of the whole canvas.
            let lead = |(empty, own): (&f32, &f32)| empty + (guidance + 1.0) * (own - empty);
            guided.extend(rows.iter().zip(&own).map(lead));
            let mut next = own;
            while refine(&model, &mut canvas, &next) == Refined::Open {
                next = logits(&model, &[&canvas], WHOLE).remove(0);
            }
        }
        let off = difference(&guided, &expected.tensor(&format!("{run}.logits")).0);
        println!("{run}: guided logits {off:.1e}");
        assert!(off < TOLERANCE, "{run}: {off}");
    }
}

#[test]
fn canvases_together_equal_each_alone() {
    let model = load(&checkpoint());
    let [mut first, second] = ["plain", "other"].map(|run| canvas(&model, run));
    let empty = logits(&model, &[&first], WHOLE).remove(0);
    refine(&model, &mut first, &empty);
    let together = logits(&model, &[&second, &first], 1);
    assert!(together[1] == logits(&model, &[&first], WHOLE)[0], "a block among a whole canvas");
    assert!(together[0] == logits(&model, &[&second], WHOLE)[0], "a whole canvas before a block");
}

#[test]
fn sound_equals_the_derivations() {
    let (expected, model) = (Expected::load(NAME), load(&checkpoint()));
    for (run, _) in RUNS {
        let blocks = blocks(run);
        let found = encoded(&model, &blocks);
        for (ours, part) in found.iter().zip(["stats", "logs", "latents"]) {
            let off = difference(ours, &expected.tensor(&format!("{run}.{part}")).0);
            println!("{run}: {part} {off:.1e}");
            assert!(off < TOLERANCE, "{run}, {part}: {off}");
        }
        let counts: Vec<u32> = frames(&found[1]).iter().map(|&frames| frames as u32).collect();
        assert_eq!(counts, expected.ids(&format!("{run}.frames")).0, "{run}");
        let sound = samples(&model, &blocks, WHOLE);
        let off = difference(&sound, &expected.tensor(&format!("{run}.samples")).0);
        println!("{run}: samples {off:.1e}");
        assert!(off < TOLERANCE, "{run}: {off}");
        assert!(samples(&model, &blocks, 1000) == sound, "{run}: cut into units of work");
    }
}

/// Sound is defined block by block. Prints its distance from one sound of all units, whose encoder sees ahead.
#[test]
fn blocks_differ_from_one_sound() {
    let model = load(&checkpoint());
    let blocks = blocks("other");
    let whole = UnitBlock { units: blocks.iter().flat_map(|block| block.units.clone()).collect(), ..blocks[0].clone() };
    let [by_block, at_once] = [&blocks[..], &[whole]].map(|blocks| encoded(&model, blocks));
    println!("means and deviations by block: {:.1e} of the largest", difference(&by_block[0], &at_once[0]));
    assert_eq!(by_block[0].len(), at_once[0].len());
    assert!(difference(&by_block[0], &at_once[0]) > TOLERANCE, "blocks do not see each other");
}

#[test]
fn every_zeroed_tensor_is_noticed() {
    let copy = copy(&checkpoint());
    let (mut tried, mut unnoticed) = (0, Vec::new());
    for (part, at) in [("", 0), (CODEC, 1)] {
        let names: Vec<String> = open(&copy.path().join(part)).tensor_names().map(str::to_owned).collect();
        let file = copy.path().join(part).join("model.safetensors");
        let whole = std::fs::read(&file).unwrap();
        for name in &names {
            zero(&file, |tensor| tensor == name);
            // A direction of length zero has no norm.
            let off = compare(copy.path())[at];
            if off <= 10.0 * TOLERANCE {
                unnoticed.push(name.clone());
            }
            std::fs::write(&file, &whole).unwrap();
            tried += 1;
        }
    }
    // Softmax ignores an addition to all of a query's scores.
    unnoticed.retain(|name| !name.ends_with("conv_k.bias"));
    assert!(unnoticed.is_empty(), "nothing differs although these are zero: {unnoticed:#?}");
    assert!(tried > 200, "{tried}");
}
