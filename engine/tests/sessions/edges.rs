//! Items on the edges between stages, ends of sessions, timeouts and settings.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::collections::BTreeMap;
use std::time::Duration;

use repartee_engine::EngineConfig;
use repartee_engine::HandOff;
use repartee_engine::internals::pipeline::{Placement, StagePart};
use repartee_engine::internals::qwen3_omni_moe::Qwen3Omni;
use repartee_engine::internals::vocoder::frame_stage::FrameVocoderPart;
use repartee_engine::internals::{BatchEntry, Checkpoint, SlotCounts, Stage, StageEnd, StageItem};
use repartee_engine::{StageConfig, Timeouts};
use repartee_engine_api::{
    COMMAND_QUEUE, Command, EVENT_QUEUE, Event, FinishReason, Respond, SessionError, SessionHandle,
};
use repartee_kernels::cpu::Cpu;

use repartee_engine_testkit::driven::{Driven, Response, serve, submit};
use repartee_engine_testkit::{Expected, greedy_copy};

fn config() -> EngineConfig {
    EngineConfig { sessions: 8, out_of_band: 2, session_tokens: 2048, ..EngineConfig::default() }
}

fn left_context(frames: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([("left_context".to_owned(), frames)])
}

fn code2wav(stage: StageConfig) -> BTreeMap<String, StageConfig> {
    BTreeMap::from([("code2wav".to_owned(), stage)])
}

fn engine(name: &str, config: &EngineConfig) -> (Driven, Expected, tempfile::TempDir) {
    let expected = Expected::load(name);
    let folder = greedy_copy(name, &expected);
    (serve(folder.path(), config), expected, folder)
}

fn request_turn(session: &SessionHandle, expected: &Expected, request: Respond) {
    submit(session, Command::Append(expected.tensor("turn0.audio").0));
    submit(session, Command::Commit { item: 0 });
    submit(session, Command::Respond(request));
}

/// Runs one response under these settings.
fn response_with(config: &EngineConfig, request: Respond) -> Response {
    let (mut engine, expected, _folder) = engine("dense", config);
    let session = engine.open();
    let number = request.response;
    request_turn(&session, &expected, request);
    engine.listen(&session, number).unwrap()
}

#[test]
fn full_payload_speaks_after_the_whole_text() {
    let events = |config: &EngineConfig| {
        let (mut engine, expected, _folder) = engine("dense", config);
        let session = engine.open();
        request_turn(&session, &expected, Respond::new(0, 1));
        engine.settle();
        let kinds = std::iter::from_fn(|| session.try_next_event()).map(|event| match event {
            Event::Text { .. } => 't',
            Event::Audio { .. } => 'a',
            _ => 'e',
        });
        kinds.collect::<String>()
    };
    let chunked = events(&config());
    assert!(chunked.find('a').unwrap() < chunked.rfind('t').unwrap(), "{chunked}");
    let full = events(&EngineConfig { hand_off: HandOff::FullPayload, ..config() });
    assert!(full.find('a').unwrap() > full.rfind('t').unwrap(), "{full}");
}

#[test]
fn left_context_decoding_yields_as_many_samples() {
    let carried = response_with(&config(), Respond::new(0, 1));
    let again = |left, steady| {
        let stage = StageConfig { options: left_context(left), steady_chunk: Some(steady), ..StageConfig::default() };
        response_with(&EngineConfig { stages: code2wav(stage), ..config() }, Respond::new(0, 1))
    };
    for (left, steady) in [(25, 1), (25, 25), (2, 3)] {
        let decoded = again(left, steady);
        assert_eq!(decoded.samples.len(), carried.samples.len(), "{left} + {steady}");
        assert_eq!(decoded.text, carried.text);
    }
    // With the whole response as left context the samples equal those of carried state; with one frame they do not.
    let frames = carried.usage.output_audio_frames as usize;
    let all = again(frames, 1);
    let off = repartee_engine_testkit::difference(&all.samples, &carried.samples);
    assert!(off < 1e-4, "off by {off}");
    assert!(repartee_engine_testkit::difference(&again(1, 1).samples, &carried.samples) > 1e-4);
}

#[test]
fn slots_are_reused_without_stalling_admission() {
    let (mut engine, expected, _folder) = engine("dense", &config());
    for number in 0..508 {
        let session = engine.open();
        submit(&session, Command::Append(expected.tensor("turn0.audio").0[..4000].to_vec()));
        submit(&session, Command::Commit { item: 0 });
        submit(&session, Command::Respond(Respond { max_tokens: Some(2), ..Respond::new(0, 1) }));
        engine.ticks(number % 7);
        drop(session);
        engine.ticks(1);
    }
    assert_eq!(engine.left_behind(), (0, 0));
}

#[test]
fn a_first_stop_token_gives_no_audio() {
    let expected = Expected::load("dense");
    let folder = greedy_copy("dense", &expected);
    // Makes the first token of the response a stop token.
    let (tokens, _) = expected.ids("turn0.thinker.tokens");
    let path = folder.path().join("generation_config.json");
    let mut generation: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for field in ["eos_token_id", "thinker_eos_token_id"] {
        generation[field] = tokens[0].into();
    }
    std::fs::write(&path, generation.to_string()).unwrap();
    let mut engine = serve(folder.path(), &config());
    let session = engine.open();
    request_turn(&session, &expected, Respond::new(0, 1));
    let response = engine.listen(&session, 0).unwrap();
    assert_eq!((response.text.as_str(), response.samples.len()), ("", 0));
    assert_eq!(response.reason, Some(FinishReason::Stop));
    assert_eq!(response.usage.output_audio_frames, 0);
}

/// The stage code2wav with one slot, and the highest code of each of its codebooks.
fn code2wav_stage() -> (Box<dyn Stage>, Vec<u32>) {
    let ops = Cpu::default();
    let folder = repartee_engine_testkit::folder("dense").join("checkpoint");
    let checkpoint = Checkpoint::open(repartee_engine::Source::Folder(folder)).unwrap();
    let model = Qwen3Omni::load(&ops, &checkpoint).unwrap();
    let codec = model.config.code2wav.clone();
    let part = FrameVocoderPart::new(model.code2wav, Duration::from_millis(80));
    let slots = SlotCounts { sessions: 1, out_of_band: 0, context: 1 };
    let stage = Box::new(part).place(Placement { ops, slots, handed: &mut None });
    (stage, vec![codec.codebook_size as u32 - 1; codec.num_quantizers])
}

#[test]
fn an_end_before_collection_follows_the_samples() {
    let (mut stage, frame) = code2wav_stage();
    let mut out = Vec::new();
    stage.accept(0, StageItem::Codes(frame), &mut out);
    stage.launch(&[BatchEntry { slot: 0, rows: 1 }], &mut out);
    stage.accept(0, StageItem::End(StageEnd::Stop), &mut out);
    assert!(out.is_empty(), "the frame is on the device: {out:?}");
    stage.collect(&mut out);
    assert!(matches!(out[..], [(0, StageItem::Samples(_)), (0, StageItem::End(StageEnd::Stop))]), "{out:?}");
}

#[test]
fn slots_freed_before_collection_give_nothing() {
    let (mut stage, frame) = code2wav_stage();
    let frees: [fn(&mut dyn Stage); 2] =
        [|stage| stage.free(0), |stage| stage.accept(0, StageItem::Abort, &mut Vec::new())];
    for free in frees {
        let mut out = Vec::new();
        stage.accept(0, StageItem::Codes(frame.clone()), &mut out);
        stage.launch(&[BatchEntry { slot: 0, rows: 1 }], &mut out);
        free(stage.as_mut());
        stage.collect(&mut out);
        assert!(out.is_empty(), "{out:?}");
    }
}

#[test]
fn out_of_range_codes_never_reach_the_codec() {
    let (mut stage, highest) = code2wav_stage();
    let (books, size) = (highest.len(), highest[0] + 1);
    // One past the last code, `NO_ID`, a code missing, a code too many.
    let wrong = [
        [&highest[..books - 1], &[size]].concat(),
        [&highest[..books - 1], &[u32::MAX]].concat(),
        highest[1..].to_vec(),
        [&highest[..], &[0]].concat(),
    ];
    for frame in wrong {
        let mut out = Vec::new();
        stage.accept(0, StageItem::Codes(frame), &mut out);
        assert!(matches!(out[..], [(0, StageItem::Fail(SessionError::Internal { stage: "talker", .. }))]), "{out:?}");
        assert_eq!(stage.runnable_rows(0).rows, 0);
    }
    let mut out = Vec::new();
    stage.accept(0, StageItem::Codes(highest), &mut out);
    assert!(out.is_empty());
    assert_eq!(stage.runnable_rows(0).rows, 1);
}

#[test]
fn unread_events_end_the_session_after_timeout() {
    let timeouts = Timeouts { unread_s: 7, ..Timeouts::default() };
    let (mut engine, expected, _folder) = engine("dense", &EngineConfig { timeouts, ..config() });
    let session = engine.open();
    submit(&session, Command::Append(expected.tensor("turn0.audio").0));
    submit(&session, Command::Commit { item: 0 });
    for number in 0..40 {
        submit(&session, Command::Respond(Respond::new(number, 100 + number)));
    }
    engine.settle();
    assert_eq!(engine.scheduler.sessions(), 1);
    engine.time.pass(Duration::from_secs(6));
    engine.settle();
    assert_eq!(engine.scheduler.sessions(), 1, "not yet");
    engine.time.pass(Duration::from_secs(1));
    assert_eq!(engine.left_behind(), (0, 0));
    // Every event sent before it is present; the error is the last one.
    let events: Vec<Event> = std::iter::from_fn(|| session.try_next_event()).collect();
    assert!(events.len() > EVENT_QUEUE / 2);
    let error = SessionError::TimedOut { what: "reading what was sent", limit_s: 7 };
    assert!(matches!(events.last(), Some(Event::Failed { error: last, .. }) if *last == error), "{:?}", events.last());
}

#[test]
fn reading_in_time_keeps_the_session() {
    let timeouts = Timeouts { unread_s: 7, stage_s: 3, ..Timeouts::default() };
    let (mut engine, expected, _folder) = engine("dense", &EngineConfig { timeouts, ..config() });
    let session = engine.open();
    submit(&session, Command::Append(expected.tensor("turn0.audio").0));
    submit(&session, Command::Commit { item: 0 });
    for number in 0..30 {
        submit(&session, Command::Respond(Respond::new(number, 100 + number)));
    }
    for number in 0..30 {
        engine.settle();
        // Longer than `stage_s`, but the queue was full.
        engine.time.pass(Duration::from_secs(5));
        engine.settle();
        engine.listen(&session, number).unwrap();
    }
}

#[test]
fn an_undecided_speculation_times_out() {
    let timeouts = Timeouts { speculation_s: 3, ..Timeouts::default() };
    let (mut engine, expected, _folder) = engine("dense", &EngineConfig { timeouts, ..config() });
    let session = engine.open();
    submit(&session, Command::Append(expected.tensor("turn0.audio").0));
    submit(
        &session,
        Command::BeginSpeculation { item: 0, respond: Respond { max_tokens: Some(1), ..Respond::new(0, 1) } },
    );
    engine.listen(&session, 0).unwrap();
    engine.time.pass(Duration::from_secs(3));
    engine.settle();
    let error = SessionError::TimedOut { what: "the commit or abort of a speculation", limit_s: 3 };
    assert_eq!(session.try_next_event(), Some(Event::Failed { response: None, error }));
    assert_eq!(engine.left_behind(), (0, 0));
}

#[test]
fn bad_settings_are_refused_by_name() {
    let expected = Expected::load("dense");
    let folder = greedy_copy("dense", &expected);
    let source = || repartee_engine::Source::Folder(folder.path().to_path_buf());
    let refusal = |config: EngineConfig| repartee_engine::Engine::start(source(), &config).unwrap_err().to_string();
    let stage = |name: &str, stage| EngineConfig { stages: BTreeMap::from([(name.to_owned(), stage)]), ..config() };
    let zero = StageConfig { steady_chunk: Some(0), ..StageConfig::default() };
    let left = StageConfig { options: left_context(25), ..StageConfig::default() };
    for (config, expected) in [
        (EngineConfig { sessions: 0, ..config() }, "engine.sessions is 0: it may be 1 to 65536"),
        (EngineConfig { session_tokens: 5, ..config() }, "engine.session_tokens is 5: it may be 64 to 16777216"),
        (stage("code2wav", zero), "engine.stages.code2wav.steady_chunk is 0: it may be 1 to 65536"),
        (
            stage("talkr", left.clone()),
            "engine.stages.talkr is no stage: this model's stages are thinker, talker, code2wav",
        ),
        (stage("talker", left), "engine.stages.talker.left_context is 25: this stage has no such setting"),
        (
            EngineConfig { timeouts: Timeouts { unread_s: 0, ..Timeouts::default() }, ..config() },
            "engine.timeouts.unread_s is 0",
        ),
    ] {
        let refusal = refusal(config);
        assert!(refusal.starts_with(expected), "{refusal}");
    }
}

#[test]
fn memory_limits_the_number_of_slots() {
    use repartee_engine::internals::{SlotBytes, fit_slots};
    let config =
        EngineConfig { sessions: 64, out_of_band: 8, cache_mib: 10, session_tokens: 1000, ..EngineConfig::default() };
    // 1000 positions of 1 KiB: a little less than 1 MiB each, so ten slots, a third of them out-of-band.
    let slots_of = |context, position| fit_slots(&config, context, SlotBytes { position, fixed: 0 });
    let some = slots_of(5000, 1024).unwrap();
    assert_eq!((some.sessions, some.out_of_band, some.context), (7, 3, 1000));
    assert_eq!(slots_of(500, 16).unwrap().sessions, 64);
    assert_eq!(slots_of(500, 16).unwrap().context, 500);
    let error = slots_of(5000, 1 << 20).unwrap_err().to_string();
    let fixed = fit_slots(&config, 1000, SlotBytes { position: 1024, fixed: 4 << 20 }).unwrap();
    assert_eq!((fixed.sessions, fixed.out_of_band), (2, 0), "what a slot takes whatever its context counts too");
    assert!(error.starts_with("engine.cache_mib is 10: one session of 1000 tokens takes 1000 MiB"), "{error}");
}

#[test]
fn a_command_backlog_delays_no_other_session() {
    let (mut engine, expected, _folder) = engine("dense", &config());
    let (busy, other) = (engine.open(), engine.open());
    for number in 0..COMMAND_QUEUE as u64 {
        submit(
            &busy,
            Command::Insert {
                item: number,
                place: repartee_engine_api::InsertAt::End,
                content: repartee_engine_api::MessageContent::Audio(vec![0.01; 16_000]),
            },
        );
    }
    request_turn(&other, &expected, Respond { max_tokens: Some(2), audio: false, ..Respond::new(0, 1) });
    engine.ticks(10);
    let answered =
        std::iter::from_fn(|| other.try_next_event()).any(|event| matches!(event, Event::SegmentFinished { .. }));
    assert!(answered, "one session's backlog delayed another's response");
}

#[test]
fn non_finite_audio_ends_its_own_session_only() {
    let (mut engine, expected, _folder) = engine("dense", &config());
    let request = || Respond { max_tokens: Some(3), ..Respond::new(0, 1000) };
    let (broken, fine) = (engine.open(), engine.open());
    let audio = expected.tensor("turn1.audio").0;
    let mut poisoned = audio.clone();
    // The power of this sample exceeds single precision.
    poisoned[1000] = 1e30;
    for (session, audio) in [(&broken, poisoned), (&fine, audio.clone())] {
        submit(session, Command::Append(audio));
        submit(session, Command::Commit { item: 0 });
        submit(session, Command::Respond(request()));
    }
    let response = engine.listen(&fine, 0).unwrap();
    let error = engine.listen(&broken, 0).map(|response| response.text).unwrap_err();
    assert_eq!(error, SessionError::NotFinite { stage: "thinker" });
    drop((broken, fine));
    assert_eq!(engine.left_behind(), (0, 0));
    let alone = engine.open();
    submit(&alone, Command::Append(audio));
    submit(&alone, Command::Commit { item: 0 });
    assert!(engine.respond(&alone, request()).unwrap().output() == response.output());
    assert_ne!(response.reason, Some(FinishReason::Cancelled));
}
