//! Qwen3-TTS against its reference implementation on the same weights: each compared tensor within 1e-4 of the largest reference
//! value, the same codes, and the same sound out of the engine, however the text comes in.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

#[allow(dead_code)] // Each test binary uses its part.
mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::driven::{Driven, Response, serve, submit};
use common::eager::{self, batch, index};
use common::speech::{self, FIXTURES, difference_of_ids, edit_rows, greedy_copy, voice, zero};
use common::{Expected, difference, folder};
use repartee_engine::internals::qwen3_tts::{LEAST_FRAMES, MAX_FRAMES, Marks, Qwen3Tts, Row, Utterance, VoiceList};
use repartee_engine::internals::{Checkpoint, Tokenizer, Voices};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_api::{Command, FinishReason, Respond, Role};
use repartee_kernels::cpu::{Cpu, Tensor};
use repartee_kernels::ops::NO_ID;
use repartee_kernels::{Ops, SampleParams, StateSpec, StepOps, StreamRows};

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

/// Runs every part of a checkpoint on the fixture's inputs.
fn compare(checkpoint: &Checkpoint, expected: &Expected) -> Findings {
    let ops = Cpu::default();
    let model = Qwen3Tts::load(&ops, checkpoint).unwrap();
    let tokenizer = Tokenizer::load(checkpoint, model.config.talker.text_vocab_size).unwrap();
    let runs = 0..expected.facts["runs"].as_array().unwrap().len();
    runs.flat_map(|run| {
        let mut findings = talker(&ops, &model, &tokenizer, expected, run);
        findings.push(waveform(&ops, &model, expected, run, MAX_FRAMES));
        findings
    })
    .collect()
}

/// `<|im_start|>ROLE\n`.
fn header(model: &Qwen3Tts<Cpu>, tokenizer: &Tokenizer, role: &str) -> [u32; 3] {
    let ids = tokenizer.encode(&format!("{role}\n")).unwrap();
    [model.config.im_start_token_id, ids[0], ids[1]]
}

fn rows(ops: &Cpu, model: &Qwen3Tts<Cpu>, rows: &[Row]) -> Tensor {
    let ids = |row: &Row| match *row {
        Row::Text { id, codec } => (id, codec),
        Row::Frame { .. } => panic!("a frame stands before the first one"),
    };
    let (text, codec): (Vec<u32>, Vec<u32>) = rows.iter().map(ids).unzip();
    ops.add(model.talker.text_rows(ops, &index(ops, &text)), &model.talker.codec_rows(ops, &index(ops, &codec)))
}

fn talker(ops: &Cpu, model: &Qwen3Tts<Cpu>, tokenizer: &Tokenizer, expected: &Expected, run: usize) -> Findings {
    let at = |name: &str| format!("run{run}.{name}");
    let (config, facts) = (&model.config, &expected.facts["runs"][run]);
    let penalty = expected.facts["settings"]["repetition_penalty"].as_f64().unwrap() as f32;
    let (text, _) = expected.ids(&at("text_ids"));
    let (instruct, _) = expected.ids(&at("instruct_ids"));
    assert_eq!(tokenizer.encode(facts["text"].as_str().unwrap()).unwrap(), text);

    let utterance = Utterance { text, ended: true, whole: facts["whole"].as_bool().unwrap() };
    let marks = Marks::new(config, header(model, tokenizer, "assistant"));
    let mut prompt = Vec::new();
    if !instruct.is_empty() {
        let newline = tokenizer.encode("\n").unwrap()[0];
        let head = header(model, tokenizer, "user");
        let ids = head.into_iter().chain(instruct).chain([config.im_end_token_id, newline]);
        prompt.extend(ids.map(|id| Row::Text { id, codec: NO_ID }));
    }
    prompt.extend(marks.begin(&utterance, VoiceList::new(config).get(&voice(facts))).unwrap());
    let prompt = rows(ops, model, &prompt);
    let (trailing, shape) = expected.tensor(&at("talker.trailing"));
    let beside: Vec<u32> = (1..=shape[0]).map(|frame| marks.beside(&utterance, frame).unwrap()).collect();
    let beside = model.talker.text_rows(ops, &index(ops, &beside));
    let mut findings = vec![
        (at("talker.prompt"), difference(&ops.read(&prompt), &expected.tensor(&at("talker.prompt")).0)),
        (at("talker.trailing"), difference(&ops.read(&beside), &trailing)),
    ];

    let (codes, shape) = expected.ids(&at("codes"));
    let (groups, frames) = (shape[0], shape[1]);
    let mut cache = model.talker.model.cache(ops, 1, ops.rows(&prompt) + frames + 1);
    let mut predictor_cache = model.talker.code_predictor.cache(ops, 1);
    let mut output_mask = ops.state(StateSpec::TokenMask { slots: 1, vocabulary: config.talker.vocab_size });
    let (mut hiddens, mut logits, mut residual_logits) = (Vec::new(), Vec::new(), Vec::new());
    let mut made: Vec<Vec<u32>> = vec![Vec::new(); groups];
    let mut end = None;
    let (mut x, mut position) = (prompt, 0);
    for step in 0..=frames {
        let rows = ops.rows(&x);
        let batch = batch(ops, position, rows);
        position += rows;
        let hidden = model.talker.forward(ops, x, &mut cache, &batch, &index(ops, &[rows as u32 - 1]));
        hiddens.extend(ops.read(&hidden));
        let row = model.talker.logits(ops, &hidden);
        logits.extend(ops.read(&row));
        let first = ops.sample(&row, &[greedy(penalty)], Some(&model.talker.allowed_mask), Some(&mut output_mask));
        if step == frames {
            end = Some(ops.read_ids(&first)[0]);
            break;
        }
        let embedded = model.talker.codec_rows(ops, &index(ops, &first));
        let predictor = &model.talker.code_predictor;
        let (rest, raw, embedding) =
            eager::complete(ops, predictor, &hidden, embedded, &mut predictor_cache, &[greedy(1.0)]);
        made[0].extend(ops.read_ids(&first));
        for (made, ids) in made[1..].iter_mut().zip(&rest) {
            made.extend(ops.read_index(ids));
        }
        residual_logits.extend(raw.iter().flat_map(|logits| ops.read(logits)));
        let next = index(ops, &[marks.beside(&utterance, step + 1).unwrap()]);
        x = ops.add(embedding, &model.talker.text_rows(ops, &next));
    }
    findings.extend([
        (at("talker.hidden"), difference(&hiddens, &expected.tensor(&at("talker.hidden")).0)),
        (at("talker.logits"), difference(&logits, &expected.tensor(&at("talker.logits")).0)),
        (at("predictor.logits"), difference(&residual_logits, &expected.tensor(&at("predictor.logits")).0)),
        (at("codes"), difference_of_ids(&made.concat(), &codes)),
        (at("end of speech"), difference_of_ids(&[end.unwrap()], &[config.talker.codec_eos_token_id])),
    ]);
    findings
}

/// The samples of a run's codes, decoded so many frames at a time.
fn samples(ops: &Cpu, model: &Qwen3Tts<Cpu>, expected: &Expected, run: usize, at_once: usize) -> Vec<f32> {
    let (codes, shape) = expected.ids(&format!("run{run}.codes"));
    let frames = shape[1];
    let mut state = model.code2wav.state(ops, 1);
    let mut samples = Vec::new();
    for from in (0..frames).step_by(at_once) {
        let rows = at_once.min(frames - from);
        let part: Vec<Vec<u32>> = codes.chunks(frames).map(|c| c[from..from + rows].to_vec()).collect();
        let chunk = StreamRows { slot: 0, position: from, rows };
        samples.extend(eager::decode(ops, &model.code2wav, &part, &mut state, &[chunk]).concat());
    }
    samples
}

fn waveform(ops: &Cpu, model: &Qwen3Tts<Cpu>, expected: &Expected, run: usize, at_once: usize) -> (String, f32) {
    let name = format!("run{run}.waveform");
    let off = difference(&samples(ops, model, expected, run, at_once), &expected.tensor(&name).0);
    (name, off)
}

#[test]
fn every_tensor_equals_the_reference() {
    for name in FIXTURES {
        let findings = compare(&open(&folder(name).join("checkpoint")), &Expected::load(name));
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

#[test]
fn zeroing_any_block_is_noticed() {
    let mut tried = 0;
    for name in FIXTURES {
        let expected = Expected::load(name);
        let original = folder(name).join("checkpoint");
        for part in ["", "speech_tokenizer"] {
            let checkpoint = open(&original.join(part));
            let blocks = checkpoint.tensor_names().filter_map(|name| name.rsplit_once('.'));
            for block in blocks.map(|(module, _)| module).collect::<BTreeSet<_>>() {
                let copy = speech::copy(&original);
                let file = copy.path().join(part).join("model.safetensors");
                zero(&file, |tensor| {
                    // A quantizer's entry is a sum over its usage, which a zero would make huge.
                    tensor.rsplit_once('.').is_some_and(|(module, leaf)| module == block && leaf != "cluster_usage")
                });
                let findings = compare(&open(copy.path()), &expected);
                assert!(
                    findings.iter().any(|(_, off)| *off > TOLERANCE),
                    "{name}: nothing differs although {block} is zero"
                );
                tried += 1;
            }
        }
    }
    println!("{tried} blocks");
    assert!(tried > 200);
}

/// Text that streams in, by so many characters at a time.
fn stream(engine: &mut Driven, session: &repartee_engine_api::SessionHandle, response: u64, text: &str, cut: usize) {
    let characters: Vec<char> = text.chars().collect();
    for piece in characters.chunks(cut) {
        submit(session, Command::StreamText { response, text: piece.iter().collect() });
        engine.ticks(1);
    }
    submit(session, Command::EndText { response });
}

/// What the engine says to a run of a fixture; text that the reference has beside the frames comes in by `cut` characters.
fn speak(checkpoint: &Path, facts: &serde_json::Value, cut: usize) -> Response {
    let mut engine = serve(checkpoint, &EngineConfig { session_tokens: 512, ..EngineConfig::default() });
    let session = engine.open();
    let text = facts["text"].as_str().unwrap();
    submit(&session, Command::SetInstructions(facts["instruct"].as_str().unwrap_or_default().to_owned()));
    let streamed = !facts["whole"].as_bool().unwrap();
    if !streamed {
        submit(&session, Command::text(0, Role::User, text));
    }
    submit(&session, Command::Respond(Respond { voice: Some(voice(facts)), streamed, ..Respond::new(0, 1) }));
    if streamed {
        stream(&mut engine, &session, 0, text, cut);
    }
    let response = engine.listen(&session, 0).unwrap();
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
    response
}

#[test]
fn speech_equals_the_reference() {
    for name in FIXTURES {
        let (expected, copy) = (Expected::load(name), greedy_copy(name));
        for (run, facts) in expected.facts["runs"].as_array().unwrap().iter().enumerate() {
            let waveform = expected.tensor(&format!("run{run}.waveform")).0;
            let mut first: Option<Response> = None;
            for cut in [usize::MAX, 1, 4] {
                let said = speak(copy.path(), facts, cut);
                assert_eq!(said.reason, Some(FinishReason::Stop), "{name}, run {run}");
                assert_eq!(said.text, facts["text"].as_str().unwrap());
                assert_eq!(Some(u64::from(said.usage.output_audio_frames)), facts["frames"].as_u64());
                let off = difference(&said.samples, &waveform);
                assert!(off <= TOLERANCE, "{name}, run {run}, {cut} characters at a time: {off}");
                assert_eq!(first.get_or_insert(said.clone()).samples, said.samples, "the cut of the text");
            }
        }
    }
}

#[test]
fn sound_comes_before_the_text_has_ended() {
    let copy = greedy_copy("tts_custom");
    let mut engine = serve(copy.path(), &EngineConfig { session_tokens: 512, ..EngineConfig::default() });
    let session = engine.open();
    submit(&session, Command::Respond(Respond { streamed: true, ..Respond::new(0, 1) }));
    submit(&session, Command::StreamText { response: 0, text: "the quick brown fox ".to_owned() });
    engine.settle();
    let mut said = Response::default();
    while let Some(event) = session.try_next_event() {
        assert!(!said.take(0, event).unwrap(), "the response has ended before its text");
    }
    assert!(said.usage.output_audio_frames == 0 && !said.samples.is_empty() && said.reason.is_none(), "{said:?}");
    submit(&session, Command::EndText { response: 0 });
    assert_eq!(engine.listen(&session, 0).unwrap().reason, Some(FinishReason::Stop));
}

#[test]
fn no_text_gives_no_sound_and_an_end() {
    let copy = greedy_copy("tts_custom");
    let mut engine = serve(copy.path(), &EngineConfig { session_tokens: 512, ..EngineConfig::default() });
    let session = engine.open();
    let silent = |response: &Response| response.samples.is_empty() && response.reason == Some(FinishReason::Stop);
    let nothing = engine.respond(&session, Respond::new(0, 10)).unwrap();
    assert!(silent(&nothing), "no message: {nothing:?}");
    submit(&session, Command::Respond(Respond { streamed: true, ..Respond::new(1, 11) }));
    submit(&session, Command::EndText { response: 1 });
    let nothing = engine.listen(&session, 1).unwrap();
    assert!(silent(&nothing), "text that ends at once: {nothing:?}");
    submit(&session, Command::text(0, Role::User, "the sea"));
    let spoken = engine.respond(&session, Respond::new(2, 12)).unwrap();
    assert!(!spoken.samples.is_empty(), "the session goes on: {spoken:?}");
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
}

/// The sum of a run's first hidden rows, so often: what a row of the head is to be chosen for at once.
fn wanted(expected: &Expected) -> Vec<f32> {
    let (hidden, shape) = expected.tensor("run0.talker.hidden");
    (0..shape[1]).map(|at| 10.0 * (0..3).map(|row| hidden[row * shape[1] + at]).sum::<f32>()).collect()
}

#[test]
fn speech_has_two_frames_at_least() {
    for name in FIXTURES {
        let (expected, copy) = (Expected::load(name), greedy_copy(name));
        let config = Qwen3Tts::load(&Cpu::default(), &open(copy.path())).unwrap().config;
        let end = config.talker.codec_eos_token_id as usize;
        edit_rows(&copy.path().join("model.safetensors"), "talker.codec_head.weight", &[end], &wanted(&expected));
        let said = speak(copy.path(), &expected.facts["runs"][0], 1);
        assert_eq!(said.usage.output_audio_frames as usize, LEAST_FRAMES);
        assert_eq!(expected.facts["frames_of_a_model_that_ends_at_once"], LEAST_FRAMES, "the reference's");
    }
}

#[test]
fn suppressed_ids_are_never_spoken() {
    let (expected, copy) = (Expected::load("tts_custom"), greedy_copy("tts_custom"));
    let config = Qwen3Tts::load(&Cpu::default(), &open(copy.path())).unwrap().config;
    let end = config.talker.codec_eos_token_id as usize;
    let first = config.talker.vocab_size - 1024;
    let others: Vec<usize> = (first..config.talker.vocab_size).filter(|&id| id != end).collect();
    edit_rows(&copy.path().join("model.safetensors"), "talker.codec_head.weight", &others, &wanted(&expected));
    let said = speak(copy.path(), &expected.facts["runs"][0], 1);
    let waveform = expected.tensor("run0.waveform").0;
    assert!(difference(&said.samples, &waveform) <= TOLERANCE, "they change nothing: {:?}", said.usage);
}

#[test]
fn voices_are_speakers_with_languages() {
    let config = Qwen3Tts::load(&Cpu::default(), &open(&folder("tts_custom").join("checkpoint"))).unwrap().config;
    let voices = VoiceList::new(&config);
    let names = voices.names();
    assert_eq!(names[..3], ["ada", "grace", "li"], "the speakers first, in the order of their ids");
    assert_eq!(names[3..5], ["ada/chinese", "ada/english"]);
    assert!(names.iter().all(|name| !name.contains("dialect")), "{names:?}");
    let language = |name: &str| voices.get(name).language;
    let id = |name: &str| Some(config.talker.languages[name]);
    assert_eq!(
        [language("ada"), language("ada/chinese"), language("ada/english")],
        [None, id("chinese"), id("english")]
    );
    // A dialect stands in for Chinese and for no language, not for another one.
    let dialect = id("sichuan_dialect");
    assert_eq!([language("li"), language("li/chinese"), language("li/english")], [dialect, dialect, id("english")]);
    let design = Qwen3Tts::load(&Cpu::default(), &open(&folder("tts_design").join("checkpoint"))).unwrap().config;
    assert_eq!(VoiceList::new(&design).names()[..2], ["default", "default/chinese"]);
}
