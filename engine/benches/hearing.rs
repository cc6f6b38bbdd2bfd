//! Writes down recordings with a published recogniser, as a caller would speak them, and times it.
//!
//! `cargo bench -p repartee-engine --bench hearing -- FOLDER [OPTIONS] FILE.wav..` prints a line of JSON for each file: the
//! text, its growing hypotheses, the milliseconds from the file's end (the turn's commit) to the final hypothesis, and those of
//! the work before it. `--whole` encodes the longest window always, as the references do. `--given CODE` names the language,
//! `--weights int8` a format of the matrices. `--at-once` hands a file over as
//! complete sound, in one piece. `--noise` hears made sounds without
//! words instead of files.
#![allow(clippy::unwrap_used)] // A panic is this benchmark's report.

use std::time::{Duration, Instant};

use repartee_engine::internals::whisper::{WhisperRecogniser, WhisperSteps, load};
use repartee_engine::internals::{BatchEntry, Checkpoint, HearingOptions, Hypothesis, Recogniser, worker_pool};
use repartee_engine::{Source, WeightPolicy};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::random::{normal, uniform};
use serde_json::json;

/// Samples of a slice, as a caller's sound arrives.
const SLICE: usize = 1_600;
/// Threads of the engine.
const THREADS: usize = 2;
/// Longest file.
const LONGEST: Duration = Duration::from_secs(3600);

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut flag = |name: &str| {
        let found = arguments.iter().position(|argument| argument == name);
        found.map(|at| arguments.remove(at)).is_some()
    };
    let (whole, noise, at_once) = (flag("--whole"), flag("--noise"), flag("--at-once"));
    let mut value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.remove(at);
        Some(arguments.remove(at))
    };
    let (language, weights) = (value("--given"), value("--weights"));
    let mut arguments = arguments.into_iter();
    let Some(folder) = arguments.next() else {
        println!("name the folder of a published Whisper");
        return;
    };
    let policy: WeightPolicy = weights.map_or(WeightPolicy::default(), |name| {
        serde_json::from_value(json!(name)).expect("a value of engine.weights")
    });
    let ops = Cpu::default().on(worker_pool(THREADS));
    let checkpoint = Checkpoint::open(Source::Folder(folder.into())).unwrap();
    let (model, features, tokenizer) = load(&ops, &checkpoint, policy).unwrap();
    let mut recogniser = WhisperRecogniser::new(WhisperSteps::new(ops, model, 1), features, tokenizer, 1);
    if whole {
        recogniser = recogniser.with_whole_windows();
    }
    let options = HearingOptions { language, complete: at_once, ..HearingOptions::default() };
    let sounds: Vec<(String, Vec<f32>)> = if noise { silence() } else { arguments.map(read).collect() };
    for (name, sound) in sounds {
        let pieces = if at_once { usize::MAX } else { SLICE };
        let heard = hear(&mut recogniser, &sound, pieces, &options);
        let grew = heard.text.iter().filter(|text| !text.text.is_empty()).count();
        let last = heard.text.last().unwrap();
        println!(
            "{}",
            json!({
                "file": name, "seconds": sound.len() as f64 / 16_000.0, "text": last.text.trim(),
                "language": last.language, "final_ms": heard.end.as_secs_f64() * 1e3,
                "before_ms": heard.before.as_secs_f64() * 1e3, "hypotheses": grew,
                "partial": heard.text.iter().map(|text| text.text.trim()).collect::<Vec<_>>(),
            })
        );
    }
}

/// Hypotheses of a turn, and the time that they took.
struct TurnReport {
    text: Vec<Hypothesis>,
    /// Work before the end, and after it.
    before: Duration,
    end: Duration,
}

fn hear(recogniser: &mut impl Recogniser, sound: &[f32], pieces: usize, options: &HearingOptions) -> TurnReport {
    let mut heard = TurnReport { text: Vec::new(), before: Duration::ZERO, end: Duration::ZERO };
    recogniser.open(0, options);
    let begun = Instant::now();
    let mut rest = sound;
    while !rest.is_empty() {
        let taken = recogniser.push(0, &rest[..pieces.min(rest.len())]);
        rest = &rest[taken..];
        settle(recogniser, &mut heard.text);
    }
    heard.before = begun.elapsed();
    let ended = Instant::now();
    recogniser.end(0);
    settle(recogniser, &mut heard.text);
    heard.end = ended.elapsed();
    recogniser.free(0);
    heard
}

fn settle(recogniser: &mut impl Recogniser, heard: &mut Vec<Hypothesis>) {
    loop {
        let rows = recogniser.runnable_rows(0).rows;
        if rows == 0 {
            return;
        }
        let mut out = Vec::new();
        recogniser.step(&[BatchEntry { slot: 0, rows }], &mut out);
        heard.extend(out.into_iter().map(|(_, hypothesis)| hypothesis.unwrap()));
    }
}

fn read(path: String) -> (String, Vec<f32>) {
    let file = std::fs::read(&path).unwrap();
    let sound = repartee_media::sound_file::read(&file, 16_000, LONGEST).unwrap();
    (path, sound)
}

/// Sounds without words: silence, noises, hums, tunes.
fn silence() -> Vec<(String, Vec<f32>)> {
    let sine = |hertz: f64, at: usize| (std::f64::consts::TAU * hertz * at as f64 / 16_000.0).sin();
    let of = |seconds: usize, f: &dyn Fn(usize) -> f64| -> Vec<f32> {
        (0..seconds * 16_000).map(|at| f(at) as f32).collect()
    };
    let noise = |seed: u64, at: usize| f64::from(normal(seed, 0, at as u64, 0));
    let mut all = Vec::new();
    for seconds in [1, 3, 5, 12, 30] {
        all.push((format!("silence {seconds}"), of(seconds, &|_| 0.0)));
        for level in [0.001, 0.01, 0.1] {
            all.push((format!("white noise {level} {seconds}"), of(seconds, &|at| level * noise(seconds as u64, at))));
        }
        all.push((
            format!("hum {seconds}"),
            of(seconds, &|at| (1..6).map(|n| 0.1 / f64::from(n) * sine(50.0 * f64::from(n), at)).sum()),
        ));
        // A tune of plucked notes with a chord below.
        all.push((
            format!("music {seconds}"),
            of(seconds, &|at| {
                let (note, within) = (at / 4_000, at % 4_000);
                let step = (uniform(7, 0, note as u64, 0) * 12.0).floor();
                let hertz = 220.0 * 2f64.powf(f64::from(step) / 12.0);
                let fade = (-(within as f64) / 2_500.0).exp();
                let chord: f64 = [110.0, 138.6, 164.8].iter().map(|hertz| 0.05 * sine(*hertz, at)).sum();
                chord + (1..5).map(|n| 0.2 / f64::from(n) * fade * sine(hertz * f64::from(n), at)).sum::<f64>()
            }),
        ));
    }
    all
}
