//! Parity of Kokoro with its reference implementation on the same weights, stage by stage, with the source's noise at 0:
//! each compared tensor is within 1e-4 of the largest reference value, and durations are equal. Where the source's phases
//! are compared, their spectra are.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::ops::ControlFlow;
use std::sync::Arc;

use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::kokoro::{
    Accent, Clause, ClauseWork, Curve, Kokoro, Lexicon, Pitched, Timed, VoiceStyles, phonemes, utterances,
};
use repartee_engine::internals::vocoder::istft_net::blocks::SnakeBlockWork;
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

/// Multiplications of a unit of the product.
const UNIT: usize = 500_000_000;

/// Repeats the steps of work to its end.
fn done<W, T>(begun: W, mut step: impl FnMut(W) -> ControlFlow<T, W>) -> T {
    let mut work = begun;
    loop {
        match step(work) {
            ControlFlow::Break(result) => return result,
            ControlFlow::Continue(left) => work = left,
        }
    }
}

/// Encodes a clause's phonemes, layer by layer.
fn timed(ops: &Cpu, model: &Kokoro<Cpu>, clause: &Clause) -> Timed<Cpu> {
    let read = (0..model.bert.layers()).fold(model.embedded(ops, clause), |x, _| model.read_on(ops, &x));
    let (styled, style) = (model.styled(ops, clause, &read), model.prosody_style(ops, clause));
    let layers = 0..model.predictor.layers();
    let encoded = layers.fold(styled, |x, layer| model.predictor.encode(ops, layer, &x, &style));
    model.timed(ops, clause, encoded)
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
        let mut timed = timed(ops, model, clause);
        equal("encoded", &ops.read(&timed.encoded));
        equal("text", &ops.read(&timed.text));
        let durations: Vec<usize> =
            serde_json::from_value(expected.facts["clauses"][number]["durations"].clone()).unwrap();
        assert_eq!(timed.durations, durations);
        // The other stages take the reference's numbers.
        timed.encoded = ops.tensor(tensor("encoded"), model.config.hidden_dim + half);
        timed.text = ops.tensor(tensor("text"), model.config.hidden_dim);
        let aligned = model.aligned(ops, &timed);
        let style = model.prosody_style(ops, clause);
        let curve = |curve: &Curve<Cpu>| {
            let begun = curve.begin(ops, &aligned.prosody, &style);
            ops.read(&done(begun, |work| work.step(ops, curve, &style, UNIT)))
        };
        equal("pitch", &curve(&model.predictor.pitch));
        equal("loudness", &curve(&model.predictor.loudness));
        let pitched = Pitched { text: aligned.text, pitch: tensor("pitch"), loudness: tensor("loudness") };
        equal("signal", &model.source.signal(&pitched.pitch, None));
        let source = model.source.spectra(&tensor("signal"));
        let off = difference(&complex(&source, channels), &complex(&tensor("source"), channels));
        let style = model.sound_style(ops, clause);
        let features = done(model.shaping(ops, clause, &pitched), |work| model.trunk.step(ops, work, &style, UNIT));
        equal("features", &ops.read(&features));
        let mut x = ops.tensor(tensor("features"), model.config.istftnet.channels(0));
        for level in 0..model.generator.levels() {
            let generator = &model.generator;
            let noise = model.noise(ops, level, &tensor("source"));
            let noise = done(noise, |work| generator.noise_step(ops, level, work, &style, UNIT));
            x = done(generator.upsampling(ops, x), |work| generator.upsample_step(ops, level, work, UNIT));
            x = generator.raised(ops, level, &x, noise);
            equal(&format!("raised{level}"), &ops.read(&x));
            x = ops.tensor(tensor(&format!("raised{level}")), model.config.istftnet.channels(level + 1));
            let blocks = (0..generator.blocks()).map(|block| {
                let begun = SnakeBlockWork::new(ops.copy(&x));
                done(begun, |work| generator.block_step(ops, (level, block), work, &style, UNIT))
            });
            let blocks = blocks.reduce(|sum, block| ops.add(sum, &block)).unwrap();
            x = ops.scale_all(blocks, 1.0 / generator.blocks() as f32);
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
    samples_in_units(ops, model, clause, (UNIT, spectra))
}

fn samples_in_units(ops: &Cpu, model: &Kokoro<Cpu>, clause: &Clause, (most, spectra): (usize, usize)) -> Vec<f32> {
    let mut work = ClauseWork::new(clause.clone(), most).with_spectra(spectra);
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
        for most in [1, 3_000, 100_000, usize::MAX] {
            let in_units = samples_in_units(&pool, &model, &clause, (most, 1000));
            assert_eq!(in_units, whole, "units of {most} multiplications");
        }
        let frames: usize = timed(&ops, &model, &clause).durations.iter().sum();
        assert_eq!(whole.len(), frames * model.config.frame_samples());
    }
}

/// Counts the products of each step: they are bounded whatever the clause's length.
#[test]
fn steps_of_long_clauses_stay_short() {
    const MOST: u64 = 200_000;
    let (ops, expected) = (Cpu::default().counting(), Expected::load(NAME));
    let (model, voices) = load(&ops);
    let mut clause = clauses(&expected, &model, &voices).swap_remove(0);
    // A slow voice: some ten times the frames.
    clause.speed = 0.1;
    let steps = |most: usize| {
        let (mut samples, mut steps) = (Vec::new(), Vec::new());
        let mut work = ClauseWork::new(clause.clone(), most).with_spectra(500);
        while !work.is_done() {
            let before = ops.work().float_multiplies;
            work.step(&ops, &model, &mut samples);
            steps.push(ops.work().float_multiplies - before);
        }
        steps
    };
    let (whole, cut) = (steps(usize::MAX), steps(MOST as usize));
    assert_eq!(whole.iter().sum::<u64>(), cut.iter().sum::<u64>(), "the work is the same");
    // An LSTM is not cut, nor is the product that begins a level: both are a small part of the published sizes.
    let long = |steps: &[u64]| steps.iter().filter(|step| **step > 2 * MOST).count();
    assert!(long(&cut) <= 3 && long(&whole) > 20, "{cut:?} {whole:?}");
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
            let mut work = ClauseWork::new(Clause { phonemes: ids, style, speed: 1.0, noise: Some(1) }, UNIT);
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
