//! Every stage on a device that captures a step once and replays it: one upload and one read-back a step, the same
//! operations at the same addresses in every step of a key, no allocation once warm, and equal output with replayed
//! operations in place of calls.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::collections::BTreeMap;
use std::path::Path;

use repartee_engine::internals::qwen3_omni_moe::assemble;
use repartee_engine::internals::{Checkpoint, Device, FamilyVariant};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_api::{Command, Respond, Role, SessionHandle};
use repartee_engine_testkit::driven::{Driven, Response, drive, submit};
use repartee_engine_testkit::{CONVERSATIONS, Expected, brief_copy, folder};
use repartee_kernels::cpu::{Cpu, Tensor};
use repartee_kernels_testkit::recording::RecordingOps;
use repartee_kernels_testkit::replay::ReplayOps;
use repartee_testkit::memory::{CountScope, CountingAllocator, counts};
use tempfile::TempDir;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Names of everything that computes in steps: the encoder and every stage.
const STAGES: [&str; 4] = ["code2wav", "encoder", "talker", "thinker"];
const CALLERS: usize = 3;
/// Upper bound of a response's codec frames.
const FRAMES: u32 = 30;
/// Number of paces. A pace is the number of ticks between callers.
const PACES: usize = 6;

/// Copies of the reference's checkpoints and the demo's whose responses have at most [`FRAMES`] frames, by name.
fn checkpoints() -> Vec<(&'static str, TempDir)> {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let fixtures = CONVERSATIONS.iter().map(|name| (*name, folder(name).join("checkpoint")));
    fixtures.chain([("demo", demo)]).map(|(name, from)| (name, brief_copy(&from, FRAMES))).collect()
}

/// Creates an engine over `ops`, on one thread.
fn engine<O: Device>(ops: O, checkpoint: &Path) -> Driven {
    let config = EngineConfig { sessions: CALLERS, session_tokens: 512, threads: Some(1), ..EngineConfig::default() };
    let checkpoint = Checkpoint::open(Source::Folder(checkpoint.to_owned())).unwrap();
    drive(assemble(ops, &checkpoint, FamilyVariant("omni"), &config).unwrap().build(&config).unwrap(), &config)
}

/// Two turns of callers who speak and one of callers who write, who begin `pace` ticks after each other: prompts are
/// prefilled together with responses.
fn converse(engine: &mut Driven, audio: &[f32], pace: usize) -> Vec<Response> {
    let sessions: Vec<SessionHandle> = (0..CALLERS).map(|_| engine.open()).collect();
    let mut responses = Vec::new();
    for turn in 0..3 {
        for (caller, session) in sessions.iter().enumerate() {
            // The second caller's audio is shorter than a chunk of the encoder.
            let samples = if caller == 1 { 9_000 } else { audio.len() - 3_000 * caller };
            if turn < 2 {
                for slice in audio[..samples].chunks(7_000) {
                    submit(session, Command::Append(slice.to_vec()));
                    engine.ticks(1);
                }
                submit(session, Command::Commit { item: turn });
            } else {
                submit(session, Command::text(turn, Role::User, "a b c d"));
                // Callers after the first one write before they ask.
                engine.ticks(caller);
            }
            let request = Respond { max_tokens: Some(8 + 2 * caller as u32), ..Respond::new(turn, 100 + turn) };
            submit(session, Command::Respond(request));
            engine.ticks(pace);
        }
        responses.extend(sessions.iter().map(|session| engine.listen(session, turn).unwrap()));
    }
    drop(sessions);
    assert_eq!(engine.left_behind(), (0, 0));
    responses
}

fn audio() -> Vec<f32> {
    Expected::load("dense").tensor("turn1.audio").0
}

/// Stage that a note about a key names.
fn stage(note: &str) -> &str {
    note.split('"').nth(1).unwrap()
}

/// Checks the notes of a step against those of the first step with its key.
fn check(step: &[String], steps: &mut BTreeMap<String, (Vec<String>, usize)>) {
    let key = step.first().filter(|note| note.starts_with("launch")).expect("nothing happens between steps");
    assert!(step.last().unwrap().starts_with("collect"), "{key} is not read back");
    let from_host = ["launch", "upload", "read", "tensor", "ids", "batch ["];
    let stray = step[1..].iter().find(|note| from_host.iter().any(|what| note.starts_with(what)));
    assert_eq!(stray, None, "{key}");
    let (first, taken) = steps.entry(key.clone()).or_insert_with(|| (step.to_vec(), 0));
    assert!(first == step, "{key}: other operations, or at other addresses");
    *taken += 1;
}

#[test]
fn steps_repeat_the_same_operations() {
    for (name, checkpoint) in checkpoints() {
        let ops = RecordingOps::with_addresses(Cpu::default(), Tensor::address).padded();
        let mut engine = engine(ops.clone(), checkpoint.path());
        assert_eq!(ops.take_notes(), [""; 0]);
        let audio = audio();
        // By key: the step's notes, and the number of steps.
        let mut steps: BTreeMap<String, (Vec<String>, usize)> = BTreeMap::new();
        // At each pace other rows meet in a step of the same key.
        for pace in 0..PACES {
            converse(&mut engine, &audio, pace);
            for step in ops.take_notes().split_inclusive(|note| note.starts_with("collect")) {
                check(step, &mut steps);
            }
        }
        let mut found: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (key, (operations, taken)) in &steps {
            assert!(operations.iter().filter(|note| note.starts_with("at 0x")).count() > 10, "{key}: {operations:?}");
            let found = found.entry(stage(key)).or_default();
            *found = (found.0 + 1, found.1 + taken);
        }
        println!("{name}: (keys, steps) {found:?}");
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), STAGES);
        assert!(found.values().all(|(keys, taken)| taken >= &(2 * keys)), "too few steps repeat: {found:?}");
    }
}

#[test]
fn warm_steps_allocate_nothing() {
    for (name, checkpoint) in checkpoints() {
        for padded in [false, true] {
            let ops = RecordingOps::with_counter(Cpu::default(), || counts(CountScope::Thread).allocations);
            let ops = if padded { ops.padded() } else { ops };
            let mut engine = engine(ops.clone(), checkpoint.path());
            let audio = audio();
            for _ in 0..4 {
                converse(&mut engine, &audio, 2);
                ops.take_notes();
            }
            converse(&mut engine, &audio, 2);
            let notes = ops.take_notes();
            let launches = notes.iter().filter(|note| note.starts_with("launch"));
            let mut stages: Vec<&str> = launches.map(|note| stage(note)).collect();
            stages.sort_unstable();
            stages.dedup();
            assert_eq!(stages, STAGES);
            let allocating: Vec<&String> = notes.iter().filter(|note| !note.ends_with(": 0")).collect();
            assert_eq!(allocating, [""; 0], "{name}, padded: {padded}");
        }
    }
}

#[test]
fn repeated_stages_equal_called_ones() {
    for (name, checkpoint) in checkpoints() {
        let replay = ReplayOps::new(Cpu::default());
        let (mut called, mut repeated) =
            (engine(Cpu::default(), checkpoint.path()), engine(replay.clone(), checkpoint.path()));
        let audio = audio();
        for pace in 0..PACES {
            let expected = converse(&mut called, &audio, pace);
            assert!(expected.iter().any(|response| !response.samples.is_empty()));
            assert!(converse(&mut repeated, &audio, pace) == expected, "{name}, pace {pace}");
        }
        let steps: u64 = repeated.scheduler.times().iter().map(|(_, _, steps)| steps).sum();
        println!("{name}: {} steps recorded, {steps} taken", replay.recorded());
        assert!(steps > 2 * replay.recorded());
    }
}
