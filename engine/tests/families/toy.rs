//! The pipeline, by the toy family: its memory, its context and its settings; and the page that walks through the family.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::collections::BTreeMap;

use repartee_engine::internals::{Checkpoint, Model};
use repartee_engine::{EngineConfig, LoadError, Source, StageConfig, Synthetic};
use repartee_engine_testkit::folder;
use repartee_engine_testkit::toy_family::load;
use repartee_kernels::cpu::Cpu;

fn built(config: &EngineConfig) -> Result<Model, LoadError> {
    let folder = folder("dense").join("checkpoint");
    let weights = Synthetic { folder, seed: 5, layers: None, skewed: false };
    load(&Cpu::default(), &Checkpoint::open(Source::Synthetic(weights)).unwrap(), config)
}

fn config() -> EngineConfig {
    EngineConfig { sessions: 100, out_of_band: 100, cache_mib: 4, ..EngineConfig::default() }
}

#[test]
fn memory_of_all_parts_bounds_the_slots() {
    // Keys and values of two layers of 16 numbers; in a slot also three steps of the depth model and a mask of ids.
    let (position, fixed) = (2 * 2 * 16 * 4, 3 * 2 * 2 * 16 * 4 + 302);
    for session_tokens in [500, 2048, 100_000] {
        let slots = built(&EngineConfig { session_tokens, ..config() }).unwrap().slots;
        let context = session_tokens.min(2048);
        assert_eq!((slots.context, slots.total()), (context, (4 << 20) / (context * position + fixed)));
    }
    // The slots' own bytes cost the eighth one.
    assert_eq!(built(&config()).unwrap().slots.total(), 7);
}

/// Lines of a file after its `use` declarations, without empty ones.
fn code(file: &str) -> Vec<&str> {
    let lines: Vec<_> = file.lines().collect();
    let uses = lines.iter().rposition(|line| line.starts_with("use ")).map_or(0, |last| last + 1);
    lines[uses..].iter().copied().filter(|line| !line.is_empty()).collect()
}

#[test]
fn page_shows_the_compiled_family() {
    let blocks = include_str!("../../../docs/families.md").split("```rust\n").skip(1);
    let shown: Vec<_> = blocks.flat_map(|block| block.split("```").next()).flat_map(code).collect();
    let family = code(include_str!("../../testkit/src/toy_family.rs"));
    let subject = code(include_str!("../../testkit/src/generic/toy.rs"));
    assert_eq!(shown, [family, subject].concat());
    assert!(shown.len() < 150, "{} lines", shown.len());
}

#[test]
fn settings_of_unknown_stages_are_refused() {
    let stages = BTreeMap::from([("talker".to_owned(), StageConfig::default())]);
    let error = built(&EngineConfig { stages, ..config() }).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("stages.talker") && error.contains("language_model, vocoder"), "{error}");
}
