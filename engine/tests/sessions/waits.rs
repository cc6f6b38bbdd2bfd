//! Order of waiting work: text for speech, responses for the encoder, commands for windows.
#![allow(clippy::unwrap_used)] // A panic is a test's report.

use std::collections::BTreeMap;
use std::time::Duration;

use repartee_engine::{EngineConfig, StageConfig, Timeouts};
use repartee_engine_api::{
    Command, Event, FinishReason, InsertAt, MessageContent, Respond, SessionError, SessionHandle,
};

use repartee_engine_testkit::driven::submit;
use repartee_engine_testkit::spelling::{self, ask};

/// Settings with `batch_rows` rows in a step.
fn rows(batch_rows: usize) -> EngineConfig {
    let stage = StageConfig { batch_rows: Some(batch_rows), ..StageConfig::default() };
    EngineConfig { stages: BTreeMap::from([("spelling".to_owned(), stage)]), ..EngineConfig::default() }
}

/// Reads waiting events: true if a response ended, and the number of texts.
fn read(session: &SessionHandle) -> (bool, usize) {
    let events: Vec<Event> = std::iter::from_fn(|| session.try_next_event()).collect();
    let texts = events.iter().filter(|event| matches!(event, Event::Text { .. })).count();
    (events.iter().any(|event| matches!(event, Event::SegmentFinished { .. })), texts)
}

#[test]
fn speech_precedes_a_text_that_has_begun() {
    let (mut engine, _, _) = spelling::engine(2, &rows(1));
    let (reader, listener) = (engine.open(), engine.open());
    ask(&reader, 0, &"a".repeat(60), false);
    engine.ticks(3);
    assert!(read(&reader).1 > 0, "the text has not begun");
    engine.time.pass(Duration::from_millis(1));
    ask(&listener, 0, "abcdefgh", true);
    let mut ticks = 0;
    while !read(&listener).0 {
        engine.ticks(1);
        ticks += 1;
        assert!(ticks <= 10, "a text holds up speech");
    }
    let (over, texts) = read(&reader);
    assert!(!over && texts <= 1, "{texts} texts came first");
}

#[test]
fn response_waiting_for_the_encoder_times_out() {
    let timeouts = Timeouts { stage_s: 9, ..Timeouts::default() };
    // In one tick a session has one window for the encoder, which takes eight.
    let (mut engine, _, _) = spelling::engine(9, &EngineConfig { timeouts, ..EngineConfig::default() });
    let sessions: Vec<SessionHandle> = (0..9).map(|_| engine.open()).collect();
    for session in &sessions {
        let content = MessageContent::Audio(vec![0.1; 16_000 * 300]);
        submit(session, Command::Insert { item: 0, place: InsertAt::End, content });
        submit(session, Command::Respond(Respond::new(0, 1)));
        engine.ticks(1);
        engine.time.pass(Duration::from_millis(1));
    }
    // The windows of the first sessions fill every step of the encoder.
    let (first, last) = (&sessions[0], &sessions[8]);
    let mut error = None;
    for _ in 0..20 {
        engine.ticks(1);
        engine.time.pass(Duration::from_secs(1));
        let events = std::iter::from_fn(|| last.try_next_event());
        error = error.or(events.into_iter().find_map(|event| match event {
            Event::Failed { error, .. } => Some(error),
            _ => None,
        }));
    }
    let expected = SessionError::TimedOut { what: "the encoding of a response's input", limit_s: 9 };
    assert_eq!(error, Some(expected));
    assert_eq!(first.try_next_event(), None, "the encoder works for it");
}

#[test]
fn cancel_overtakes_windows() {
    let (mut engine, _, _) = spelling::engine(1, &EngineConfig::default());
    let session = engine.open();
    ask(&session, 0, &"a".repeat(60), false);
    engine.ticks(2);
    let content = MessageContent::Audio(vec![0.1; 16_000 * 300]);
    submit(&session, Command::Insert { item: 8, place: InsertAt::End, content });
    submit(&session, Command::Cancel { response: 0 });
    engine.ticks(2);
    let events = std::iter::from_fn(|| session.try_next_event());
    let reason = events.into_iter().find_map(|event| match event {
        Event::SegmentFinished { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason, Some(FinishReason::Cancelled));
}

#[test]
fn a_long_text_delays_no_other_session() {
    let (mut engine, _, _) = spelling::engine(3, &EngineConfig::default());
    let (long, other, waiting) = (engine.open(), engine.open(), engine.open());
    // A megabyte of words, and as much again for the session's instructions.
    let text = "some words, 12 of them; ".repeat(45_000);
    let content = MessageContent::Text { role: repartee_engine_api::Role::User, text: text.clone() };
    submit(&long, Command::Insert { item: 0, place: InsertAt::End, content });
    submit(&waiting, Command::SetInstructions(text));
    ask(&other, 0, "abc", true);
    engine.ticks(12);
    assert!(read(&other).0, "a long text holds up another session");
    ask(&long, 1, "abc", true);
    ask(&long, 2, "abcd", true);
    submit(&long, Command::Cancel { response: 1 });
    engine.settle();
    let ends = std::iter::from_fn(|| long.try_next_event()).filter_map(|event| match event {
        Event::SegmentFinished { response, reason, .. } => Some((response, reason)),
        _ => None,
    });
    // The cancel does not overtake its own request.
    assert_eq!(ends.collect::<Vec<_>>(), [(1, FinishReason::Cancelled), (2, FinishReason::Stop)]);
}

#[test]
fn text_without_a_space_is_refused() {
    let (mut engine, _, _) = spelling::engine(1, &EngineConfig::default());
    let session = engine.open();
    ask(&session, 0, &"a".repeat(1 << 20), true);
    engine.settle();
    let events: Vec<Event> = std::iter::from_fn(|| session.try_next_event()).collect();
    let refused = |event: &Event| matches!(event, Event::Failed { response: None, error } if error.to_string().contains("break the text up"));
    assert!(events.iter().any(refused), "{events:?}");
    // The session goes on.
    ask(&session, 1, "abc", true);
    engine.settle();
    assert!(read(&session).0);
}

#[test]
fn complete_audio_is_read_by_pieces() {
    let (mut engine, _, _) = spelling::engine(2, &EngineConfig::default());
    let (long, other) = (engine.open(), engine.open());
    let content = MessageContent::Audio(vec![0.1; 16_000 * 60]);
    submit(&long, Command::Insert { item: 0, place: InsertAt::End, content });
    submit(&long, Command::Append(vec![0.1; 16_000 * 30]));
    engine.ticks(5);
    let encoded = engine.scheduler.times()[0].2;
    assert!((3..=10).contains(&encoded), "{encoded} steps of the encoder in five ticks");
    ask(&other, 0, "abc", true);
    engine.ticks(12);
    assert!(read(&other).0, "long audio holds up another session");
    engine.settle();
    assert!(engine.scheduler.times()[0].2 >= 50, "everything is encoded in the end");
}
