//! Whisper against transformers: spectrogram, encoder, logits, greedy ids, languages, times; and as a recogniser: any split
//! of the sound, any neighbours, withdrawn ends, silence.

use std::path::PathBuf;

use repartee_engine::internals::whisper::{
    Decoding, DecodingRules, Progress, RunPrompt, TextRows, WhisperRecogniser, WhisperSteps, WindowFeatures,
    WordAlignment, load,
};
use repartee_engine::internals::{
    BatchEntry, Checkpoint, Hearing, HearingOptions, Hypothesis, Recogniser, RowKind, load_model,
};
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::TextDelay;
use repartee_engine_testkit::speech::{copy, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::Cpu;
use safetensors::SafeTensors;
use serde_json::{Value, json};

/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;
/// Windows of the fixture, in samples.
const WINDOWS: [(&str, usize); 2] = [("longest", 48_000), ("served", 24_000)];

fn checkpoint() -> PathBuf {
    folder("whisper").join("checkpoint")
}

fn open() -> Checkpoint {
    Checkpoint::open(Source::Folder(checkpoint())).unwrap()
}

/// The model with `slots` slots, and its spectrogram.
fn steps(checkpoint: &Checkpoint, slots: usize) -> (WhisperSteps<Cpu>, WindowFeatures) {
    let ops = Cpu::default();
    let (model, features, _) = load(&ops, checkpoint, WeightPolicy::default()).unwrap();
    (WhisperSteps::new(ops, model, slots), features)
}

fn recogniser(slots: usize) -> WhisperRecogniser<Cpu> {
    let checkpoint = open();
    let ops = Cpu::default();
    let (model, features, tokenizer) = load(&ops, &checkpoint, WeightPolicy::default()).unwrap();
    WhisperRecogniser::new(WhisperSteps::new(ops, model, slots), features, tokenizer, slots)
}

/// A recogniser whose windows are encoded in many units.
fn recogniser_in_units(slots: usize) -> WhisperRecogniser<Cpu> {
    let checkpoint = open();
    let ops = Cpu::default();
    let (mut model, features, tokenizer) = load(&ops, &checkpoint, WeightPolicy::default()).unwrap();
    model.encoder = model.encoder.with_units(100_000);
    WhisperRecogniser::new(WhisperSteps::new(ops, model, slots), features, tokenizer, slots)
}

fn audio() -> Vec<f32> {
    Expected::load("whisper").tensor("audio").0
}

/// Encodes the fixture's sound for slot 0 of a model.
fn encode(steps: &mut WhisperSteps<Cpu>, features: &WindowFeatures, samples: usize) -> Vec<f32> {
    steps.encode(&[(0, &features.extract(&audio(), samples))]).concat()
}

#[test]
fn tensors_equal_the_reference() {
    let expected = Expected::load("whisper");
    let (mut steps, features) = steps(&open(), 1);
    assert!(difference(&features.extract(&audio(), 24_000), &expected.tensor("served.mel").0) < 1e-4);
    for (name, samples) in WINDOWS {
        let encoded = encode(&mut steps, &features, samples);
        let off = difference(&encoded, &expected.tensor(&format!("{name}.encoded")).0);
        assert!(off <= TOLERANCE, "{name}: the encoder is off by {off}");
        let [prompt, plain] = ["prompt", "plain"].map(|ids| expected.ids(&format!("{name}.{ids}")).0);
        let ids = [prompt, plain].concat();
        let rows = encoded.len() / steps.model().config.decoder.width;
        let mut logits = Vec::new();
        // The first positions at once, the others one by one.
        for (at, range) in std::iter::once(0..3).chain((3..ids.len()).map(|at| at..at + 1)).enumerate() {
            let wanted: Vec<usize> = (0..range.len()).collect();
            let position = if at == 0 { 0 } else { range.start };
            steps.launch(&[TextRows { slot: 0, ids: &ids[range], position, sound: rows, wanted: &wanted }]);
            logits.extend_from_slice(steps.collect());
        }
        let reference = expected.tensor(&format!("{name}.logits")).0;
        // The reference's last row follows the end.
        let off = difference(&logits, &reference[..logits.len()]);
        assert!(off <= TOLERANCE, "{name}: logits are off by {off}");
    }
}

/// Decodes greedily over encoded sound.
fn decode(steps: &mut WhisperSteps<Cpu>, encoded: &[f32], timestamps: bool) -> Decoding {
    let config = steps.model().config.clone();
    let rules = DecodingRules::new(&config);
    let prompt = RunPrompt { samples: (48_000, 48_000), rate: 16_000, timestamps, ..RunPrompt::default() };
    let mut decoding = Decoding::new(prompt, 0, &config.tokens);
    loop {
        let (count, wanted) = (decoding.queue.len(), decoding.wanted(decoding.queue.len()));
        let (ids, sound) = (decoding.queue.clone(), encoded.len() / config.decoder.width);
        steps.launch(&[TextRows { slot: 0, ids: &ids, position: decoding.computed, sound, wanted: &wanted }]);
        let mut logits = steps.collect().to_vec();
        match decoding.advance(count, &mut logits, &config, &rules) {
            Progress::Continues => {}
            Progress::Ended => return decoding,
            Progress::NotFinite => panic!("not finite"),
        }
    }
}

#[test]
fn greedy_ids_equal_the_reference() {
    let expected = Expected::load("whisper");
    let (mut steps, features) = steps(&open(), 1);
    for (name, samples) in WINDOWS {
        let encoded = encode(&mut steps, &features, samples);
        let facts = &expected.facts[name];
        for (ids, timestamps) in [("plain", false), ("timed", true)] {
            let decoding = decode(&mut steps, &encoded, timestamps);
            assert_eq!(decoding.ids(), expected.ids(&format!("{name}.{ids}")).0, "{name} {ids}");
            let tokens = &steps.model().config.tokens;
            let language = decoding.language.map(|language| tokens.languages[language].1);
            assert_eq!(language.map(u64::from), facts["language"].as_u64(), "{name}");
            let quality = decoding.quality(1.0);
            let ratio = |ours: f32, fact: &str| (f64::from(ours) / facts[fact].as_f64().unwrap() - 1.0).abs();
            assert!(ratio(quality.no_speech, "no_speech") < 1e-2, "{name}: {}", quality.no_speech);
            assert!(timestamps || ratio(quality.average, "average") < 1e-3, "{name}: {}", quality.average);
        }
    }
}

#[test]
fn token_times_equal_the_reference() {
    let expected = Expected::load("whisper");
    let (mut steps, features) = steps(&open(), 1);
    for (name, samples) in WINDOWS {
        let encoded = encode(&mut steps, &features, samples);
        let decoding = decode(&mut steps, &encoded, false);
        let config = steps.model().config.clone();
        let rows = encoded.len() / config.decoder.width;
        let reference: Vec<usize> =
            expected.ids(&format!("{name}.times")).0.into_iter().map(|row| row as usize).collect();
        // At once; then a token, a row of a layer and a head at a time; then some of each.
        for (most, least) in [(usize::MAX, 1), (1, decoding.ids().len() + rows), (20_000, 4), (200_000, 2)] {
            let mut work = WordAlignment::new(&config, decoding.aligned(&config.tokens), (rows, rows), most);
            assert!(work.units_left() >= least, "{} units of {most} multiplications", work.units_left());
            let begins = loop {
                let left = work.units_left();
                match work.advance(&mut steps, 0, &encoded, 1) {
                    Some(begins) => break begins,
                    None => assert_eq!(work.units_left(), left - 1),
                }
            };
            assert_eq!(begins, reference, "{name} in units of {most}");
        }
    }
}

/// Runs every unit of work of all slots, each step a batch; returns the hypotheses by slot.
fn settle(recogniser: &mut WhisperRecogniser<Cpu>, heard: &mut [Vec<Hypothesis>]) {
    loop {
        let due = |slot: usize| BatchEntry { slot, rows: recogniser.runnable_rows(slot).rows };
        let work: Vec<BatchEntry> = (0..recogniser.slots()).map(due).filter(|entry| entry.rows > 0).collect();
        if work.is_empty() {
            return;
        }
        let mut out = Vec::new();
        recogniser.step(&work, &mut out);
        for (slot, hypothesis) in out {
            heard[slot].push(hypothesis.unwrap());
        }
    }
}

/// Pushes all of `sound` in pieces of these lengths, cyclically, and runs all work between two.
fn push(
    recogniser: &mut WhisperRecogniser<Cpu>,
    slot: usize,
    sound: &[f32],
    cuts: &[usize],
    heard: &mut [Vec<Hypothesis>],
) {
    let (mut rest, mut cuts) = (sound, cuts.iter().cycle());
    while !rest.is_empty() {
        let piece = &rest[..(*cuts.next().unwrap()).min(rest.len())];
        let taken = recogniser.push(slot, piece);
        assert!(taken > 0 || recogniser.runnable_rows(slot).rows > 0, "sound is refused for ever");
        rest = &rest[taken..];
        settle(recogniser, heard);
    }
}

/// The fixture's sound, over and over.
fn sound(samples: usize) -> Vec<f32> {
    audio().into_iter().cycle().take(samples).collect()
}

/// Hypotheses of one turn, alone in a recogniser.
fn hear(sound: &[f32], cuts: &[usize], options: &HearingOptions) -> Vec<Hypothesis> {
    let (mut recogniser, mut heard) = (recogniser(1), vec![Vec::new()]);
    recogniser.open(0, options);
    push(&mut recogniser, 0, sound, cuts, &mut heard);
    recogniser.end(0);
    settle(&mut recogniser, &mut heard);
    check(&heard[0]);
    heard.remove(0)
}

/// Checks that stable text stays, and that the last hypothesis alone is final.
fn check(heard: &[Hypothesis]) {
    let mut stable = "";
    for (at, hypothesis) in heard.iter().enumerate() {
        assert!(hypothesis.text.starts_with(stable), "{:?} does not begin with {stable:?}", hypothesis.text);
        assert!(hypothesis.stable >= stable.len() && hypothesis.text.is_char_boundary(hypothesis.stable));
        stable = &hypothesis.text[..hypothesis.stable];
        assert_eq!(hypothesis.is_final, at + 1 == heard.len());
    }
    assert_eq!(heard.last().map(|last| last.stable), heard.last().map(|last| last.text.len()));
}

#[test]
fn any_split_gives_the_same_hypotheses() {
    // Beyond the longest window, which is cut.
    let sound = sound(140_000);
    let options = HearingOptions::default();
    let whole = hear(&sound, &[usize::MAX], &options);
    assert!(whole.iter().filter(|hypothesis| hypothesis.stable > 0).count() > 3, "{whole:?}");
    assert!(whole.last().unwrap().text.len() > 20, "{whole:?}");
    for cuts in [&[1_600][..], &[4_000, 1, 7_777, 320], &[50_000, 3]] {
        assert!(hear(&sound, cuts, &options) == whole, "{cuts:?}");
    }
}

#[test]
fn text_stays_later_with_more_delay() {
    let sound = &sound(35_000)[5_000..];
    // Index of the first hypothesis of which something stays, and the number of all.
    let first = |delay| {
        let heard = hear(sound, &[4_000], &HearingOptions { delay, ..HearingOptions::default() });
        (heard.iter().position(|hypothesis| hypothesis.stable > 0).unwrap(), heard.len())
    };
    let delays = [TextDelay::Minimal, TextDelay::Low, TextDelay::Medium, TextDelay::High];
    let firsts = delays.map(|delay| first(delay).0);
    assert!(firsts.windows(2).all(|pair| pair[0] < pair[1]), "{firsts:?}");
    let (at, all) = first(TextDelay::VeryHigh);
    assert_eq!(at, all - 1, "text stays at the end alone");
}

/// Does one unit of each slot that has work.
fn step_units(recogniser: &mut WhisperRecogniser<Cpu>, heard: &mut [Vec<Hypothesis>]) {
    let busy = (0..recogniser.slots()).filter(|&slot| recogniser.runnable_rows(slot).rows > 0);
    let work: Vec<BatchEntry> = busy.map(|slot| BatchEntry { slot, rows: 1 }).collect();
    let mut out = Vec::new();
    recogniser.step(&work, &mut out);
    out.into_iter().for_each(|(slot, hypothesis)| heard[slot].push(hypothesis.unwrap()));
}

#[test]
fn windows_in_units_give_the_same_hypotheses() {
    let turns = [sound(60_000), sound(90_000)[17_000..].to_vec()];
    let expected: Vec<_> = turns.iter().map(|turn| hear(turn, &[usize::MAX], &HearingOptions::default())).collect();
    let (mut recogniser, mut heard) = (recogniser_in_units(2), vec![Vec::new(); 2]);
    let mut most = 0;
    let mut rest: Vec<&[f32]> = turns.iter().map(|turn| &turn[..]).collect();
    (0..2).for_each(|slot| recogniser.open(slot, &HearingOptions::default()));
    while (0..2).any(|slot| !rest[slot].is_empty() || recogniser.runnable_rows(slot).rows > 0) {
        for (slot, rest) in rest.iter_mut().enumerate().filter(|(_, rest)| !rest.is_empty()) {
            let taken = recogniser.push(slot, &rest[..rest.len().min(2_000)]);
            *rest = &rest[taken..];
            if rest.is_empty() {
                recogniser.end(slot);
            }
        }
        let units = (0..2).map(|slot| recogniser.runnable_rows(slot));
        most = units.filter(|rows| rows.kind == RowKind::Window).map(|rows| rows.rows).max().unwrap_or(0).max(most);
        step_units(&mut recogniser, &mut heard);
    }
    assert!(most > 20, "a window has {most} units");
    assert!(heard == expected, "{heard:?} instead of {expected:?}");
}

#[test]
fn ends_withdrawn_within_windows_change_nothing() {
    let sound = sound(60_000);
    let whole = hear(&sound, &[usize::MAX], &HearingOptions::default());
    for units in [1, 2, 7, 15, 24] {
        let (mut recogniser, mut heard) = (recogniser_in_units(1), vec![Vec::new()]);
        recogniser.open(0, &HearingOptions::default());
        push(&mut recogniser, 0, &sound[..20_000], &[usize::MAX], &mut heard);
        recogniser.end(0);
        (0..units).for_each(|_| step_units(&mut recogniser, &mut heard));
        recogniser.resume(0);
        push(&mut recogniser, 0, &sound[20_000..], &[usize::MAX], &mut heard);
        recogniser.end(0);
        settle(&mut recogniser, &mut heard);
        assert!(heard[0] == whole, "after {units} units: {:?} instead of {whole:?}", heard[0]);
    }
    // A freed slot takes its window along.
    let (mut recogniser, mut heard) = (recogniser_in_units(1), vec![Vec::new()]);
    recogniser.open(0, &HearingOptions::default());
    recogniser.push(0, &sound[..30_000]);
    (0..5).for_each(|_| step_units(&mut recogniser, &mut heard));
    recogniser.free(0);
    recogniser.open(0, &HearingOptions::default());
    push(&mut recogniser, 0, &sound, &[usize::MAX], &mut heard);
    recogniser.end(0);
    settle(&mut recogniser, &mut heard);
    assert!(heard[0] == whole);
}

#[test]
fn complete_sound_is_decoded_in_whole_windows() {
    let options = HearingOptions { complete: true, ..HearingOptions::default() };
    // Of a growing turn this is decoded at several places.
    let short = sound(30_000);
    assert!(hear(&short, &[usize::MAX], &HearingOptions::default()).len() > 1);
    let heard = hear(&short, &[usize::MAX], &options);
    assert!(heard.len() == 1 && heard[0].text.len() > 5, "{heard:?}");
    // Beyond the longest window, in any split.
    let long = sound(140_000);
    let heard = hear(&long, &[usize::MAX], &options);
    let cuts = heard.len() - 1;
    assert!((1..=12).contains(&cuts) && heard[cuts].text.len() > 20, "{heard:?}");
    assert!(hear(&long, &[7_777, 320], &options) == heard);
}

#[test]
fn neighbours_change_no_hypothesis() {
    let turns = [sound(30_000), sound(90_000)[17_000..].to_vec(), sound(24_000), Vec::new()];
    let hinted = HearingOptions {
        language: Some("de-DE".to_owned()),
        prompt: "the lazy dog".to_owned(),
        ..HearingOptions::default()
    };
    let options = [HearingOptions::default(), HearingOptions::default(), hinted, HearingOptions::default()];
    let alone: Vec<_> = turns.iter().zip(&options).map(|(turn, options)| hear(turn, &[1_000], options)).collect();
    let (mut recogniser, mut heard) = (recogniser(4), vec![Vec::new(); 4]);
    (0..4).for_each(|slot| recogniser.open(slot, &options[slot]));
    for step in 0..40 {
        for (slot, turn) in turns.iter().enumerate() {
            let (from, to) = (2_000 * step, 2_000 * (step + 1));
            let mut rest = &turn[from.min(turn.len())..to.min(turn.len())];
            while !rest.is_empty() {
                rest = &rest[recogniser.push(slot, rest)..];
                if !rest.is_empty() {
                    settle(&mut recogniser, &mut heard);
                }
            }
        }
        // Some turns wait for a while, so that steps have several slots.
        if step % 3 == 0 {
            settle(&mut recogniser, &mut heard);
        }
    }
    (0..4).for_each(|slot| recogniser.end(slot));
    settle(&mut recogniser, &mut heard);
    for slot in 0..4 {
        assert!(heard[slot] == alone[slot], "slot {slot}: {:?} instead of {:?}", heard[slot], alone[slot]);
    }
    assert_eq!(heard[2].last().unwrap().language.as_deref(), Some("de"));
    assert_eq!(heard[3].len(), 1, "a turn without sound has its end alone");
}

#[test]
fn words_of_a_recording_are_timed() {
    let options = HearingOptions { complete: true, detailed: true, ..HearingOptions::default() };
    // Within a window, and beyond the longest one.
    for samples in [20_000, 140_000] {
        let sound = sound(samples);
        let heard = hear(&sound, &[7_000], &options);
        assert!(heard.len() <= 1 + samples / 16_000, "it is not heard as it grows: {heard:?}");
        assert!(heard == hear(&sound, &[usize::MAX], &options), "any split gives the same");
        let last = heard.last().unwrap();
        let details = last.details.as_ref().unwrap();
        let spelt: String = details.words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(spelt.trim(), last.text.trim());
        assert!(!details.words.is_empty(), "{last:?}");
        assert!(details.language.is_some() && details.language == last.language, "{details:?}");
        let times: Vec<_> = details.words.iter().flat_map(|word| [word.begin, word.end]).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(times.last().is_some_and(|end| end.as_secs_f64() <= samples as f64 / 16_000.0), "{times:?}");
        assert!(details.quality.average < 0.0 && details.quality.compression > 0.0, "{:?}", details.quality);
    }
    let silent = hear(&[0.0; 30_000], &[usize::MAX], &options);
    assert_eq!(silent.last().unwrap().details.as_ref().unwrap().words, []);
}

#[test]
fn a_translation_has_its_own_task() {
    let [heard, translated] = [false, true].map(|translate| {
        let options = HearingOptions { translate, complete: true, ..HearingOptions::default() };
        hear(&sound(20_000), &[usize::MAX], &options).pop().unwrap().text
    });
    assert_ne!(heard, translated);
    let tokens = steps(&open(), 1).0.model().config.tokens.clone();
    let prompt = RunPrompt { translate: true, language: Some(0), ..RunPrompt::default() };
    let queue = Decoding::new(prompt, 0, &tokens).queue;
    assert_eq!(queue[2..3], [tokens.translate.unwrap()]);
    assert_eq!(recogniser(1).info().languages.len(), tokens.languages.len());
}

#[test]
fn a_withdrawn_end_changes_nothing() {
    let sound = sound(60_000);
    let whole = hear(&sound, &[usize::MAX], &HearingOptions::default());
    for (cut, wait) in [(20_000, true), (20_000, false), (47_999, true), (100, true)] {
        let (mut recogniser, mut heard) = (recogniser(1), vec![Vec::new()]);
        recogniser.open(0, &HearingOptions::default());
        push(&mut recogniser, 0, &sound[..cut], &[usize::MAX], &mut heard);
        recogniser.end(0);
        if wait {
            settle(&mut recogniser, &mut heard);
            assert!(heard[0].pop().unwrap().is_final);
        } else {
            // The final hypothesis is under way.
            let rows = recogniser.runnable_rows(0).rows;
            recogniser.step(&[BatchEntry { slot: 0, rows }], &mut Vec::new());
        }
        recogniser.resume(0);
        push(&mut recogniser, 0, &sound[cut..], &[usize::MAX], &mut heard);
        recogniser.end(0);
        settle(&mut recogniser, &mut heard);
        assert!(heard[0] == whole, "{cut} {wait}: {:?} instead of {whole:?}", heard[0]);
    }
}

#[test]
fn a_freed_slot_gives_nothing() {
    let (mut recogniser, mut out) = (recogniser(1), Vec::new());
    recogniser.open(0, &HearingOptions::default());
    recogniser.push(0, &sound(30_000));
    let rows = recogniser.runnable_rows(0).rows;
    recogniser.launch(&[BatchEntry { slot: 0, rows }]);
    recogniser.free(0);
    recogniser.open(0, &HearingOptions::default());
    recogniser.collect(&mut out);
    assert!(out.is_empty() && recogniser.runnable_rows(0).rows == 0);
    assert_eq!(recogniser.held(), 1);
}

#[test]
fn zeroing_any_tensor_is_noticed() {
    let expected = Expected::load("whisper");
    let bytes = std::fs::read(checkpoint().join("model.safetensors")).unwrap();
    let names: Vec<String> = SafeTensors::deserialize(&bytes).unwrap().names().into_iter().map(str::to_owned).collect();
    for tensor in names {
        let copy = copy(&checkpoint());
        zero(&copy.path().join("model.safetensors"), |other| other == tensor);
        let checkpoint = Checkpoint::open(Source::Folder(copy.path().to_owned())).unwrap();
        let (mut steps, features) = steps(&checkpoint, 1);
        let encoded = encode(&mut steps, &features, 24_000);
        let [prompt, plain] = ["prompt", "plain"].map(|ids| expected.ids(&format!("served.{ids}")).0);
        let (ids, rows) = ([prompt, plain].concat(), encoded.len() / steps.model().config.decoder.width);
        let wanted: Vec<usize> = (0..ids.len()).collect();
        steps.launch(&[TextRows { slot: 0, ids: &ids, position: 0, sound: rows, wanted: &wanted }]);
        let logits = steps.collect();
        let off = difference(logits, &expected.tensor("served.logits").0[..logits.len()]);
        assert!(off > TOLERANCE, "nothing differs although {tensor} is zero");
    }
}

/// The fixture in CTranslate2's form: variables of joined matrices in model.bin, and its own config.json.
fn converted() -> tempfile::TempDir {
    let copy = copy(&checkpoint());
    let path = copy.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let read = |name: &str| tensors.tensor(&format!("model.{name}")).unwrap();
    let mut variables = Vec::new();
    let mut add = |name: String, parts: &[Option<&str>]| {
        let found: Vec<_> = parts.iter().map(|part| part.map(read)).collect();
        let first = found.iter().flatten().next().unwrap();
        let data: Vec<u8> = found
            .iter()
            .flat_map(|part| part.as_ref().map_or_else(|| vec![0; first.data().len()], |part| part.data().to_vec()))
            .collect();
        let mut shape = first.shape().to_vec();
        shape[0] *= parts.len();
        variables.push((name, shape, data));
    };
    for (side, layers) in [("encoder", 2), ("decoder", 3)] {
        let one = |name: &str| format!("{side}.{name}");
        add(format!("{side}/position_encodings/encodings"), &[Some(&one("embed_positions.weight"))]);
        let blocks = if side == "encoder" { vec!["conv1", "conv2"] } else { Vec::new() };
        for (block, end) in blocks.into_iter().flat_map(|block| ["weight", "bias"].map(|end| (block, end))) {
            add(format!("{side}/{block}/{end}"), &[Some(&one(&format!("{block}.{end}")))]);
        }
        for (ours, theirs) in [("weight", "gamma"), ("bias", "beta")] {
            add(format!("{side}/layer_norm/{theirs}"), &[Some(&one(&format!("layer_norm.{ours}")))]);
        }
        for layer in 0..layers {
            let mut modules = vec![
                ("self_attention/linear_1", vec!["self_attn.out_proj"]),
                ("self_attention/linear_0", vec!["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
                ("self_attention/layer_norm", vec!["self_attn_layer_norm"]),
                ("ffn/linear_0", vec!["fc1"]),
                ("ffn/linear_1", vec!["fc2"]),
                ("ffn/layer_norm", vec!["final_layer_norm"]),
            ];
            if side == "decoder" {
                modules.push(("attention/linear_0", vec!["encoder_attn.q_proj"]));
                modules.push(("attention/linear_1", vec!["encoder_attn.k_proj", "encoder_attn.v_proj"]));
                modules.push(("attention/linear_2", vec!["encoder_attn.out_proj"]));
                modules.push(("attention/layer_norm", vec!["encoder_attn_layer_norm"]));
            }
            for (module, parts) in modules {
                for end in ["weight", "bias"] {
                    let named = |part: &&str| {
                        let lacks = end == "bias" && part.ends_with("k_proj");
                        (!lacks).then(|| one(&format!("layers.{layer}.{part}.{end}")))
                    };
                    let parts: Vec<Option<String>> = parts.iter().map(named).collect();
                    let parts: Vec<Option<&str>> = parts.iter().map(Option::as_deref).collect();
                    let theirs = match (module.ends_with("norm"), end) {
                        (true, "weight") => "gamma",
                        (true, _) => "beta",
                        (false, end) => end,
                    };
                    add(format!("{side}/layer_{layer}/{module}/{theirs}"), &parts);
                }
            }
        }
    }
    add("decoder/embeddings/weight".to_owned(), &[Some("decoder.embed_tokens.weight")]);
    let text = |text: &str| [&(text.len() as u16 + 1).to_le_bytes()[..], text.as_bytes(), b"\0"].concat();
    let mut file = [&6u32.to_le_bytes()[..], &text("WhisperSpec")].concat();
    file.extend([3, variables.len() as u32].map(u32::to_le_bytes).concat());
    for (name, shape, data) in variables {
        file.extend(text(&name));
        file.push(shape.len() as u8);
        file.extend(shape.iter().flat_map(|size| (*size as u32).to_le_bytes()));
        // bfloat16.
        file.push(5);
        file.extend((data.len() as u32).to_le_bytes());
        file.extend(data);
    }
    file.extend(0u32.to_le_bytes());
    std::fs::write(copy.path().join("model.bin"), file).unwrap();
    std::fs::remove_file(path).unwrap();
    let json =
        |file: &str| -> Value { serde_json::from_slice(&std::fs::read(copy.path().join(file)).unwrap()).unwrap() };
    let generation = json("generation_config.json");
    let config = json!({
        "alignment_heads": generation["alignment_heads"],
        "lang_ids": generation["lang_to_id"].as_object().unwrap().values().collect::<Vec<_>>(),
        "suppress_ids": generation["suppress_tokens"],
        "suppress_ids_begin": generation["begin_suppress_tokens"],
        // Published heads are 64 wide; those of the fixture are not.
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
    });
    std::fs::remove_file(copy.path().join("generation_config.json")).unwrap();
    std::fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    copy
}

#[test]
fn ctranslate2_form_decodes_the_same_ids() {
    let expected = Expected::load("whisper");
    let folder = converted();
    let checkpoint = Checkpoint::open(Source::Folder(folder.path().to_owned())).unwrap();
    assert_eq!(checkpoint.form(), "CTranslate2, 1 file");
    let (mut converted, features) = steps(&checkpoint, 1);
    let encoded = encode(&mut converted, &features, 48_000);
    assert!(difference(&encoded, &expected.tensor("longest.encoded").0) <= TOLERANCE);
    // Without a section of languages the size of the vocabulary tells that there are none.
    assert!(converted.model().config.tokens.languages.is_empty());
    let (mut plain, _) = steps(&open(), 1);
    let ours = encode(&mut plain, &features, 48_000);
    assert!(ours == encoded, "the same numbers give the same bits");
    let model = load_model(&checkpoint, &EngineConfig::default()).unwrap();
    assert!(matches!(model.hearing, Some(Hearing::Text(_))) && model.stages.is_empty());
}

#[test]
fn wrong_configurations_are_refused() {
    let refusal = |file: &str, change: &dyn Fn(&mut Value)| {
        let copy = copy(&checkpoint());
        let path = copy.path().join(file);
        let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut json);
        std::fs::write(&path, json.to_string()).unwrap();
        let checkpoint = Checkpoint::open(Source::Folder(copy.path().to_owned())).unwrap();
        load(&Cpu::default(), &checkpoint, WeightPolicy::default()).map(|_| ()).unwrap_err().to_string()
    };
    for (file, field, value, part) in [
        ("config.json", "encoder_attention_heads", json!(3), "d_model"),
        ("config.json", "d_model", json!(31), "d_model"),
        ("config.json", "decoder_layers", json!(4), "layers.3"),
        ("config.json", "vocab_size", json!(100), "vocab_size"),
        ("config.json", "max_source_positions", json!(0), "max_source_positions"),
        ("config.json", "activation_function", json!("relu"), "activation_function"),
        ("generation_config.json", "alignment_heads", json!([[3, 0]]), "alignment_heads"),
        ("generation_config.json", "suppress_tokens", json!([100_000]), "suppress_tokens"),
        ("preprocessor_config.json", "feature_size", json!(80), "feature_size"),
        ("tokenizer.json", "added_tokens", json!([]), "<|"),
    ] {
        let refused = refusal(file, &|json| json[field] = value.clone());
        assert!(refused.contains(part), "{file} {field}: {refused}");
    }
}
