//! Parity of Qwen2.5-Omni with its reference implementation on the same weights: each compared tensor is within 1e-4 of
//! the largest reference value, and tokens and codes are equal. token2wav has its own tests.
//!
//! - `speaking`: output of the engine
//! - `refusals`: refused checkpoints
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod refusals;
mod spoken_responses;

use std::collections::BTreeSet;
use std::path::Path;

use repartee_engine::Source;
use repartee_engine::internals::qwen2_5_omni::{Qwen25Omni, Token2WavConfig, ends, load_speakers};
use repartee_engine::internals::{Checkpoint, LogMel, LogMelConfig, WindowInput};
use repartee_engine_testkit::eager::{batch, index};
use repartee_engine_testkit::speech::{copy, difference_of_ids, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::{Cpu, Tensor};
use repartee_kernels::row_spec::SampleSection;
use repartee_kernels::{NO_ID, Ops, ReadBack, RowSpec, SampleParams, SpecLayout, StateSpec};
use repartee_kernels_testkit::host::HostOps;

/// Name of the fixture.
const NAME: &str = "omni25";
/// Largest relative difference that counts as equal.
const TOLERANCE: f32 = 1e-4;

/// Compared tensors: name and difference (0 or infinite for ids).
type Findings = Vec<(String, f32)>;

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

fn greedy(repetition_penalty: f32) -> SampleParams {
    SampleParams { slot: 0, repetition_penalty, temperature: 0.0, top_k: 0, top_p: 1.0, uniform: 0.0 }
}

/// Runs every part of a checkpoint on the fixture's inputs; each gets the reference's output of the part before.
fn compare(checkpoint: &Checkpoint, expected: &Expected) -> Findings {
    let ops = Cpu::default();
    let model = Qwen25Omni::load(&ops, checkpoint).unwrap();
    let mut findings = Findings::new();
    let mut heard: Vec<Tensor> = Vec::new();
    for turn in 0..expected.turns() {
        let at = |name: &str| format!("turn{turn}.{name}");
        let found = |name: &str, ours: &[f32]| (at(name), difference(ours, &expected.tensor(&at(name)).0));
        findings.push(found("mel", &mel(checkpoint, &model, &expected.tensor(&at("audio")).0)));
        findings.push(found("audio_tower", &audio(&ops, &model, expected, &at("mel"))));
        let (rows, shape) = expected.tensor(&at("audio_tower"));
        heard.push(ops.tensor(rows, shape[1]));
        findings.extend(thinker(&ops, &model, expected, turn, &heard));
        findings.extend(talker(&ops, &model, checkpoint, expected, turn));
    }
    findings
}

/// Streaming log-mel in pushes of uneven size, in the reference's layout.
fn mel(checkpoint: &Checkpoint, model: &Qwen25Omni<Cpu>, audio: &[f32]) -> Vec<f32> {
    let tower = model.audio_tower.shape();
    let config = LogMelConfig::load(checkpoint, tower.bins).unwrap();
    let mut stream = LogMel::new(&config, tower.window).unwrap().stream();
    let mut windows = Vec::new();
    audio.chunks(777).for_each(|chunk| stream.push(chunk, &mut windows));
    windows.extend(stream.finish());
    let frames: Vec<&[f32]> = windows.iter().flat_map(|w| w.data.chunks(tower.bins)).collect();
    (0..tower.bins).flat_map(|bin| frames.iter().map(move |frame| frame[bin])).collect()
}

/// A spectrogram of the reference, frame by frame.
fn frames(expected: &Expected, mel: &str) -> (Vec<f32>, usize) {
    let (mel, shape) = expected.tensor(mel);
    let (bins, frames) = (shape[0], shape[1]);
    let by_frame = (0..frames).flat_map(|t| (0..bins).map(move |b| (b, t))).map(|(b, t)| mel[b * frames + t]);
    (by_frame.collect(), bins)
}

fn audio(ops: &Cpu, model: &Qwen25Omni<Cpu>, expected: &Expected, mel: &str) -> Vec<f32> {
    let (mel, bins) = frames(expected, mel);
    let blocks = mel.chunks(model.audio_tower.shape().window * bins);
    let blocks: Vec<_> = blocks.enumerate().map(|(index, data)| WindowInput { data, index }).collect();
    model.audio_tower.encode(ops, &blocks, &mut RowSpec::default(), &mut ReadBack::default()).concat()
}

fn thinker(ops: &Cpu, model: &Qwen25Omni<Cpu>, expected: &Expected, turn: usize, heard: &[Tensor]) -> Findings {
    let at = |name: &str| format!("turn{turn}.thinker.{name}");
    let (config, thinker) = (&model.config.thinker, &model.thinker);
    let (prompt, _) = expected.ids(&at("prompt_ids"));
    let (said, _) = expected.ids(&at("tokens"));
    let is_heard = |id: u32| id == config.audio_token_index;
    let audio_at: Vec<u32> = (0..prompt.len() as u32).filter(|&i| is_heard(prompt[i as usize])).collect();
    let ids: Vec<u32> = prompt.iter().map(|&id| if is_heard(id) { NO_ID } else { id }).collect();
    let heard = ops.concat(&heard.iter().collect::<Vec<_>>());

    // All three position indices count one by one.
    let counted: Vec<u32> = (0..3).flat_map(|_| 0..prompt.len() as u32).collect();
    let mut cache = thinker.model.cache(ops, 1, prompt.len() + said.len());
    let (mut handed, mut logits, mut chosen) = (Vec::new(), Vec::new(), Vec::new());
    let mut ids = index(ops, &ids);
    let mut x = thinker.embed(ops, &ids, Some((&index(ops, &audio_at), &heard)));
    let mut position = 0;
    for &next in &said {
        let rows = ops.rows(&x);
        let batch = batch(ops, position, rows);
        position += rows;
        let (out, rows_handed) = thinker.forward(ops, x, &ids, &mut cache, &batch);
        let rows_handed = rows_handed.unwrap();
        handed.extend(ops.read(&rows_handed));
        let row = thinker.logits(ops, &out, &index(ops, &[rows as u32 - 1]));
        logits.extend(ops.read(&row));
        chosen.extend(ops.sample(&row, &[greedy(1.0)], None, None));
        ids = index(ops, &[next]);
        x = thinker.embed(ops, &ids, None);
    }
    vec![
        (at("positions"), difference_of_ids(&counted, &expected.ids(&at("positions")).0)),
        (at("handed"), difference(&handed, &expected.tensor(&at("handed")).0)),
        (at("logits"), difference(&logits, &expected.tensor(&at("logits")).0)),
        (at("tokens"), difference_of_ids(&chosen, &said)),
    ]
}

fn talker(ops: &Cpu, model: &Qwen25Omni<Cpu>, checkpoint: &Checkpoint, expected: &Expected, turn: usize) -> Findings {
    let at = |name: &str| format!("turn{turn}.{name}");
    let (config, talker) = (&model.config.talker, &model.talker);
    let facts = &expected.facts;
    let penalty = facts["settings"]["talker_repetition_penalty"].as_f64().unwrap() as f32;
    let codec = Token2WavConfig::load(checkpoint).unwrap();
    let voices = load_speakers(checkpoint, model.config.thinker.text.vocab_size, &codec.dit).unwrap();
    let named = facts["turns"][turn]["speaker"].as_str().unwrap();
    let bos = voices.iter().find(|(_, voice)| voice.name == named).unwrap().0;

    // The prompt's rows, the voice's mark, the first token's row; then the other tokens' rows, the end and padding.
    let prompt = expected.ids(&at("thinker.prompt_ids")).0.len();
    let (handed, shape) = expected.tensor(&at("thinker.handed"));
    let (handed, tokens) = (ops.tensor(handed, shape[1]), shape[0] - prompt);
    let mark = |id: u32| ops.embed_at(&model.thinker.embed_tokens, &ops.list(&[id]));
    let row = |at: usize| ops.gather(&handed, &[at]);
    let begun = ops.concat(&[&ops.gather(&handed, &(0..prompt).collect::<Vec<_>>()), &mark(bos), &row(prompt)]);
    let [end, pad] = [config.tts_text_end_token_id, config.tts_text_pad_token_id].map(mark);
    let reply: Vec<Tensor> = (1..tokens).map(|token| row(prompt + token)).chain([end, pad]).collect();
    let reply = ops.concat(&reply.iter().collect::<Vec<_>>());
    let counted: Vec<u32> = (0..3).flat_map(|_| 0..prompt as u32 + 2).collect();
    let mut findings = vec![
        (at("talker.prompt"), difference(&ops.read(&begun), &expected.tensor(&at("talker.prompt")).0)),
        (at("talker.reply"), difference(&ops.read(&reply), &expected.tensor(&at("talker.reply")).0)),
        (at("talker.positions"), difference_of_ids(&counted, &expected.ids(&at("talker.positions")).0)),
    ];

    let (codes, _) = expected.ids(&at("codes"));
    let mut cache = talker.codec.model.cache(ops, 1, prompt + 2 + codes.len());
    let mut said = ops.state(StateSpec::TokenMask { slots: 1, vocabulary: config.text.vocab_size });
    let mut codec = vec![NO_ID; prompt];
    codec.extend([config.tts_codec_pad_token_id, config.tts_codec_start_token_id]);
    let (mut hiddens, mut logits, mut chosen) = (Vec::new(), Vec::new(), Vec::new());
    let (mut x, mut codec, mut position) = (begun, index(ops, &codec), 0);
    for (step, &code) in codes.iter().enumerate() {
        let rows = ops.rows(&x);
        let batch = batch(ops, position, rows);
        position += rows;
        let x_in = talker.rows(ops, x, &talker.codec.rows(ops, &codec));
        let hidden = talker.codec.forward(ops, x_in, &mut cache, &batch, &index(ops, &[rows as u32 - 1]));
        hiddens.extend(ops.read(&hidden));
        let row = talker.codec.logits(ops, &hidden);
        logits.extend(ops.read(&row));
        let padding = ops.embed_at(&talker.padding, &index(ops, &[0]));
        ops.sample_at(&padding, &params(ops, &greedy(1.0)), None, Some(&mut said));
        let allowed = Some(&talker.codec.allowed_mask);
        chosen.extend(ops.sample(&row, &[greedy(penalty)], allowed, Some(&mut said)));
        x = ops.gather(&reply, &[step.min(ops.rows(&reply) - 1)]);
        codec = index(ops, &[code]);
    }
    findings.extend([
        (at("talker.hidden"), difference(&hiddens, &expected.tensor(&at("talker.hidden")).0)),
        (at("talker.logits"), difference(&logits, &expected.tensor(&at("talker.logits")).0)),
        (at("codes"), difference_of_ids(&chosen, &codes)),
    ]);
    assert!(ends(config).contains(codes.last().unwrap()));
    findings
}

/// Uploads sampling parameters to the device.
fn params(ops: &Cpu, params: &SampleParams) -> <Cpu as Ops>::Index {
    let mut layout = SpecLayout::default();
    let at: SampleSection = layout.samples(1);
    let mut spec = layout.spec();
    spec.set_samples(at, [params]);
    ops.index(&ops.upload(&spec), at.words())
}

#[test]
fn every_tensor_equals_the_reference() {
    let findings = compare(&open(&folder(NAME).join("checkpoint")), &Expected::load(NAME));
    for (what, off) in &findings {
        println!("{what:24} {off:.1e}");
    }
    let wrong: Vec<_> = findings.iter().filter(|(_, off)| off.is_nan() || *off > TOLERANCE).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn zeroing_any_block_is_noticed() {
    let expected = Expected::load(NAME);
    let original = folder(NAME).join("checkpoint");
    let names: Vec<String> = open(&original).tensor_names().map(str::to_owned).collect();
    // token2wav's blocks have their own test. The reference never reads the audio marks' embeddings.
    let used = names.iter().filter(|name| !name.contains(".visual.") && !name.starts_with("token2wav."));
    let used = used.filter(|name| !name.contains("audio_bos_eos_token"));
    // A block is the content of one module, weight and bias together.
    let blocks: BTreeSet<&str> = used.filter_map(|name| name.rsplit_once('.')).map(|(module, _)| module).collect();
    for block in &blocks {
        let copy = copy(&original);
        let of_block = |tensor: &str| tensor.rsplit_once('.').is_some_and(|(module, _)| module == *block);
        zero(&copy.path().join("model.safetensors"), of_block);
        let findings = compare(&open(copy.path()), &expected);
        let noticed = findings.iter().any(|(_, off)| off.is_nan() || *off > TOLERANCE);
        assert!(noticed, "no tensor differs although {block} is zero");
    }
    assert!(blocks.len() > 60, "{} blocks", blocks.len());
}

#[test]
fn blocks_are_encoded_alike_in_any_batch() {
    let ops = Cpu::default();
    let model = Qwen25Omni::load(&ops, &open(&folder(NAME).join("checkpoint"))).unwrap();
    let (mel, bins) = frames(&Expected::load(NAME), "turn1.mel");
    let whole = model.audio_tower.shape().window;
    // Every length, whole pairs and not, and some too short for a row.
    let blocks: Vec<_> =
        (1..=whole).map(|frames| WindowInput { data: &mel[..frames * bins], index: frames % 2 }).collect();
    let (mut spec, mut back) = (RowSpec::default(), ReadBack::default());
    let together = model.audio_tower.encode(&ops, &blocks, &mut spec, &mut back);
    let width = model.config.thinker.audio.output_dim;
    for (block, together) in blocks.iter().zip(&together) {
        let frames = block.data.len() / bins;
        assert_eq!(together.len(), model.audio_tower.shape().tokens(frames) * width);
        let alone = model.audio_tower.encode(&ops, &[*block], &mut spec, &mut back);
        assert!(alone[0] == *together, "{frames} frames");
    }
}
