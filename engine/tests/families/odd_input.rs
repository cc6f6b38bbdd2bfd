//! Odd recordings and texts of callers, family by family: each ends in a response or in a typed error, and a session beside
//! it hears what it would hear alone.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_engine::EngineConfig;
use repartee_engine_api::{Command, Respond, Role, SessionError, SessionHandle};
use repartee_engine_testkit::driven::{Driven, Response, serve, submit};
use repartee_engine_testkit::folder;

/// Fixtures, and the rate of the recordings that they hear.
const FAMILIES: [(&str, Option<usize>); 8] = [
    ("lfm2_audio", Some(16_000)),
    ("lfm2_mimi", Some(16_000)),
    ("mimo_audio", Some(24_000)),
    ("fun_audio_chat", Some(16_000)),
    ("covo_audio", Some(16_000)),
    ("cosyvoice3", None),
    ("ming_tts", None),
    ("dynin_omni", None),
];
/// Ids of every question: each session has one.
const ITEM: u64 = 1;

/// An engine of short utterances, with room for two sessions.
fn engine(fixture: &str) -> Driven {
    let mut config = EngineConfig { sessions: 2, out_of_band: 0, session_tokens: 256, ..EngineConfig::default() };
    config.stages.entry("speech_lm".to_owned()).or_default().options.insert("most_patches".to_owned(), 1);
    let folder = folder(fixture).join("checkpoint");
    if fixture != "ming_tts" {
        config.stages.clear();
    }
    if fixture == "covo_audio" {
        config.accept_licence = vec!["covo-audio".to_owned()];
    }
    serve(&folder, &config)
}

/// Texts by name.
fn texts() -> [(&'static str, String); 5] {
    [
        ("emoji alone", "\u{1F600}\u{1F680}\u{1F389}".to_owned()),
        ("one letter", "a".to_owned()),
        ("an unknown alphabet", "ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ".to_owned()),
        ("100,000 letters", "x".repeat(100_000)),
        ("100,000 letters in words", "abcdefghi ".repeat(10_000)),
    ]
}

/// Recordings by name, at a rate.
fn recordings(rate: usize) -> [(&'static str, Vec<f32>); 5] {
    let tone = |count: usize, size: f32| -> Vec<f32> {
        (0..count).map(|at| (size * (at as f32 * 0.1).sin()).clamp(-1.0, 1.0)).collect()
    };
    [
        ("empty", Vec::new()),
        ("a sample", vec![0.5]),
        ("clipped", tone(rate / 2, 9.0)),
        ("nobody speaks", vec![0.0; rate]),
        ("longer than the context", vec![0.0; 90 * rate]),
    ]
}

/// Asks for an answer to a text.
fn ask(session: &SessionHandle, text: &str) {
    submit(session, Command::text(ITEM, Role::User, text));
    submit(session, Command::Respond(Respond { max_tokens: Some(3), seed: 7, ..Respond::new(1, 2) }));
}

/// Runs `input` in one session and a question in another at once. The odd one ends in a response or a typed error.
fn with_neighbour(engine: &mut Driven, alone: &Response, (name, input): (&str, Vec<Command>)) {
    let (odd, other) = (engine.open(), engine.open());
    engine.settle();
    for command in input {
        // A queue may be full; what it refuses is refused by type.
        let _ = odd.submit(command);
        engine.ticks(1);
    }
    ask(&other, "one two");
    let heard = engine.listen(&other, 1).unwrap();
    assert!(heard.output() == alone.output(), "{name}: {:?} is not {:?}", heard.text, alone.text);
    match engine.listen(&odd, 1) {
        Ok(_) => {}
        Err(SessionError::Internal { .. }) => panic!("{name}: a fault of the engine"),
        Err(error) => println!("{name}: {error}"),
    }
    drop((odd, other));
    assert_eq!(engine.left_behind(), (0, 0), "{name}");
}

/// Commands of a question that is a recording, in pieces of a second.
fn spoken(recording: &[f32], rate: usize) -> Vec<Command> {
    let pieces = recording.chunks(rate).map(|piece| Command::Append(piece.to_vec()));
    pieces.chain([Command::Commit { item: ITEM }, respond()]).collect()
}

fn respond() -> Command {
    Command::Respond(Respond { max_tokens: Some(3), seed: 7, ..Respond::new(1, 2) })
}

#[test]
fn odd_input_ends_typed_and_disturbs_nobody() {
    for (fixture, rate) in FAMILIES {
        let mut engine = engine(fixture);
        let session = engine.open();
        ask(&session, "one two");
        let alone = engine.listen(&session, 1).unwrap();
        drop(session);
        engine.settle();
        for (name, text) in texts() {
            let input = vec![Command::text(ITEM, Role::User, &text), respond()];
            with_neighbour(&mut engine, &alone, (&format!("{fixture}, {name}"), input));
        }
        for (name, recording) in rate.map(recordings).into_iter().flatten() {
            with_neighbour(&mut engine, &alone, (&format!("{fixture}, {name}"), spoken(&recording, rate.unwrap_or(1))));
        }
    }
}
