//! Parity of Qwen3-TTS with its reference implementation on the same weights: each compared tensor is within 1e-4 of
//! the largest reference value, and codes are equal. The engine gives the same samples for any cut of the text.
//!
//! - `speaking`: output of the engine
//! - `refusals`: refused checkpoints, voices, texts and recordings
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod refusals;
mod spoken_responses;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use repartee_engine::Source;
use repartee_engine::internals::qwen3_tts::{
    Cloned, CodecPart, HostRows, MAX_FRAMES, Qwen3Tts, Speaker, TalkerRow, TextPart, Utterance, UtteranceTokens, Voice,
    VoiceList, mel,
};
use repartee_engine::internals::{Checkpoint, Tokenizer};
use repartee_engine_testkit::eager::{self, batch, index};
use repartee_engine_testkit::speech::{self, FIXTURES, difference_of_ids, is_cloned, voice, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::cpu::{Cpu, Tensor};
use repartee_kernels::{NO_ID, Ops, SampleParams, StateSpec, StreamRows};
use repartee_kernels_testkit::host::HostOps;

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

/// Runs every part of a checkpoint on the fixture's inputs; returns the findings of each run.
fn compare<'a>(checkpoint: &'a Checkpoint, expected: &'a Expected) -> impl Iterator<Item = Findings> + 'a {
    let ops = Cpu::default();
    let model = Qwen3Tts::load(&ops, checkpoint).unwrap();
    let tokenizer = Tokenizer::load(checkpoint, model.config.talker.text_vocab_size).unwrap();
    let runs = 0..expected.facts["runs"].as_array().unwrap().len();
    runs.map(move |run| {
        let mut findings = talker(&ops, &model, &tokenizer, expected, run);
        findings.extend(recording(&ops, &model, expected, run));
        findings.push(waveform(&ops, &model, expected, run, MAX_FRAMES));
        findings
    })
}

/// Ids of a message header, `<|im_start|>ROLE\n`.
fn header(model: &Qwen3Tts<Cpu>, tokenizer: &Tokenizer, role: &str) -> [u32; 3] {
    let ids = tokenizer.encode(&format!("{role}\n")).unwrap();
    [model.config.im_start_token_id, ids[0], ids[1]]
}

/// Id of a text part.
fn text_id(text: TextPart) -> u32 {
    match text {
        TextPart::Token(id) => id,
        TextPart::Handed(_) => panic!("no stage before leaves rows"),
    }
}

fn rows(ops: &Cpu, model: &Qwen3Tts<Cpu>, rows: &[TalkerRow]) -> Tensor {
    let talker = &model.talker;
    let row = |row: &TalkerRow| {
        let codec = match &row.codec {
            CodecPart::Id(codec) => talker.codec.rows(ops, &index(ops, &[*codec])),
            CodecPart::Cloned { voice, frame: None } => ops.tensor(voice.speaker.clone(), voice.speaker.len()),
            CodecPart::Cloned { voice, frame: Some(frame) } => {
                let codes: Vec<_> = voice.frames[*frame].iter().map(|code| index(ops, &[*code])).collect();
                talker.code_predictor.embed_frames(ops, talker.codec.rows(ops, &codes[0]), &codes[1..])
            }
            CodecPart::LastFrame => panic!("a frame stands before the first one"),
        };
        ops.add(talker.text_rows(ops, &index(ops, &[text_id(row.text)])), &codec)
    };
    let rows: Vec<Tensor> = rows.iter().map(row).collect();
    ops.concat(&rows.iter().collect::<Vec<_>>())
}

/// Voice of a run; a cloned one as the reference made it from the recording.
fn speaker(model: &Qwen3Tts<Cpu>, expected: &Expected, run: usize) -> Voice {
    let at = |name: &str| format!("run{run}.voice.{name}");
    let facts = &expected.facts["runs"][run];
    let listed = VoiceList::new(&model.config).get(&voice(facts));
    if !is_cloned(facts) {
        return listed;
    }
    let text = expected.ids(&at("text_ids")).0;
    let (codes, shape) = expected.ids(&at("codes"));
    let frames = if text.is_empty() { Vec::new() } else { codes.chunks(shape[1]).map(<[u32]>::to_vec).collect() };
    let cloned = Cloned { speaker: expected.tensor(&at("speaker")).0, text, frames };
    Voice { speaker: Speaker::Cloned(Arc::new(cloned)), ..listed }
}

/// Compares the encoders' output for a run's recording.
fn recording(ops: &Cpu, model: &Qwen3Tts<Cpu>, expected: &Expected, run: usize) -> Findings {
    let at = |name: &str| format!("run{run}.voice.{name}");
    let Some(encoders) = &model.encoders else { return Findings::new() };
    let samples = expected.tensor(&at("audio")).0;
    let check = |name: &str, ours: &[f32]| (at(name), difference(ours, &expected.tensor(&at(name)).0));
    let spectrogram = mel::MEL.spectrogram(&samples);
    let (reference, shape) = expected.tensor(&at("encoded"));
    let codes = encoders.speech.quantize(ops, &HostRows { width: shape[1], data: reference });
    vec![
        check("mel", &spectrogram.data),
        check("speaker", &encoders.speaker.forward(ops, &spectrogram)),
        check("encoded", &encoders.speech.encode(ops, &samples).data),
        (at("codes"), difference_of_ids(&codes.concat(), &expected.ids(&at("codes")).0)),
    ]
}

fn talker(ops: &Cpu, model: &Qwen3Tts<Cpu>, tokenizer: &Tokenizer, expected: &Expected, run: usize) -> Findings {
    let at = |name: &str| format!("run{run}.{name}");
    let (config, facts) = (&model.config, &expected.facts["runs"][run]);
    let penalty = expected.facts["settings"]["repetition_penalty"].as_f64().unwrap() as f32;
    let (text, _) = expected.ids(&at("text_ids"));
    let (instruct, _) = expected.ids(&at("instruct_ids"));
    assert_eq!(tokenizer.encode(facts["text"].as_str().unwrap()).unwrap(), text);

    let whole = facts["whole"].as_bool().unwrap();
    let voice = speaker(model, expected, run);
    let parts: Vec<TextPart> = text.iter().map(|&id| TextPart::Token(id)).collect();
    let utterance = Utterance { voice: &voice, text: &parts, ended: true, whole };
    let header_ids = header(model, tokenizer, "assistant");
    let marks = UtteranceTokens { header: header_ids, ids: config.talker.ids };
    let mut prompt = Vec::new();
    if !instruct.is_empty() {
        let newline = tokenizer.encode("\n").unwrap()[0];
        let head = header(model, tokenizer, "user");
        let ids = head.into_iter().chain(instruct).chain([config.im_end_token_id, newline]);
        prompt.extend(ids.map(|id| TalkerRow::new(TextPart::Token(id), NO_ID)));
    }
    prompt.extend(marks.begin(&utterance).unwrap());
    let prompt = rows(ops, model, &prompt);
    let (trailing, shape) = expected.tensor(&at("talker.trailing"));
    let beside = (1..=shape[0]).map(|frame| text_id(marks.text_with_frame(&utterance, frame).unwrap()));
    let beside: Vec<u32> = beside.collect();
    let beside = model.talker.text_rows(ops, &index(ops, &beside));
    let mut findings = vec![
        (at("talker.prompt"), difference(&ops.read(&prompt), &expected.tensor(&at("talker.prompt")).0)),
        (at("talker.trailing"), difference(&ops.read(&beside), &trailing)),
    ];

    let (codes, shape) = expected.ids(&at("codes"));
    let (groups, frames) = (shape[0], shape[1]);
    let mut cache = model.talker.codec.model.cache(ops, 1, ops.rows(&prompt) + frames + 1);
    let mut predictor_cache = model.talker.code_predictor.cache(ops, 1);
    let mut output_mask = ops.state(StateSpec::TokenMask { slots: 1, vocabulary: config.talker.model.vocab_size });
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
            ops.sample(&row, &[greedy(penalty)], Some(&model.talker.codec.allowed_mask), Some(&mut output_mask));
        if step == frames {
            end = Some(first[0]);
            break;
        }
        let embedded = model.talker.codec.rows(ops, &index(ops, &first));
        let predictor = &model.talker.code_predictor;
        let (rest, raw, embedding) =
            eager::complete(ops, predictor, &hidden, embedded, &mut predictor_cache, &[greedy(1.0)]);
        made[0].extend(&first);
        for (made, ids) in made[1..].iter_mut().zip(&rest) {
            made.extend(ops.read_list(ids));
        }
        residual_logits.extend(raw.iter().flat_map(|logits| ops.read(logits)));
        let next = index(ops, &[text_id(marks.text_with_frame(&utterance, step + 1).unwrap())]);
        x = ops.add(embedding, &model.talker.text_rows(ops, &next));
    }
    findings.extend([
        (at("talker.hidden"), difference(&hiddens, &expected.tensor(&at("talker.hidden")).0)),
        (at("talker.logits"), difference(&logits, &expected.tensor(&at("talker.logits")).0)),
        (at("predictor.logits"), difference(&residual_logits, &expected.tensor(&at("predictor.logits")).0)),
        (at("codes"), difference_of_ids(&made.concat(), &codes)),
        (at("end of speech"), difference_of_ids(&[end.unwrap()], &[config.talker.ids.codec_eos])),
    ]);
    findings
}

/// Samples of a run's codes, decoded `at_once` frames at a time.
fn samples(ops: &Cpu, model: &Qwen3Tts<Cpu>, expected: &Expected, run: usize, at_once: usize) -> Vec<f32> {
    let (codes, shape) = expected.ids(&format!("run{run}.codes"));
    let mut codes: Vec<Vec<u32>> = codes.chunks(shape[1]).map(<[u32]>::to_vec).collect();
    // The codes of a recording precede them.
    let voice = speaker(model, expected, run);
    let leading = match &voice.speaker {
        Speaker::Cloned(cloned) => &cloned.frames[..],
        _ => &[],
    };
    for (group, codes) in codes.iter_mut().enumerate() {
        codes.splice(0..0, leading.iter().map(|frame| frame[group]));
    }
    let frames = codes[0].len();
    let mut state = model.code2wav.state(ops, 1);
    let mut samples = Vec::new();
    for from in (0..frames).step_by(at_once) {
        let rows = at_once.min(frames - from);
        let part: Vec<Vec<u32>> = codes.iter().map(|c| c[from..from + rows].to_vec()).collect();
        let chunk = StreamRows { slot: 0, position: from, rows };
        samples.extend(eager::decode(ops, &model.code2wav, &part, &mut state, &[chunk]).concat());
    }
    samples.split_off(leading.len() * model.config.code2wav.samples_per_frame())
}

fn waveform(ops: &Cpu, model: &Qwen3Tts<Cpu>, expected: &Expected, run: usize, at_once: usize) -> (String, f32) {
    let name = format!("run{run}.waveform");
    let off = difference(&samples(ops, model, expected, run, at_once), &expected.tensor(&name).0);
    (name, off)
}

#[test]
fn every_tensor_equals_the_reference() {
    for name in FIXTURES {
        let (checkpoint, expected) = (open(&folder(name).join("checkpoint")), Expected::load(name));
        let findings: Findings = compare(&checkpoint, &expected).flatten().collect();
        let width = findings.iter().map(|(name, _)| name.len()).max().unwrap();
        for (what, off) in &findings {
            println!("{name:12} {what:width$} {off:.1e}");
        }
        let wrong: Vec<_> = findings.iter().filter(|(_, off)| *off > TOLERANCE).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}

#[test]
fn any_split_equals_one_decode() {
    for name in FIXTURES {
        let ops = Cpu::default();
        let (model, expected) =
            (Qwen3Tts::load(&ops, &open(&folder(name).join("checkpoint"))).unwrap(), Expected::load(name));
        let whole = samples(&ops, &model, &expected, 0, MAX_FRAMES);
        let frames = expected.ids("run0.codes").1[1];
        assert_eq!(whole.len(), frames * model.config.code2wav.samples_per_frame(), "each frame is whole");
        for at_once in [1, 2, 3, 7] {
            assert!(samples(&ops, &model, &expected, 0, at_once) == whole, "{name}: {at_once} frames at a time");
        }
    }
}

/// True for blocks that the reference does not read: a decoder's input projection, an encoder's output projection, and
/// codebooks that the talker lacks.
fn is_unused(block: &str) -> bool {
    let is = |part: &str, name: &str| block.starts_with(part) && block.ends_with(name);
    is("decoder.quantizer.", ".input_proj")
        || is("encoder.quantizer.", ".output_proj")
        || is("encoder.quantizer.acoustic", ".layers.2.codebook")
        || is("encoder.quantizer.acoustic", ".layers.3.codebook")
}

#[test]
fn zeroing_any_block_is_noticed() {
    let mut tried = 0;
    let mut unnoticed = Vec::new();
    for name in FIXTURES {
        let expected = Expected::load(name);
        let original = folder(name).join("checkpoint");
        for part in ["", "speech_tokenizer"] {
            let checkpoint = open(&original.join(part));
            let blocks = checkpoint.tensor_names().filter_map(|name| name.rsplit_once('.'));
            let blocks: BTreeSet<_> = blocks.map(|(module, _)| module).collect();
            for block in blocks.into_iter().filter(|block| !is_unused(block)) {
                let copy = speech::copy(&original);
                let file = copy.path().join(part).join("model.safetensors");
                zero(&file, |tensor| {
                    // A quantizer's entry is a sum divided by its usage, which a zero would make huge.
                    tensor.rsplit_once('.').is_some_and(|(module, leaf)| module == block && leaf != "cluster_usage")
                });
                let changed = open(copy.path());
                if compare(&changed, &expected).flatten().all(|(_, off)| off <= TOLERANCE) {
                    unnoticed.push(format!("{name}: {block}"));
                }
                tried += 1;
            }
        }
    }
    println!("{tried} blocks");
    assert!(unnoticed.is_empty(), "nothing differs although these are zero: {unnoticed:#?}");
    assert!(tried > 200);
}
