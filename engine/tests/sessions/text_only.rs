//! A model whose chain of stages ends in text.

use repartee_engine::TopologyError;
use repartee_engine::internals::{Codec, EdgeKind, Model};
use repartee_engine_api::{Command, Event, FinishReason, Respond, Role, SessionError, SessionHandle, SlicePolicy};
use repartee_engine_testkit::driven::submit;
use repartee_engine_testkit::generic::{Bed, Subject as _, config, respond};
use repartee_engine_testkit::text_family::{Cascade, TextOnly};

/// Submits a command that the session refuses; returns the error.
fn refusal(bed: &mut Bed<'_, TextOnly>, command: Command) -> SessionError {
    let session = bed.engine.open();
    submit(&session, Command::text(0, Role::User, "hi"));
    bed.engine.send(&session, command);
    match session.try_next_event() {
        Some(Event::Failed { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_for_audio_are_refused_by_name() {
    let mut bed = Bed::new(&TextOnly { local_layers: false }, &config());
    let spoken = respond(1);
    assert_eq!(refusal(&mut bed, Command::Respond(spoken.clone())), SessionError::NoAudioOutput);
    let streamed = Respond { audio: false, streamed: true, ..spoken.clone() };
    let error = refusal(&mut bed, Command::Respond(streamed));
    assert!(matches!(error, SessionError::BadValue { field: "streamed", .. }), "{error}");
    let policy = SlicePolicy::EachSlice { samples: 16_000, respond: Box::new(spoken) };
    assert_eq!(refusal(&mut bed, Command::SetSlicePolicy(policy)), SessionError::NoAudioInput);
    assert_eq!(bed.engine.left_behind(), (0, 0));
}

#[test]
fn the_last_stage_agrees_with_the_codec() {
    let codec = Some(Codec { sample_rate: 24_000, frame_samples: (1_920, 1) });
    let model = Model { codec, ..TextOnly::default().model(&config()) };
    assert_eq!(model.check(), Err(TopologyError::LastStage { gives: EdgeKind::Text }));
}

#[test]
fn a_text_cut_short_ends_in_length() {
    let mut bed = Bed::new(&Cascade, &config());
    let session = bed.engine.open();
    bed.input(&session, 0, 0);
    let response = bed.respond(&session, Respond { max_tokens: Some(2), ..respond(0) });
    assert_eq!((response.usage.output_text_tokens, response.reason), (2, Some(FinishReason::Length)));
    assert!(!response.samples.is_empty());
    bed.close(session);
}

/// Submits `count` texts of 400 letters under one id: each but the first fails when its turn has come.
fn submit_texts(session: &SessionHandle, count: usize) {
    for _ in 0..count {
        submit(session, Command::text(0, Role::User, "one two ".repeat(50)));
    }
}

/// Number of failures that a session has reported since the last look.
fn failures(session: &SessionHandle) -> usize {
    std::iter::from_fn(|| session.try_next_event()).filter(|event| matches!(event, Event::Failed { .. })).count()
}

#[test]
fn a_text_beyond_any_context_is_cut() {
    let mut bed = Bed::new(&TextOnly { local_layers: false }, &config());
    let session = bed.engine.open();
    submit(&session, Command::text(0, Role::User, "one two ".repeat(40_000)));
    let error = bed.engine.respond(&session, Respond { audio: false, ..respond(1) }).unwrap_err();
    let SessionError::ContextFull { tokens, limit } = error else { panic!("{error}") };
    assert!(limit < tokens && tokens <= 5 * limit, "{tokens} tokens of {limit}");
    // The next prompt is without it.
    submit(&session, Command::Delete { item: 0 });
    submit(&session, Command::text(1, Role::User, "one two"));
    bed.engine.respond(&session, Respond { audio: false, ..respond(2) }).unwrap();
    bed.close(session);
}

#[test]
fn a_tick_tokenises_few_texts() {
    let mut bed = Bed::new(&TextOnly { local_layers: false }, &config());
    let flood: Vec<SessionHandle> = (0..3).map(|_| bed.engine.open()).collect();
    flood.iter().for_each(|session| submit_texts(session, 41));
    bed.engine.ticks(1);
    let told: Vec<usize> = flood.iter().map(failures).collect();
    // A session reads 1024 bytes a tick.
    assert!(told.iter().all(|&count| count <= 2), "{told:?} after a tick");
    // Somebody else's text does not wait for theirs.
    let other = bed.engine.open();
    submit_texts(&other, 2);
    bed.engine.ticks(3);
    assert_eq!(failures(&other), 1);
    assert!(flood.iter().map(failures).sum::<usize>() < 40, "the flood is not through");
    bed.engine.settle();
    let rest: Vec<usize> = flood.iter().map(failures).collect();
    assert!(rest.iter().all(|&count| count > 10), "{rest:?}: all texts have their turns");
    drop((flood, other));
    assert_eq!(bed.engine.left_behind(), (0, 0));
}
