//! Panics outside of the stages' steps: a session at fault ends alone, a fault of the engine ends every session, and
//! the loop goes on.
#![allow(clippy::unwrap_used)] // A panic is a test's report.

use std::sync::atomic::Ordering;

use repartee_engine::EngineConfig;
use repartee_engine_api::{Command, Event, InsertAt, MessageContent, Respond, SessionError, SessionHandle};

use repartee_engine_testkit::spelling::{self, POISON, ask};

/// Error that ended the session, if it has ended.
fn last_error(session: &SessionHandle) -> Option<SessionError> {
    let events = std::iter::from_fn(|| session.try_next_event());
    let errors = events.filter_map(|event| match event {
        Event::Failed { error, .. } => Some(error),
        _ => None,
    });
    errors.last()
}

fn is_internal(error: Option<SessionError>, part: &str) -> bool {
    matches!(error, Some(SessionError::Internal { stage, .. }) if stage == part)
}

#[test]
fn a_panicking_prompt_ends_its_session_alone() {
    let (mut engine, _, _) = spelling::engine(3, &EngineConfig::default());
    let sessions: Vec<SessionHandle> = (0..3).map(|_| engine.open()).collect();
    for (session, text) in sessions.iter().zip(["abc", POISON, "def"]) {
        ask(session, 0, text, false);
    }
    engine.settle();
    assert!(is_internal(last_error(&sessions[1]), "session"));
    assert_eq!(sessions[1].next_event_blocking(), None, "the session goes on");
    for session in [&sessions[0], &sessions[2]] {
        assert_eq!(last_error(session), None);
        assert!(engine.respond(session, Respond::new(1, 9)).is_ok(), "a neighbour's panic reached it");
    }
    drop(sessions);
    assert_eq!(engine.left_behind(), (0, 0));
}

#[test]
fn a_panicking_command_ends_its_session_alone() {
    let (mut engine, _, gauges) = spelling::engine(2, &EngineConfig::default());
    let (broken, fine) = (engine.open(), engine.open());
    ask(&fine, 0, "abc", false);
    let content = MessageContent::ToolCall { name: "find".to_owned(), arguments: "{}".to_owned() };
    engine.send(&broken, Command::Insert { item: 1, place: InsertAt::End, content });
    assert!(is_internal(last_error(&broken), "session"));
    assert_eq!(broken.next_event_blocking(), None, "the session goes on");
    assert_eq!(engine.listen(&fine, 0).unwrap().text, "cba");
    assert_eq!(gauges.open.load(Ordering::Relaxed), 1, "its slot is not free");
}

#[test]
fn a_panicking_engine_fails_all_and_restarts() {
    let (mut engine, broken, gauges) = spelling::engine(3, &EngineConfig::default());
    let sessions: Vec<SessionHandle> = (0..3).map(|_| engine.open()).collect();
    for session in &sessions {
        ask(session, 0, "abc", false);
    }
    engine.ticks(2);
    assert!(gauges.ready.load(Ordering::Relaxed));
    assert_eq!(gauges.open.load(Ordering::Relaxed), 3);
    broken.need.store(true, Ordering::Relaxed);
    engine.ticks(1);
    assert!(!gauges.ready.load(Ordering::Relaxed), "it is ready while it is broken");
    assert!(!broken.ready_in_free.load(Ordering::Relaxed), "it was ready while sessions were freed");
    for session in &sessions {
        assert!(is_internal(last_error(session), "engine"));
        assert_eq!(session.next_event_blocking(), None, "the session goes on");
    }
    assert_eq!(gauges.open.load(Ordering::Relaxed), 0);

    broken.need.store(false, Ordering::Relaxed);
    engine.ticks(1);
    assert!(gauges.ready.load(Ordering::Relaxed), "it is not ready again");
    assert_eq!(engine.left_behind(), (0, 0));
    let next: Vec<SessionHandle> = (0..3).map(|_| engine.open()).collect();
    for session in &next {
        ask(session, 0, "abc", false);
        assert_eq!(engine.listen(session, 0).unwrap().text, "cba");
    }
}

#[test]
fn slots_stay_free_when_freeing_panics() {
    let (mut engine, broken, gauges) = spelling::engine(1, &EngineConfig::default());
    for round in 0..3 {
        let session = engine.open();
        ask(&session, 0, "abc", false);
        engine.settle();
        broken.free.store(round < 2, Ordering::Relaxed);
        drop(session);
        engine.settle();
        assert_eq!(gauges.open.load(Ordering::Relaxed), 0, "round {round}");
    }
    assert_eq!(engine.left_behind(), (0, 0));
}
