//! Parity of Kokoro with its reference implementation on the same weights, stage by stage, with the source's noise at 0:
//! each compared tensor is within 1e-4 of the largest reference value, and durations are equal. Where the source's phases
//! are compared, their spectra are.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::sync::Arc;

use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::kokoro::{
    Accent, Clause, ClauseWork, Kokoro, Lexicon, VoiceStyles, phonemes, segment, utterances,
};
use repartee_engine::internals::vocoder::stft::InverseStftStream;
use repartee_engine::{Source, WeightPolicy};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::cpu::pool::Pool;

const NAME: &str = "kokoro";
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;

/// Tolerance of a stage. The source's phases are many turns in single precision, and a unit of the last place is a
/// thousandth of a turn.
fn tolerance(name: &str) -> f32 {
    if name.ends_with("signal") { 5e-3 } else { TOLERANCE }
}

fn load(ops: &Cpu) -> (Kokoro<Cpu>, VoiceStyles) {
    load_from(ops, &Checkpoint::open(Source::Folder(folder(NAME))).unwrap())
}

fn load_from(ops: &Cpu, checkpoint: &Checkpoint) -> (Kokoro<Cpu>, VoiceStyles) {
    let model = Kokoro::load(ops, checkpoint, WeightPolicy::default()).unwrap();
    let voices = VoiceStyles::load(checkpoint, &model.config).unwrap();
    (model, voices)
}

/// The fixture's clauses, without noise.
fn clauses(expected: &Expected, model: &Kokoro<Cpu>, voices: &VoiceStyles) -> Vec<Clause> {
    let facts = expected.facts["clauses"].as_array().unwrap().iter();
    let clause = |fact: &serde_json::Value| {
        let phonemes = fact["phonemes"].as_str().unwrap();
        let phonemes: Vec<u32> = phonemes.chars().map(|symbol| model.config.vocab[&symbol]).collect();
        let style = voices.style(voices.names()[0], phonemes.len()).to_vec();
        Clause { phonemes, style, speed: fact["speed"].as_f64().unwrap() as f32, noise: None }
    };
    facts.map(clause).collect()
}

/// Real and imaginary parts of rows of magnitudes and phases: a phase of nearly no magnitude is one of rounding.
fn complex(rows: &[f32], channels: usize) -> Vec<f32> {
    let bins = channels / 2;
    let bin = |row: &[f32], at: usize| [row[at] * row[bins + at].cos(), row[at] * row[bins + at].sin()];
    rows.chunks_exact(channels).flat_map(|row| (0..bins).flat_map(|at| bin(row, at)).collect::<Vec<_>>()).collect()
}

/// Differences of each stage from the reference, which the others get their numbers from.
fn compare(ops: &Cpu, model: &Kokoro<Cpu>, voices: &VoiceStyles, expected: &Expected) -> Vec<(String, f32)> {
    let (half, channels) = (model.config.style_dim, model.config.istftnet.source_channels());
    let mut findings = Vec::new();
    for (number, clause) in clauses(expected, model, voices).iter().enumerate() {
        let tensor = |name: &str| expected.tensor(&format!("{number}.{name}")).0;
        let mut equal = |name: &str, ours: &[f32]| {
            findings.push((format!("{number}.{name}"), difference(ours, &tensor(name))));
        };
        let mut timed = model.timed(ops, clause);
        equal("encoded", &ops.read(&timed.encoded));
        equal("text", &ops.read(&timed.text));
        let durations: Vec<usize> =
            serde_json::from_value(expected.facts["clauses"][number]["durations"].clone()).unwrap();
        assert_eq!(timed.durations, durations);
        // The other stages take the reference's numbers.
        timed.encoded = ops.tensor(tensor("encoded"), model.config.hidden_dim + half);
        timed.text = ops.tensor(tensor("text"), model.config.hidden_dim);
        let mut pitched = model.pitched(ops, clause, &timed);
        equal("pitch", &pitched.pitch);
        equal("loudness", &pitched.loudness);
        (pitched.pitch, pitched.loudness) = (tensor("pitch"), tensor("loudness"));
        equal("signal", &model.source.signal(&pitched.pitch, None));
        let source = model.source.spectra(&tensor("signal"));
        let off = difference(&complex(&source, channels), &complex(&tensor("source"), channels));
        equal("features", &ops.read(&model.features(ops, clause, &pitched)));
        let style = ops.tensor(clause.style[..half].to_vec(), half);
        let mut x = ops.tensor(tensor("features"), model.config.istftnet.channels(0));
        for level in 0..model.generator.levels() {
            let noise = model.noise(ops, level, &tensor("source"), &style);
            x = model.raised(ops, level, x, noise);
            equal(&format!("raised{level}"), &ops.read(&x));
            x = ops.tensor(tensor(&format!("raised{level}")), model.config.istftnet.channels(level + 1));
            let rows = segment(ops, ops.rows(&x));
            let blocks = (0..model.generator.blocks())
                .map(|block| model.generator.block(ops, (level, block), &x, &style, &rows));
            let blocks = blocks.reduce(|sum, block| ops.add(sum, &block)).unwrap();
            x = ops.scale_all(blocks, 1.0 / model.generator.blocks() as f32);
        }
        let rows = ops.rows(&x);
        equal("spectra", &model.spectra(ops, &x, 0..rows));
        let (mut stream, mut samples) = (InverseStftStream::default(), Vec::new());
        model.sound(&tensor("spectra"), &mut stream, &mut samples);
        model.inverse.finish(&mut stream, &mut samples);
        equal("samples", &samples);
        findings.push((format!("{number}.source"), off));
    }
    findings
}

#[test]
fn every_stage_equals_the_reference() {
    let (ops, expected) = (Cpu::default(), Expected::load(NAME));
    let (model, voices) = load(&ops);
    let findings = compare(&ops, &model, &voices, &expected);
    assert_eq!(findings.len(), 3 * 11);
    for (name, off) in findings {
        assert!(off < tolerance(&name), "{name}: {off}");
    }
}

/// Prints the differences of the published weights, and checks that none is more than a thousandth.
#[test]
#[ignore = "needs a published folder with what make_fixtures.py makes of it: KOKORO_FOLDER"]
fn published_weights_equal_the_reference() {
    let ops = Cpu::default().on(Some(Arc::new(Pool::new(2).unwrap())));
    let expected = Expected::load(&std::env::var("KOKORO_FOLDER").unwrap());
    let (model, voices) = load_from(&ops, &published());
    let findings = compare(&ops, &model, &voices, &expected);
    findings.iter().for_each(|(name, off)| println!("{off:.1e} {name}"));
    assert!(findings.iter().all(|(name, off)| *off < tolerance(name)));
}

fn samples(ops: &Cpu, model: &Kokoro<Cpu>, clause: &Clause, spectra: usize) -> Vec<f32> {
    let mut work = ClauseWork::new(clause.clone()).with_spectra(spectra);
    let mut samples = Vec::new();
    while !work.is_done() {
        work.step(ops, model, &mut samples);
    }
    samples
}

#[test]
fn any_split_of_spectra_gives_equal_bits() {
    let (ops, expected) = (Cpu::default(), Expected::load(NAME));
    let (model, voices) = load(&ops);
    let pool = Cpu::default().on(Some(Arc::new(Pool::new(3).unwrap())));
    for mut clause in clauses(&expected, &model, &voices) {
        clause.noise = Some(7);
        let whole = samples(&ops, &model, &clause, 1000);
        for spectra in [1, 2, 5, 32] {
            assert_eq!(samples(&ops, &model, &clause, spectra), whole, "{spectra} spectra at a time");
        }
        assert_eq!(samples(&pool, &model, &clause, 10), whole, "on three threads");
        let frames: usize = model.timed(&ops, &clause).durations.iter().sum();
        assert_eq!(whole.len(), frames * model.config.frame_samples());
    }
}

#[test]
fn noise_depends_on_its_seed() {
    let (ops, expected) = (Cpu::default(), Expected::load(NAME));
    let (model, voices) = load(&ops);
    let clause = clauses(&expected, &model, &voices).swap_remove(0);
    let [silent, one, again, two] =
        [None, Some(1), Some(1), Some(2)].map(|noise| samples(&ops, &model, &Clause { noise, ..clause.clone() }, 1000));
    assert!(one == again && one != two && one != silent);
}

#[test]
fn a_style_is_that_of_its_length() {
    let (_, voices) = load(&Cpu::default());
    assert_eq!(voices.names(), ["af_one", "bm_two"]);
    assert_ne!(voices.style("af_one", 1), voices.style("af_one", 2));
    assert_eq!(voices.style("af_one", 22), voices.style("af_one", 400), "the last row for longer texts");
    assert_ne!(voices.style("af_one", 3), voices.style("bm_two", 3));
    assert_eq!(voices.style("af_one", 0), voices.style("af_one", 1));
}

/// Folder of a published model with its lexicons, which tests/parity/kokoro/from_packages.py makes.
fn published() -> Checkpoint {
    let folder = std::env::var_os("KOKORO_FOLDER").expect("KOKORO_FOLDER names the folder of a published model");
    Checkpoint::open(Source::Folder(folder.into())).unwrap()
}

/// Compares with the phonemes of misaki, which has a tagger (`tests/parity/kokoro/phonemes.py`).
#[test]
#[ignore = "needs a published folder: KOKORO_FOLDER"]
fn phonemes_agree_with_misaki() {
    let file = std::fs::read(folder("kokoro_phonemes.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&file).unwrap();
    for (field, accent) in [("us", Accent::American), ("gb", Accent::British)] {
        let lexicon = Lexicon::load(&published(), accent).unwrap();
        let (mut sentences, mut words, mut equal_sentences, mut equal_words) = (0, 0, 0, 0);
        let mut others = std::collections::BTreeMap::<_, usize>::new();
        for row in facts["sentences"].as_array().unwrap() {
            let Some(reference) = row[field].as_str() else { continue };
            let ours = phonemes(&lexicon, row["text"].as_str().unwrap());
            sentences += 1;
            equal_sentences += usize::from(ours == reference);
            let (ours, reference): (Vec<_>, Vec<_>) = (ours.split(' ').collect(), reference.split(' ').collect());
            words += reference.len();
            for (ours, reference) in ours.iter().zip(&reference) {
                if ours == reference {
                    equal_words += 1;
                } else if !reference.contains('❓') && ours.len().abs_diff(reference.len()) < 12 {
                    *others.entry((ours.to_string(), reference.to_string())).or_default() += 1;
                }
            }
        }
        let mut others: Vec<_> = others.into_iter().collect();
        others.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        println!(
            "{field}: {equal_sentences} of {sentences} sentences, {equal_words} of {words} words; ours and misaki's:"
        );
        others.iter().take(60).for_each(|((ours, reference), count)| println!("{count:4} {ours} {reference}"));
        assert!(equal_words * 100 > words * 90, "fewer than nine words of ten");
    }
}

/// Speaks a sentence with the published weights, writes it as raw samples, and prints the real-time factor.
#[test]
#[ignore = "needs a published folder: KOKORO_FOLDER"]
fn published_weights_speak() {
    let text = std::env::var("KOKORO_TEXT")
        .unwrap_or_else(|_| "The quick brown fox jumps over the lazy dog, and everybody is happy about it.".to_owned());
    let voice = std::env::var("KOKORO_VOICE").unwrap_or_else(|_| "af_heart".to_owned());
    let threads = std::env::var("KOKORO_THREADS").ok().and_then(|threads| threads.parse().ok()).unwrap_or(2);
    let ops = Cpu::default().on(Some(Arc::new(Pool::new(threads).unwrap())));
    let checkpoint = published();
    let begun = std::time::Instant::now();
    let int8 = std::env::var("KOKORO_WEIGHTS").is_ok_and(|weights| weights == "int8");
    let policy = if int8 { WeightPolicy::Int8 } else { WeightPolicy::Bf16 };
    let model = Kokoro::load(&ops, &checkpoint, policy).unwrap();
    let voices = VoiceStyles::load(&checkpoint, &model.config).unwrap();
    let lexicon = Lexicon::load(&checkpoint, Accent::American).unwrap();
    let spoken = phonemes(&lexicon, &text);
    println!("loaded in {:?}: {spoken}", begun.elapsed());
    let mut all = Vec::new();
    for _ in 0..2 {
        all.clear();
        for ids in utterances(&spoken, &model.config) {
            let style = voices.style(&voice, ids.len()).to_vec();
            let mut work = ClauseWork::new(Clause { phonemes: ids, style, speed: 1.0, noise: Some(1) });
            let begun = std::time::Instant::now();
            let (mut samples, mut steps, mut first) = (Vec::new(), Vec::new(), None);
            while !work.is_done() {
                let step = std::time::Instant::now();
                work.step(&ops, &model, &mut samples);
                steps.push(step.elapsed().as_millis());
                first = first.or_else(|| (!samples.is_empty()).then(|| begun.elapsed()));
            }
            let (took, sound) = (begun.elapsed().as_secs_f64(), samples.len() as f64 / 24_000.0);
            println!("{sound:.2} s of sound, RTF {:.3}, first sound after {first:?}, steps {steps:?} ms", took / sound);
            all.extend(samples);
        }
    }
    let bytes: Vec<u8> = all.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    std::fs::write(std::env::temp_dir().join(if int8 { "kokoro8.f32" } else { "kokoro.f32" }), bytes).unwrap();
    assert!(all.iter().any(|sample| sample.abs() > 0.05));
}
