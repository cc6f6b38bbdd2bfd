//! `decode bench`: the path of one answer, compared with the reference implementation on the demo checkpoint and the same
//! cores, one after the other in one run. The reference does not stream, so comparable measures are the time per
//! thinker token, per codec frame, per second of code2wav and per whole answer; our time to first packet has no peer.
//!
//! With the argument `answers` (`decode bench-size`) it measures only whole answers, also beside OpenVINO GenAI's, and
//! code2wav, into `target/report/answers.json`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::qwen3_omni_moe::MAX_FRAMES;
use repartee_engine::internals::qwen3_omni_moe::Qwen3Omni;
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{Command, Event, Respond, SpeechEngine};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::{Ops, SampleParams, StateSpec, StreamRows};
use repartee_kernels_testkit::host::HostOps;
use repartee_load::questions::Question;
use repartee_load::report::percentile;
use repartee_load::run::LoadRunner;
use repartee_load::scenario::arrivals::Arrivals;
use repartee_load::scenario::{EndOfTurn, Scenario, TransportKind};
use repartee_load::speech::Utterance;
use repartee_media::sound_file;
use repartee_report::ReportRow;
use repartee_tests::{demo, questions, side_by_side, tools};
use serde::Deserialize;

use repartee_engine_testkit::eager::{self, batch, index};

/// Timed repetitions of each measure, after a warm-up run.
const REPEATS: usize = 9;
/// Number of turns over the websocket.
const TURNS: usize = 50;
/// Numbers of threads for whole answers.
const THREADS: [usize; 2] = [1, 2];

/// Output of `tests/parity/bench_reference.py`.
#[derive(Debug, Deserialize)]
struct Reference {
    thinker_ms_per_token: f64,
    talker_ms_per_frame: f64,
    code2wav_ms_per_second: f64,
    answer_seconds: f64,
    audio_seconds: f64,
    text: String,
}

/// Output of `tests/peers/openvino_answer.py`.
#[derive(Debug, Deserialize)]
struct OpenVino {
    version: String,
    answer_seconds: f64,
    audio_seconds: f64,
    text: String,
}

fn main() -> Result<()> {
    let question = questions::named("three-plus-four.wav")?;
    let model = tools::root().join("models/demo");
    if std::env::args().any(|argument| argument == "answers") {
        return side_by_side::finish("answers", answers(&model, &question.path())?);
    }
    let mut rows = Vec::new();

    println!("ours: stages");
    let ours = stages(&model)?;
    println!("  {ours:.2?}");
    let mut first = 0.0;
    for threads in THREADS {
        println!("ours: whole answers on {threads} thread(s)");
        let answer = whole_answer(&model, &samples(&question.path())?, threads)?;
        first = answer.first;
        println!("the reference on {threads} thread(s)");
        let peer = reference(&model, &question.path(), threads)?;
        ensure!(peer.text == answer.text, "other answers: {} / {}", answer.text, peer.text);
        let alone = format!("peer: transformers on {threads} thread(s); ours on one");
        let both = format!("{threads} thread(s) each; peer: transformers");
        let mut add = |measure: &str, ours: f64, peer: f64, unit, note: &str| {
            rows.push(ReportRow::lower_is_better(measure, ours, peer, unit, note));
        };
        add("thinker token", ours.thinker_token, peer.thinker_ms_per_token, "ms", &alone);
        add("codec frame (talker step and code predictor)", ours.codec_frame, peer.talker_ms_per_frame, "ms", &alone);
        add("second of code2wav, in one decode", ours.code2wav_whole, peer.code2wav_ms_per_second, "ms", &alone);
        add("whole answer", answer.seconds * 1e3, peer.answer_seconds * 1e3, "ms", &both);
        let rtf = (answer.seconds / answer.audio, peer.answer_seconds / peer.audio_seconds);
        add("RTF of the whole answer", rtf.0, rtf.1, "", &both);
    }
    rows.push(ReportRow::without_peer(
        "second of code2wav, frame by frame with carried state",
        ours.code2wav_stream,
        "ms",
        "as it is served",
    ));
    let note = "all sound handed over at once, so nothing was read before the commit";
    rows.push(ReportRow::without_peer("commit to first samples, engine alone", first * 1e3, "ms", note));

    println!("ours: {TURNS} turns over the websocket, spoken in real time");
    rows.extend(first_packets(&question.path())?);
    side_by_side::finish("first_path", rows)
}

/// Compares whole answers with each peer's, on the same number of threads, and code2wav with torch's on one.
fn answers(model: &Path, question: &Path) -> Result<Vec<ReportRow>> {
    let mut rows = Vec::new();
    let code2wav = stages(model)?.code2wav_whole;
    for threads in THREADS {
        let ours = whole_answer(model, &samples(question)?, threads)?;
        let transformers = reference(model, question, threads)?;
        let openvino = openvino(model, question, threads)?;
        if threads == 1 {
            let note = "a second of the demo's code2wav in one decode, 1 thread each";
            let torch = transformers.code2wav_ms_per_second;
            rows.push(ReportRow::lower_is_better("code2wav_vs_torch_1", code2wav, torch, "ms", note));
        }
        let peers = [
            ("transformers", "", transformers.text, transformers.answer_seconds, transformers.audio_seconds),
            ("openvino", &openvino.version[..], openvino.text, openvino.answer_seconds, openvino.audio_seconds),
        ];
        for (peer, version, text, seconds, audio) in peers {
            ensure!(text == ours.text, "other answers: {} / {peer}: {text}", ours.text);
            let note = format!(
                "the demo's whole answer, {threads} thread(s) each; {:.1} s of sound, {peer} {version} {audio:.1} s",
                ours.audio
            );
            rows.push(ReportRow::lower_is_better(
                format!("demo_answer_vs_{peer}_{threads}"),
                ours.seconds * 1e3,
                seconds * 1e3,
                "ms",
                note,
            ));
        }
    }
    Ok(rows)
}

/// Times of our stages, in ms.
#[derive(Debug)]
struct Stages {
    thinker_token: f64,
    codec_frame: f64,
    code2wav_whole: f64,
    code2wav_stream: f64,
}

/// Returns the median time of `REPEATS` runs, in ms per part (of `parts`).
fn median(parts: f64, run: impl FnMut()) -> f64 {
    side_by_side::median(REPEATS, parts, run)
}

fn stages(folder: &Path) -> Result<Stages> {
    const PROMPT: usize = 40;
    const STEPS: usize = 20;
    let ops = Cpu::default();
    let model = Qwen3Omni::load(&ops, &Checkpoint::open(Source::Folder(folder.to_owned()))?)?;
    let greedy =
        SampleParams { slot: 0, repetition_penalty: 1.0, temperature: 0.0, top_k: 0, top_p: 1.0, uniform: 0.0 };
    let rows = |position, rows| batch(&ops, position, rows);

    let mut cache = model.thinker.model.cache(&ops, 1, PROMPT + STEPS);
    let mut output_mask =
        ops.state(StateSpec::TokenMask { slots: 1, vocabulary: model.config.thinker.text.model.vocab_size });
    let prompt: Vec<u32> = (0..PROMPT as u32).map(|i| 20 + i).collect();
    let tokens = index(&ops, &prompt);
    let x = model.thinker.embed(&ops, &tokens, None);
    model.thinker.forward(&ops, x, &tokens, &mut cache, &rows(0, PROMPT));
    let thinker_token = median(STEPS as f64, || {
        let mut ids = vec![20];
        for step in 0..STEPS {
            let tokens = index(&ops, &ids);
            let x = model.thinker.embed(&ops, &tokens, None);
            let (x, _) = model.thinker.forward(&ops, x, &tokens, &mut cache, &rows(PROMPT + step, 1));
            let logits = model.thinker.logits(&ops, &x, &index(&ops, &[0]));
            ids = ops.sample(&logits, &[greedy], None, Some(&mut output_mask));
        }
    });

    let mut cache = model.talker.codec.model.cache(&ops, 1, PROMPT + STEPS);
    let mut predictor_cache = model.talker.code_predictor.cache(&ops, 1);
    let mut output_mask =
        ops.state(StateSpec::TokenMask { slots: 1, vocabulary: model.config.talker.text.model.vocab_size });
    let x = model.talker.codec.rows(&ops, &index(&ops, &prompt));
    model.talker.codec.forward(&ops, x, &mut cache, &rows(0, PROMPT), &index(&ops, &[0]));
    let codec_frame = median(STEPS as f64, || {
        let mut x = model.talker.codec.rows(&ops, &index(&ops, &[20]));
        for step in 0..STEPS {
            let hidden = model.talker.codec.forward(&ops, x, &mut cache, &rows(PROMPT + step, 1), &index(&ops, &[0]));
            let logits = model.talker.codec.logits(&ops, &hidden);
            let first = ops.sample(&logits, &[greedy], Some(&model.talker.codec.allowed_mask), Some(&mut output_mask));
            let first = model.talker.codec.rows(&ops, &index(&ops, &first));
            let predictor = &model.talker.code_predictor;
            x = eager::complete(&ops, predictor, &hidden, first, &mut predictor_cache, &[greedy]).2;
        }
    });

    let codec = &model.config.code2wav;
    let seconds = (MAX_FRAMES * codec.samples_per_frame()) as f64 / 24_000.0;
    let codes: Vec<Vec<u32>> = (0..codec.num_quantizers)
        .map(|q| (0..MAX_FRAMES).map(|t| ((q * 37 + t * 101) % codec.codebook_size) as u32).collect())
        .collect();
    let mut state = model.code2wav.state(&ops, 1);
    let code2wav_whole = median(seconds, || {
        let chunk = StreamRows { slot: 0, position: 0, rows: MAX_FRAMES };
        eager::decode(&ops, &model.code2wav, &codes, &mut state, &[chunk]);
    });
    let code2wav_stream = median(seconds, || {
        for t in 0..MAX_FRAMES {
            let frame: Vec<Vec<u32>> = codes.iter().map(|codes| vec![codes[t]]).collect();
            eager::decode(&ops, &model.code2wav, &frame, &mut state, &[StreamRows { slot: 0, position: t, rows: 1 }]);
        }
    });
    Ok(Stages { thinker_token, codec_frame, code2wav_whole, code2wav_stream })
}

/// One answer of ours; times in seconds.
struct Answer {
    text: String,
    seconds: f64,
    first: f64,
    audio: f64,
}

fn whole_answer(folder: &Path, sound: &[f32], threads: usize) -> Result<Answer> {
    let config = EngineConfig { threads: Some(threads), ..EngineConfig::default() };
    let engine = Engine::start(Source::Folder(folder.to_owned()), &config)?;
    let mut answers = Vec::new();
    for _ in 0..=REPEATS {
        let session = engine.open()?;
        let begun = Instant::now();
        let request = Respond::new(0, 1);
        for command in [Command::Append(sound.to_vec()), Command::Commit { item: 0 }, Command::Respond(request)] {
            session.submit(command)?;
        }
        let mut answer = Answer { text: String::new(), seconds: 0.0, first: 0.0, audio: 0.0 };
        loop {
            match session.next_event_blocking().context("the session ended")? {
                Event::Text { text, .. } => answer.text += &text,
                Event::Audio { frame, samples, .. } => {
                    if frame == 0 {
                        answer.first = begun.elapsed().as_secs_f64();
                    }
                    answer.audio += samples.len() as f64 / f64::from(engine.info().output_rate);
                }
                Event::SegmentFinished { .. } => break,
                Event::Failed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
        answer.seconds = begun.elapsed().as_secs_f64();
        session.close();
        answers.push(answer);
    }
    answers.remove(0);
    answers.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(answers.swap_remove(REPEATS / 2))
}

/// Reads a wav file at the engine's rate.
fn samples(path: &Path) -> Result<Vec<f32>> {
    Ok(sound_file::read(&std::fs::read(path)?[..], 16_000, Duration::from_secs(60))?)
}

fn reference(model: &Path, question: &Path, threads: usize) -> Result<Reference> {
    let threads = threads.to_string();
    let arguments = [model.as_os_str(), question.as_os_str(), "--threads".as_ref(), threads.as_ref()];
    side_by_side::reference("REPARTEE_REFERENCE_PYTHON", "tests/parity/bench_reference.py", arguments)
}

fn openvino(model: &Path, question: &Path, threads: usize) -> Result<OpenVino> {
    let (threads, exported) = (threads.to_string(), tools::root().join("target/peers/openvino"));
    let arguments =
        [model.as_os_str(), question.as_os_str(), exported.as_os_str(), "--threads".as_ref(), threads.as_ref()];
    side_by_side::reference("REPARTEE_OPENVINO_PYTHON", "tests/peers/openvino_answer.py", arguments)
}

#[tokio::main]
async fn first_packets(question: &Path) -> Result<Vec<ReportRow>> {
    let server = demo::start_demo_server().await?;
    let scenario = Scenario {
        name: "first packets".to_owned(),
        duration_s: 1_000.0,
        transport: TransportKind::Websocket,
        end_of_turn: EndOfTurn::Client,
        arrivals: Arrivals::Poisson { per_s: 0.0 },
        turns: TURNS,
        think_s: 0.0,
        ..Scenario::for_command("soak")?
    };
    let bench = LoadRunner::local(&server.page(), PathBuf::new()).await?;
    let log = bench.run_one(&scenario, Question::of(Utterance::load(question)?)).await?;
    ensure!(log.errors.is_empty() && log.turns.len() == TURNS, "{:?}", log.errors);
    let times = log.sorted(|turn| turn.ttfp);
    let row = |percent| {
        let time = percentile(&times, percent).context("no turn was timed")?;
        let note = format!("{TURNS} turns of one session; commit to the first packet above -45 dBFS");
        Ok(ReportRow::without_peer(
            format!("TTFP over the websocket, p{percent}"),
            time.as_secs_f64() * 1e3,
            "ms",
            note,
        ))
    };
    [50, 95].into_iter().map(row).collect()
}
