//! Cache memory that nobody uses goes back to the system.

use std::time::Duration;

use repartee_engine::EngineConfig;
use repartee_engine_api::{Command, Respond, Role, SessionHandle};
use repartee_engine_testkit::driven::{Driven, Response, serve, submit};
use repartee_engine_testkit::root;

const SESSIONS: usize = 3;

fn engine() -> Driven {
    let config =
        EngineConfig { sessions: SESSIONS, session_tokens: 2_048, threads: Some(1), ..EngineConfig::default() };
    serve(&root().join("models/demo"), &config)
}

/// Asks with a prompt of some 1,500 tokens, which `word` begins.
fn ask(engine: &mut Driven, session: &SessionHandle, word: &str) -> Response {
    submit(session, Command::SetInstructions(format!("{word} {}", "one two three ".repeat(500))));
    submit(session, Command::text(0, Role::User, "one two three"));
    engine.respond(session, Respond { max_tokens: Some(4), ..Respond::new(0, 1) }).unwrap()
}

/// Lets a minute pass, with ticks enough for every piece of memory.
fn minute(engine: &mut Driven) {
    for _ in 0..60 {
        engine.time.pass(Duration::from_secs(1));
        engine.ticks(60);
    }
}

#[test]
fn caches_of_ended_sessions_go_back() {
    let mut engine = engine();
    assert_eq!(engine.scheduler.resident(), (0, 0));
    let sessions: Vec<SessionHandle> = (0..SESSIONS).map(|_| engine.open()).collect();
    let words = ["two", "four", "six"];
    let first: Vec<Response> =
        sessions.iter().zip(words).map(|(session, word)| ask(&mut engine, session, word)).collect();
    drop(sessions);
    assert_eq!(engine.left_behind(), (0, 0));
    let (used, _) = engine.scheduler.resident();
    assert!(used > 250, "{used} blocks were used");
    minute(&mut engine);
    let (left, bytes) = engine.scheduler.resident();
    assert!(left <= 40, "{left} of {used} blocks have memory");
    // Keys and values of a layer take four kilobytes a block at least.
    assert!(bytes >= (used - left) as u64 * 8_192, "{bytes} bytes for {} blocks", used - left);
    // The same prompts are computed again, to the same bits.
    for (word, expected) in words.into_iter().zip(&first) {
        let session = engine.open();
        let again = ask(&mut engine, &session, word);
        assert_eq!((&again.text, &again.samples), (&expected.text, &expected.samples));
    }
}

#[test]
fn caches_of_quiet_sessions_stay() {
    let mut engine = engine();
    let session = engine.open();
    ask(&mut engine, &session, "two");
    let (used, _) = engine.scheduler.resident();
    minute(&mut engine);
    // But for some blocks behind the end of the answer.
    let (left, _) = engine.scheduler.resident();
    assert!((used - 4..=used).contains(&left), "{left} of {used}");
    submit(&session, Command::text(2, Role::User, "one two three"));
    let next = engine.respond(&session, Respond { max_tokens: Some(4), ..Respond::new(1, 3) }).unwrap();
    assert!(next.usage.cached_tokens > 1_000, "{:?}", next.usage);
}
