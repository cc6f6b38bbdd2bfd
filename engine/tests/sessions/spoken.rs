//! Speech of a text: what is spoken for what is written, clause by clause, by a voice alone and in a cascade.

use repartee_engine::{EngineConfig, HandOff, SpokenTextConfig, StageConfig};
use repartee_engine_api::{Command, Event, FinishReason, Respond, Role, SessionHandle};
use repartee_engine_testkit::clause_family::{ClauseSpeech, PAUSE_FRAMES, echo_cascade, echo_model};
use repartee_engine_testkit::driven::{Driven, Response, drive, submit};
use repartee_engine_testkit::generic::{Subject as _, config};

const WRITTEN: &str = "**Salt** & pepper.";
const SPOKEN: &str = "Salt and pepper.";
/// Samples of a frame.
const FRAME: usize = 80;

/// Number of frames of these clauses: one for each byte, and a pause.
fn frames_of(clauses: &[&str]) -> usize {
    clauses.iter().map(|clause| clause.len() + PAUSE_FRAMES).sum()
}

fn written_form() -> EngineConfig {
    EngineConfig { spoken_text: SpokenTextConfig { enabled: false, ..SpokenTextConfig::default() }, ..config() }
}

fn voice(config: &EngineConfig) -> Driven {
    drive(ClauseSpeech { streamed: false }.model(config), config)
}

/// Asks for a spoken response to a text.
fn said(engine: &mut Driven, session: &SessionHandle, number: u64, text: &str) -> Response {
    submit(session, Command::text(2 * number, Role::User, text));
    // The first response of each session, so that equal texts have equal sound.
    engine.respond(session, Respond { seed: 7, ..Respond::new(number, 2 * number + 1) }).unwrap()
}

/// Response of a fresh engine to a text.
fn alone(mut engine: Driven, text: &str) -> Response {
    let session = engine.open();
    let response = said(&mut engine, &session, 0, text);
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
    response
}

#[test]
fn written_text_sounds_like_its_words() {
    let spoken = alone(voice(&written_form()), SPOKEN);
    assert_eq!(spoken.text, SPOKEN);
    for config in [config(), EngineConfig { hand_off: HandOff::FullPayload, ..config() }] {
        for engine in [voice(&config), drive(echo_cascade(&config), &config)] {
            let written = alone(engine, WRITTEN);
            assert_eq!(written.text, WRITTEN, "the caller gets the written form");
            assert!(written.samples == spoken.samples, "{} samples", written.samples.len());
        }
    }
    assert_ne!(alone(voice(&written_form()), WRITTEN).samples, spoken.samples, "as it is written");
}

/// Bytes of each clause, by the silence between them.
fn clause_lengths(samples: &[f32]) -> Vec<usize> {
    let frames = samples.chunks(FRAME).map(|frame| frame.iter().any(|sample| *sample != 0.0));
    let frames: Vec<bool> = frames.collect();
    frames.split(|speaks| !speaks).map(<[bool]>::len).filter(|length| *length > 0).collect()
}

#[test]
fn no_clause_tears_a_number() {
    let config = config();
    // A clause has at most two words, unless they belong together.
    for (written, clauses) in [
        ("It costs **$3.50**.", &["It", "costs", "three dollars and fifty cents."][..]),
        ("It is 2 km of wool.", &["It", "is", "two kilometers", "of wool."]),
    ] {
        let lengths: Vec<usize> = clauses.iter().map(|clause| clause.len()).collect();
        for engine in [voice(&config), drive(echo_cascade(&config), &config)] {
            assert_eq!(clause_lengths(&alone(engine, written).samples), lengths, "{written}");
        }
    }
}

#[test]
fn sound_begins_before_the_text_has_ended() {
    let mut engine = voice(&config());
    let session = engine.open();
    submit(&session, Command::Respond(Respond { streamed: true, ..Respond::new(0, 1) }));
    submit(&session, Command::StreamText { response: 0, text: "Well then, it is no".to_owned() });
    engine.settle();
    let events: Vec<Event> = std::iter::from_fn(|| session.try_next_event()).collect();
    let frames = events.iter().filter(|event| matches!(event, Event::Audio { .. })).count();
    assert_eq!(frames, frames_of(&["Well", "then,"]), "the next clause may go on");
    engine.send(&session, Command::EndText { response: 0 });
    let ended = std::iter::from_fn(|| session.try_next_event()).last();
    assert!(matches!(ended, Some(Event::SegmentFinished { reason: FinishReason::Stop, .. })), "{ended:?}");
}

#[test]
fn reasoning_is_neither_heard_nor_kept() {
    let config = config();
    let thought = "<think>Is 2 < 3? Yes.</think>\n\nYes, it is.";
    let plain = alone(drive(echo_cascade(&config), &config), "Yes, it is.");
    for (model, spoken) in [(echo_model(&config), false), (echo_cascade(&config), true)] {
        let mut engine = drive(model, &config);
        let session = engine.open();
        submit(&session, Command::text(0, Role::User, thought));
        let request = |number| Respond { audio: spoken, seed: 7, ..Respond::new(number, 10 + number) };
        let response = engine.respond(&session, request(0)).unwrap();
        assert_eq!(response.text, "Yes, it is.");
        assert_eq!(response.usage.output_text_tokens as usize, thought.len(), "all that was generated counts");
        if spoken {
            assert!(response.samples == plain.samples, "{} samples", response.samples.len());
        }
        let next = engine.respond(&session, request(1)).unwrap();
        assert_eq!(
            next.usage.input_text_tokens as usize,
            thought.len() + "Yes, it is.".len(),
            "the answer alone is kept"
        );
    }
}

#[test]
fn the_end_may_be_half_a_mark() {
    let config = config();
    let response = alone(drive(echo_cascade(&config), &config), "It is <thi");
    assert_eq!((response.text.as_str(), response.reason), ("It is <thi", Some(FinishReason::Stop)));
}

#[test]
fn text_around_a_tool_call_is_two_utterances() {
    let config = config();
    let call = "\u{1}{\"name\": \"find\", \"arguments\": {\"a\": 1}}\u{2}";
    for config in [config.clone(), EngineConfig { hand_off: HandOff::FullPayload, ..config }] {
        let response = alone(drive(echo_cascade(&config), &config), &format!("I count to 3{call}That is $5."));
        assert_eq!(response.text, "I count to 3That is $5.");
        assert_eq!(response.calls, [("find".to_owned(), "{\"a\": 1}".to_owned())]);
        // "three" ends before the call, and the clauses after it begin anew with a short one.
        let frames = frames_of(&["I", "count to", "three", "That", "is five", "dollars."]);
        assert_eq!(response.samples.len(), frames * FRAME);
    }
}

#[test]
fn words_before_a_call_are_heard_meanwhile() {
    let config = config();
    let mut engine = drive(echo_cascade(&config), &config);
    let session = engine.open();
    // Longer than its speech takes.
    let arguments = "x".repeat(400);
    let text = format!("I count to 3\u{1}{{\"name\": \"find\", \"arguments\": {{\"a\": \"{arguments}\"}}}}\u{2}");
    submit(&session, Command::text(0, Role::User, &text));
    submit(&session, Command::Respond(Respond::new(0, 1)));
    let mut frames = 0;
    loop {
        engine.ticks(1);
        let mut ended = false;
        while let Some(event) = session.try_next_event() {
            frames += usize::from(matches!(event, Event::Audio { .. }));
            ended |= matches!(event, Event::SegmentFinished { .. });
        }
        if frames == frames_of(&["I", "count to", "three"]) {
            assert!(!ended, "everything is heard while the call is written");
            return;
        }
        assert!(!ended, "the response ends after {frames} frames");
    }
}

#[test]
fn clauses_are_made_by_their_deadlines() {
    // A step of the voice has frames of one response alone.
    let one = StageConfig { batch_rows: Some(4), ..StageConfig::default() };
    let config = EngineConfig { stages: [("clause_voice".to_owned(), one)].into(), ..config() };
    let mut engine = voice(&config);
    let [early, late] = [0, 1].map(|_| {
        let session = engine.open();
        engine.ticks(1);
        session
    });
    let ask = |session: &SessionHandle, text: &str| {
        submit(session, Command::text(0, Role::User, text));
        submit(session, Command::Respond(Respond::new(0, 1)));
    };
    let frames = |session: &SessionHandle| {
        let events = std::iter::from_fn(|| session.try_next_event());
        events.filter(|event| matches!(event, Event::Audio { .. })).count()
    };
    ask(&early, &"many words ".repeat(60));
    let mut ahead = 0;
    for _ in 0..60 {
        engine.ticks(1);
        ahead += frames(&early);
    }
    assert!(ahead > 100, "{ahead} frames, a second of sound, wait to be played");
    ask(&late, "some words in a few clauses");
    // Its clauses are due before those that play in a second.
    let mut tick = || {
        engine.ticks(1);
        (frames(&early), frames(&late))
    };
    let order: Vec<(usize, usize)> = (0..40).map(|_| tick()).collect();
    let first = order.iter().position(|(_, late)| *late > 0).unwrap();
    let last = order.iter().rposition(|(_, late)| *late > 0).unwrap();
    assert!(first < 5 && last > first, "{order:?}");
    assert!(order[first..=last].iter().filter(|(early, _)| *early > 0).count() <= 1, "{order:?}");
    assert!(order[last + 1..].iter().any(|(early, _)| *early > 0), "{order:?}");
}
