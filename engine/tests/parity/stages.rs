//! Parity of every stage with the reference implementation on the same weights: each compared tensor is within 1e-4 of
//! the largest reference value, and tokens and codes are equal. With the feature `cuda`, on a CUDA device.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use repartee_engine::EngineConfig;
use repartee_engine::internals::qwen3_omni_moe::Qwen3Omni;
use repartee_engine::internals::{Checkpoint, LogMel, LogMelConfig, WindowInput};
use repartee_engine::{Source, WeightPolicy};
use repartee_engine_api::{Command, Respond};
use repartee_engine_testkit::device::{Device, device};
use repartee_engine_testkit::driven::serve;
use repartee_engine_testkit::eager::{self, batch, index};
use repartee_engine_testkit::{CONVERSATIONS, Expected, difference, folder, root};
use repartee_kernels::cpu::sample;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::{NO_ID, Ops, SampleParams, StateSpec, StreamRows};
use repartee_kernels_testkit::host::HostOps;

/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;

/// True if a difference counts as equal; false for NaN.
fn is_close(off: f32) -> bool {
    off <= TOLERANCE
}

/// Compared tensors: name and difference (0 or infinite for ids).
type Findings = Vec<(String, f32)>;

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

/// Runs every stage of a checkpoint on the fixture's inputs; each gets the reference's output of the stage before.
fn compare(checkpoint: &Checkpoint, expected: &Expected) -> Findings {
    compare_as(checkpoint, expected, WeightPolicy::default())
}

/// Like [`compare`], with weights in the formats of `policy`.
fn compare_as(checkpoint: &Checkpoint, expected: &Expected, policy: WeightPolicy) -> Findings {
    let ops = device();
    let model = Qwen3Omni::load_as(&ops, checkpoint, policy).unwrap();
    let mut findings = Findings::new();
    let mut audio_rows: Vec<<Device as Ops>::T> = Vec::new();
    for turn in 0..expected.turns() {
        let at = |name: &str| format!("turn{turn}.{name}");
        let mut check = |name: &str, ours: &[f32]| {
            findings.push((at(name), difference(ours, &expected.tensor(&at(name)).0)));
        };
        check("mel", &mel(checkpoint, &model, expected, &at("audio")));
        let rows = audio(&ops, &model, expected, &at("mel"));
        check("audio_tower", &rows);
        let (rows, shape) = expected.tensor(&at("audio_tower"));
        audio_rows.push(ops.tensor(rows, shape[1]));
        findings.extend(thinker(&ops, &model, expected, turn, &audio_rows));
        findings.extend(talker(&ops, &model, expected, turn));
        findings.extend(waveform(&ops, &model, expected, turn, usize::MAX));
    }
    findings
}

/// Streaming log-mel in pushes of uneven size, in the reference's layout.
fn mel(checkpoint: &Checkpoint, model: &Qwen3Omni<Device>, expected: &Expected, audio: &str) -> Vec<f32> {
    let config = LogMelConfig::load(checkpoint, model.config.thinker.audio.tower.num_mel_bins).unwrap();
    let mut stream = LogMel::new(&config, model.config.thinker.audio.n_window_infer).unwrap().stream();
    let mut windows = Vec::new();
    for chunk in expected.tensor(audio).0.chunks(777) {
        stream.push(chunk, &mut windows);
    }
    windows.extend(stream.finish());
    let bins = model.config.thinker.audio.tower.num_mel_bins;
    let frames: Vec<&[f32]> = windows.iter().flat_map(|w| w.data.chunks(bins)).collect();
    (0..bins).flat_map(|bin| frames.iter().map(move |frame| frame[bin])).collect()
}

fn audio(ops: &Device, model: &Qwen3Omni<Device>, expected: &Expected, mel: &str) -> Vec<f32> {
    let (mel, shape) = expected.tensor(mel);
    let (bins, frames) = (shape[0], shape[1]);
    let by_frame: Vec<f32> =
        (0..frames).flat_map(|t| (0..bins).map(move |b| (b, t))).map(|(b, t)| mel[b * frames + t]).collect();
    let window = model.config.thinker.audio.n_window_infer * bins;
    let windows: Vec<_> =
        by_frame.chunks(window).enumerate().map(|(index, data)| WindowInput { data, index }).collect();
    let rows = eager::encode(ops, &model.audio_tower, &windows);
    let shape = model.audio_tower.shape();
    let tokens = windows.iter().map(|window| shape.tokens(window.data.len() / bins)).sum::<usize>();
    assert_eq!(rows.len() / shape.output_width(), tokens);
    rows
}

fn greedy(slot: usize, repetition_penalty: f32) -> SampleParams {
    SampleParams { slot, repetition_penalty, temperature: 0.0, top_k: 0, top_p: 1.0, uniform: 0.0 }
}

fn ids_found(name: String, ours: &[u32], reference: &[u32]) -> (String, f32) {
    (name, if ours == reference { 0.0 } else { f32::INFINITY })
}

fn thinker(
    ops: &Device,
    model: &Qwen3Omni<Device>,
    expected: &Expected,
    turn: usize,
    audio_rows: &[<Device as Ops>::T],
) -> Findings {
    let at = |name: &str| format!("turn{turn}.thinker.{name}");
    let (prompt, _) = expected.ids(&at("prompt_ids"));
    let (tokens, _) = expected.ids(&at("tokens"));
    let placeholder = model.config.thinker.audio_token_id;
    let audio_at: Vec<u32> = (0..prompt.len() as u32).filter(|&i| prompt[i as usize] == placeholder).collect();
    let ids: Vec<u32> = prompt.iter().map(|&id| if id == placeholder { NO_ID } else { id }).collect();
    let rows = ops.concat(&audio_rows.iter().collect::<Vec<_>>());

    let mut cache = model.thinker.model.cache(ops, 1, prompt.len() + tokens.len());
    let mut output_mask =
        ops.state(StateSpec::TokenMask { slots: 1, vocabulary: model.config.thinker.text.model.vocab_size });
    let (mut hidden, mut logits, mut chosen) = (Vec::new(), Vec::new(), Vec::new());
    let mut ids = index(ops, &ids);
    let mut x = model.thinker.embed(ops, &ids, Some((&index(ops, &audio_at), &rows)));
    let mut position = 0;
    for &next in &tokens {
        let rows = ops.rows(&x);
        let batch = batch(ops, position, rows);
        position += rows;
        let (out, tapped) = model.thinker.forward(ops, x, &ids, &mut cache, &batch);
        let tapped = tapped.unwrap();
        hidden.extend(ops.read(&tapped));
        let row = model.thinker.logits(ops, &out, &index(ops, &[rows as u32 - 1]));
        logits.extend(ops.read(&row));
        chosen.extend(ops.sample(&row, &[greedy(0, 1.0)], None, Some(&mut output_mask)));
        ids = index(ops, &[next]);
        x = model.thinker.embed(ops, &ids, None);
    }
    vec![
        (at("hidden"), difference(&hidden, &expected.tensor(&at("hidden")).0)),
        (at("logits"), difference(&logits, &expected.tensor(&at("logits")).0)),
        ids_found(at("tokens"), &chosen, &tokens),
    ]
}

fn talker(ops: &Device, model: &Qwen3Omni<Device>, expected: &Expected, turn: usize) -> Findings {
    let at = |name: &str| format!("turn{turn}.{name}");
    let config = &model.config;
    let penalty = expected.facts["settings"]["talker_repetition_penalty"].as_f64().unwrap() as f32;
    let speaker = config.talker.speaker_id[expected.facts["settings"]["speaker"].as_str().unwrap()];

    // The user's rows, then the header, the codec marks and the first text row.
    let (prompt, _) = expected.ids(&at("thinker.prompt_ids"));
    let (tokens, _) = expected.ids(&at("thinker.tokens"));
    let (hidden, shape) = expected.tensor(&at("thinker.hidden"));
    let hidden = ops.tensor(hidden, shape[1]);
    let text = |ids: &[u32]| model.talker.text_rows(ops, &index(ops, ids));
    let mut rows = Vec::new();
    let mut user = false;
    for (i, &id) in prompt.iter().enumerate() {
        if id == config.im_start_token_id {
            user = prompt.get(i + 1) == Some(&config.user_token_id);
        }
        if user && id == config.thinker.audio_token_id {
            rows.push(model.talker.audio_rows(ops, &ops.gather(&hidden, &[i])));
        } else if user {
            rows.push(text(&[id]));
        }
    }
    let codec = &config.talker;
    let pad = codec.ids.tts_pad;
    let tail_text = [&prompt[prompt.len() - 3..], &[pad; 4], &[codec.ids.tts_bos, tokens[0]]].concat();
    let tail_codec = [
        &[NO_ID; 3][..],
        &[codec.ids.nothink, codec.ids.think_bos, codec.ids.think_eos, speaker],
        &[codec.ids.codec_pad, codec.ids.codec_bos],
    ]
    .concat();
    rows.push(ops.add(text(&tail_text), &model.talker.codec.rows(ops, &index(ops, &tail_codec))));
    let prompt = ops.concat(&rows.iter().collect::<Vec<_>>());
    let spoken = &tokens[1..tokens.len() - 1];
    let trailing = text(&[spoken, &[codec.ids.tts_eos]].concat());
    let mut findings = vec![
        (at("talker.prompt"), difference(&ops.read(&prompt), &expected.tensor(&at("talker.prompt")).0)),
        (at("talker.trailing"), difference(&ops.read(&trailing), &expected.tensor(&at("talker.trailing")).0)),
    ];

    let (codes, shape) = expected.ids(&at("codes"));
    let (groups, frames) = (shape[0], shape[1]);
    let mut cache = model.talker.codec.model.cache(ops, 1, ops.rows(&prompt) + frames + 1);
    let mut predictor_cache = model.talker.code_predictor.cache(ops, 1);
    let mut output_mask = ops.state(StateSpec::TokenMask { slots: 1, vocabulary: codec.text.model.vocab_size });
    let (mut hiddens, mut logits, mut residual_logits) = (Vec::new(), Vec::new(), Vec::new());
    let mut made: Vec<Vec<u32>> = vec![Vec::new(); groups];
    let mut end = None;
    let (mut x, mut position) = (prompt, 0);
    for step in 0..=frames {
        let rows = ops.rows(&x);
        let batch = batch(ops, position, rows);
        position += rows;
        let hidden = model.talker.codec.forward(ops, x, &mut cache, &batch, &index(ops, &[rows as u32 - 1]));
        hiddens.extend(ops.read(&hidden));
        let row = model.talker.codec.logits(ops, &hidden);
        logits.extend(ops.read(&row));
        let first =
            ops.sample(&row, &[greedy(0, penalty)], Some(&model.talker.codec.allowed_mask), Some(&mut output_mask));
        if step == frames {
            end = Some(first[0]);
            break;
        }
        let embedded = model.talker.codec.rows(ops, &index(ops, &first));
        let predictor = &model.talker.code_predictor;
        let (rest, raw, embedding) =
            eager::complete(ops, predictor, &hidden, embedded, &mut predictor_cache, &[greedy(0, 1.0)]);
        made[0].extend(&first);
        for (made, ids) in made[1..].iter_mut().zip(&rest) {
            made.extend(ops.read_list(ids));
        }
        residual_logits.extend(raw.iter().flat_map(|logits| ops.read(logits)));
        let next = if step < ops.rows(&trailing) { ops.gather(&trailing, &[step]) } else { text(&[pad]) };
        x = ops.add(embedding, &next);
    }
    findings.extend([
        (at("talker.hidden"), difference(&hiddens, &expected.tensor(&at("talker.hidden")).0)),
        (at("talker.logits"), difference(&logits, &expected.tensor(&at("talker.logits")).0)),
        (at("predictor.logits"), difference(&residual_logits, &expected.tensor(&at("predictor.logits")).0)),
        ids_found(at("codes"), &made.concat(), &codes),
        ids_found(at("end of speech"), &[end.unwrap()], &[codec.ids.codec_eos]),
    ]);
    findings
}

fn waveform(ops: &Device, model: &Qwen3Omni<Device>, expected: &Expected, turn: usize, at_once: usize) -> Findings {
    let samples = decode(ops, model, expected, &format!("turn{turn}.codes"), at_once);
    let name = format!("turn{turn}.waveform");
    let reference = expected.tensor(&name).0;
    vec![(name, difference(&samples, &reference))]
}

/// Samples of the reference's codes, decoded `at_once` frames at a time.
fn decode(ops: &Device, model: &Qwen3Omni<Device>, expected: &Expected, codes: &str, at_once: usize) -> Vec<f32> {
    let (codes, shape) = expected.ids(codes);
    let frames = shape[1];
    let mut state = model.code2wav.state(ops, 1);
    let mut samples = Vec::new();
    let step = at_once.min(repartee_engine::internals::qwen3_omni_moe::MAX_FRAMES);
    for from in (0..frames).step_by(step) {
        let rows = step.min(frames - from);
        let part: Vec<Vec<u32>> = codes.chunks(frames).map(|c| c[from..from + rows].to_vec()).collect();
        let chunk = StreamRows { slot: 0, position: from, rows };
        samples.extend(eager::decode(ops, &model.code2wav, &part, &mut state, &[chunk]).concat());
    }
    samples
}

#[test]
fn non_finite_values_are_not_close() {
    for odd in [f32::NAN, f32::INFINITY] {
        let (sound, broken) = ([1.0, 2.0], [1.0, odd]);
        for (ours, reference) in [(broken, sound), (sound, broken), (broken, broken)] {
            assert!(!is_close(difference(&ours, &reference)), "{ours:?} against {reference:?}");
        }
    }
    assert!(!is_close(f32::NAN));
    assert!(!is_close(difference(&[1.0], &[0.0])), "a silent reference");
    assert!(!is_close(difference(&[1.0], &[])), "another size");
    assert!(is_close(difference(&[0.0, 0.0], &[0.0, 0.0])));
}

/// Prints the differences and fails if one is too large.
fn assert_close(name: &str, findings: &Findings) {
    let width = findings.iter().map(|(name, _)| name.len()).max().unwrap();
    for (what, off) in findings {
        println!("{name:10} {what:width$} {off:.1e}");
    }
    let wrong: Vec<_> = findings.iter().filter(|(_, off)| !is_close(*off)).collect();
    assert!(wrong.is_empty(), "{name}: {wrong:?}");
}

#[test]
fn every_tensor_equals_the_reference() {
    for name in CONVERSATIONS {
        assert_close(name, &compare(&open(&folder(name).join("checkpoint")), &Expected::load(name)));
    }
}

/// The shipped weights, and the reference's output for them. Fails if the fixture was made with other weights.
fn demo() -> (PathBuf, Expected) {
    let (model, expected) = (root().join("models/demo"), Expected::load("demo"));
    let mut weights = std::fs::read(model.join("model.safetensors")).unwrap();
    weights.resize(weights.len().next_multiple_of(8), 0);
    let checksum = weights.as_chunks().0.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let made_with = expected.facts["weights"].as_str().unwrap();
    assert_eq!(format!("{checksum:016x}"), made_with, "other weights: make the fixture anew (tests/parity/README.md)");
    (model, expected)
}

#[test]
#[cfg_attr(feature = "cuda", ignore = "a simulated device takes too long")]
fn every_tensor_of_the_demo_equals_the_reference() {
    let (model, expected) = demo();
    assert_close("demo", &compare(&open(&model), &expected));
}

/// Samples of one of the end-to-end tests' questions: 16 bits, one channel, after a header of 44 bytes.
fn question(file: &str) -> Vec<f32> {
    let bytes = std::fs::read(root().join("tests/questions").join(file)).unwrap();
    assert_eq!(&bytes[36..40], b"data", "{file}");
    bytes[44..].as_chunks().0.iter().map(|sample| f32::from(i16::from_le_bytes(*sample)) / 32768.0).collect()
}

/// Whole answers of a served engine: transcripts, and samples up to the first code that the reference chose by so small
/// a margin that another order of sums might choose another one.
#[test]
#[cfg_attr(feature = "cuda", ignore = "the engine that is served here is that of the processor")]
fn answers_of_the_demo_equal_the_reference() {
    let (folder, expected) = demo();
    let ops = device();
    let model = Qwen3Omni::load(&ops, &open(&folder)).unwrap();
    let mut engine = serve(&folder, &EngineConfig::default());
    let answers = expected.facts["answers"].as_array().unwrap();
    let (mut compared, mut of) = (0, 0);
    for (i, answer) in answers.iter().enumerate() {
        let number = |fact: &str| answer[fact].as_u64().unwrap() as usize;
        let file = answer["file"].as_str().unwrap();
        let session = engine.open();
        engine.ticks(1);
        for slice in question(file).chunks(1600) {
            engine.send(&session, Command::Append(slice.to_vec()));
        }
        engine.send(&session, Command::Commit { item: 1 });
        let response = engine.respond(&session, Respond::new(1, 2)).unwrap();
        drop(session);
        engine.settle();

        assert_eq!(response.text, answer["text"].as_str().unwrap(), "{file}");
        let prompt = response.usage.input_audio_tokens + response.usage.input_text_tokens;
        assert_eq!(prompt as usize, number("prompt_tokens"), "{file}");
        let reference = decode(&ops, &model, &expected, &format!("answer{i}.codes"), usize::MAX);
        let (frames, decided) = (number("frames"), number("decided_frames"));
        let sure = if decided > frames {
            assert_eq!(response.samples.len(), reference.len(), "{file}");
            reference.len()
        } else {
            // A frame's samples depend on the next frame.
            reference.len() / frames * decided.saturating_sub(1)
        };
        let off = difference(&response.samples[..sure], &reference[..sure]);
        println!("{file:30} {:50} {decided:2} of {frames} frames, {off:.1e}", response.text);
        assert!(sure == 0 || is_close(off), "{file}: off by {off}");
        compared += sure;
        of += reference.len();
    }
    assert!(answers.len() > 40 && compared > of / 2, "{compared} of {of} samples are compared");
}

/// Loss of integer weights in stages that get the reference's own results throughout: far more than rounding, so the
/// policy takes effect; and eight bits lose less than four. The talker and its predictor continue with codes that they
/// choose themselves.
#[test]
fn eight_bits_are_nearer_than_four() {
    // A simulated device is slow; the fixture with experts has every kind of product.
    let names = if cfg!(feature = "cuda") { &CONVERSATIONS[1..2] } else { &CONVERSATIONS[..] };
    for &name in names {
        let checkpoint = open(&folder(name).join("checkpoint"));
        let expected = Expected::load(name);
        let [eight, mixed, four] = [WeightPolicy::Int8, WeightPolicy::Mixed, WeightPolicy::Int4]
            .map(|policy| compare_as(&checkpoint, &expected, policy));
        for (((what, eight), (_, mixed)), (_, four)) in eight.iter().zip(&mixed).zip(&four) {
            println!("{name:10} {what:24} int8 {eight:.1e}, mixed {mixed:.1e}, int4 {four:.1e}");
            let stage = ["audio_tower", "thinker.hidden", "thinker.logits", "talker.prompt", "waveform"];
            if stage.iter().any(|stage| what.ends_with(stage)) {
                assert!(!is_close(*eight) && eight < four, "{name} {what}");
            }
        }
    }
}

#[test]
fn chunked_decode_equals_one_decode() {
    for name in CONVERSATIONS {
        let ops = device();
        let model = Qwen3Omni::load(&ops, &open(&folder(name).join("checkpoint"))).unwrap();
        for at_once in [1, 2, 3, 7] {
            let findings = waveform(&ops, &model, &Expected::load(name), 0, at_once);
            assert!(findings.iter().all(|(_, off)| is_close(*off)), "{name} {at_once}: {findings:?}");
        }
    }
}

/// Weights without effect: softmax does not depend on a constant added to all of a query's scores.
fn is_without_effect(tensor: &str) -> bool {
    tensor.contains("audio_tower") && tensor.ends_with("k_proj.bias")
}

#[test]
#[cfg_attr(
    feature = "cuda",
    ignore = "a simulated device takes too long: cargo test --release --workspace --test parity"
)]
fn zeroing_any_block_is_noticed() {
    let mut blocks_tried = 0;
    for name in CONVERSATIONS {
        let expected = Expected::load(name);
        let original = folder(name).join("checkpoint");
        let names: Vec<String> = open(&original).tensor_names().map(str::to_owned).collect();
        // A block is the content of one module, weight and bias together.
        let used = names.iter().filter(|n| !n.contains(".visual."));
        let blocks: BTreeSet<&str> = used.filter_map(|n| n.rsplit_once('.')).map(|(module, _)| module).collect();
        for block in blocks {
            let copy = tempfile::tempdir().unwrap();
            for entry in std::fs::read_dir(&original).unwrap() {
                let path = entry.unwrap().path();
                let mut bytes = std::fs::read(&path).unwrap();
                if path.extension().is_some_and(|e| e == "safetensors") {
                    zero(&mut bytes, |tensor| {
                        tensor.rsplit_once('.').is_some_and(|(module, _)| module == block) && !is_without_effect(tensor)
                    });
                }
                std::fs::write(copy.path().join(path.file_name().unwrap()), bytes).unwrap();
            }
            let findings = compare(&open(copy.path()), &expected);
            assert!(
                findings.iter().any(|(_, off)| !is_close(*off)),
                "{name}: no tensor differs although {block} is zero"
            );
            blocks_tried += 1;
        }
    }
    println!("{blocks_tried} blocks");
    assert!(blocks_tried > 300);
}

/// Zeroes the tensors of a safetensors file whose names satisfy `which`.
fn zero(file: &mut [u8], which: impl Fn(&str) -> bool) {
    let header_len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..8 + header_len]).unwrap();
    for (name, tensor) in header.as_object().unwrap() {
        if name != "__metadata__" && which(name) {
            let offset = |i: usize| 8 + header_len + tensor["data_offsets"][i].as_u64().unwrap() as usize;
            file[offset(0)..offset(1)].fill(0);
        }
    }
}

#[test]
fn logits_processors_equal_the_reference() {
    let expected = Expected::load("sampling");
    let cases = expected.facts["cases"].as_array().unwrap();
    for (i, case) in cases.iter().enumerate() {
        let number = |field: &str| case[field].as_f64().unwrap() as f32;
        let check = |what: &str, ours: &[f32]| {
            let reference = expected.tensor(&format!("case{i}.{what}")).0;
            for (id, (&a, &b)) in ours.iter().zip(&reference).enumerate() {
                let same = if b.is_finite() { (a - b).abs() <= 1e-5 * b.abs().max(1.0) } else { a == b };
                assert!(same, "case {i}, {what}, id {id}: {a} instead of {b}");
            }
        };
        let mut scores = expected.tensor(&format!("case{i}.logits")).0;
        let seen: BTreeSet<usize> =
            expected.ids(&format!("case{i}.previous")).0.iter().map(|&id| id as usize).collect();
        sample::repetition_penalty(&mut scores, seen, number("repetition_penalty"));
        check("after_repetition_penalty", &scores);
        let mut allowed = vec![1.0; scores.len()];
        for id in case["suppress"].as_array().unwrap() {
            allowed[id.as_u64().unwrap() as usize] = 0.0;
        }
        sample::suppress(&mut scores, &allowed);
        check("after_suppress", &scores);
        sample::temperature(&mut scores, number("temperature"));
        check("after_temperature", &scores);
        sample::top_k(&mut scores, number("top_k") as usize);
        check("after_top_k", &scores);
        sample::top_p(SimdLevel::detect(), &mut scores, number("top_p"));
        check("after_top_p", &scores);
        repartee_kernels::cpu::math::softmax(SimdLevel::detect(), &mut scores);
        check("probabilities", &scores);
    }
    assert!(cases.len() >= 6);
}
