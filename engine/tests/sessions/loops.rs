//! Several tick loops of one engine: their sessions hear what those of one loop hear, and the weights are there once.

use repartee_engine::internals::{Checkpoint, load_model_sharing};
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{Command, OpenError, Respond, Role, SessionHandle, SpeechEngine};
use repartee_engine_testkit::driven::Response;
use repartee_engine_testkit::root;
use repartee_kernels::cpu::SharedWeights;

/// Settings of the demo model for a few sessions.
fn config(loops: usize, sessions: usize) -> EngineConfig {
    let threads = Some(2);
    EngineConfig {
        loops,
        sessions,
        out_of_band: 1,
        threads,
        cache_mib: 1024,
        session_tokens: 1024,
        ..EngineConfig::default()
    }
}

fn demo() -> Source {
    Source::Folder(root().join("models/demo"))
}

/// Reads the response to its end.
fn listen(session: &SessionHandle, number: u64) -> Response {
    let mut response = Response::default();
    while let Some(event) = session.next_event_blocking() {
        if response.take(number, event).unwrap() {
            return response;
        }
    }
    panic!("the session has ended");
}

/// Answers of sessions that are asked at the same time, each something else.
fn answers(engine: &Engine, sessions: u64) -> Vec<Response> {
    let opened: Vec<SessionHandle> = (0..sessions).map(|_| engine.open().unwrap()).collect();
    for (number, session) in (0..).zip(&opened) {
        session.submit_blocking(Command::text(1, Role::User, format!("Tell me number {number}."))).unwrap();
        let respond = Respond { seed: number, max_tokens: Some(12), ..Respond::new(number, 2) };
        session.submit_blocking(Command::Respond(respond)).unwrap();
    }
    (0..).zip(&opened).map(|(number, session)| listen(session, number)).collect()
}

#[test]
fn sessions_of_several_loops_answer_alike() {
    let one = answers(&Engine::start(demo(), &config(1, 5)).unwrap(), 5);
    assert!(one.iter().all(|answer| !answer.text.is_empty() && !answer.samples.is_empty()));
    for loops in [2, 3] {
        let engine = Engine::start(demo(), &config(loops, 5)).unwrap();
        assert_eq!(engine.load().loops, loops);
        let several = answers(&engine, 5);
        for (found, expected) in several.iter().zip(&one) {
            assert_eq!(found.output(), expected.output(), "{loops} loops");
        }
    }
}

#[test]
fn sessions_fill_all_loops_and_no_more() {
    let engine = Engine::start(demo(), &config(2, 3)).unwrap();
    assert_eq!(engine.occupancy().1, 3);
    let mut sessions: Vec<SessionHandle> = (0..3).map(|_| engine.open().unwrap()).collect();
    assert!(matches!(engine.open(), Err(OpenError::Full { slots: 3 })));
    // Out-of-band responses have a slot in each loop.
    for session in &sessions {
        session.submit_blocking(Command::text(1, Role::User, "Say a word.")).unwrap();
        let respond = Respond { out_of_band: true, max_tokens: Some(3), ..Respond::new(1, 2) };
        session.submit_blocking(Command::Respond(respond)).unwrap();
        assert!(!listen(session, 1).text.is_empty());
    }
    sessions.remove(1).close();
    while engine.occupancy().0 > 2 {
        std::thread::yield_now();
    }
    assert!(engine.open().is_ok(), "the slot is free again");
}

#[test]
fn loops_keep_the_weights_once() {
    let (checkpoint, shared) = (Checkpoint::open(demo()).unwrap(), SharedWeights::default());
    let config = config(2, 2);
    let first = load_model_sharing(&checkpoint, &config.of_loop(0), Some(&shared)).unwrap();
    let kept = shared.weights();
    assert!(kept > 100, "{kept}");
    let second = load_model_sharing(&checkpoint, &config.of_loop(1), Some(&shared)).unwrap();
    assert_eq!(shared.weights(), kept, "the second model has none of its own");
    drop((first, second));
    assert_eq!(shared.weights(), 0, "the weights end with the models");
}

#[test]
fn more_loops_than_sessions_are_refused() {
    for (loops, sessions, most) in [(3, 2, 2), (0, 2, 2), (65, 100, 64)] {
        let said = Engine::start(demo(), &config(loops, sessions)).unwrap_err().to_string();
        assert_eq!(said, format!("engine.loops is {loops}: it may be 1 to {most}"));
    }
}
