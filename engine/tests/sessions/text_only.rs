//! A model whose chain of stages ends in text.

use repartee_engine::TopologyError;
use repartee_engine::internals::{Codec, EdgeKind, Model};
use repartee_engine_api::{Command, Event, FinishReason, Respond, SessionError, SlicePolicy};
use repartee_engine_testkit::driven::submit;
use repartee_engine_testkit::generic::{Bed, Subject as _, config, respond};
use repartee_engine_testkit::text_family::{Cascade, TextOnly};

/// Submits a command that the session refuses; returns the error.
fn refusal(bed: &mut Bed<'_, TextOnly>, command: Command) -> SessionError {
    let session = bed.engine.open();
    submit(&session, Command::text(0, repartee_engine_api::Role::User, "hi"));
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
