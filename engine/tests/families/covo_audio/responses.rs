//! Responses of the engine equal those of the derivation: text, and the sound of its codes; the cache follows the history.

use std::sync::Arc;

use repartee_engine::internals::covo_audio::Template;
use repartee_engine::internals::{AudioRows, ElementValue, Message, MessageKind, PromptTemplate, Tokenizer};
use repartee_engine_api::{Command, Respond, Role, SessionHandle};
use repartee_engine_testkit::driven::{Driven, Response, serve, submit};

use super::*;

/// Instructions of the fixture.
const INSTRUCTIONS: &str = "be brief";
/// Ids of the fixture's vocabulary.
const VOCABULARY: usize = 464;

/// An engine on a copy of the fixture that takes the likeliest ids.
fn engine() -> (tempfile::TempDir, Driven) {
    let copy = copy(&checkpoint());
    std::fs::write(copy.path().join("generation_config.json"), r#"{"temperature": 0.0}"#).unwrap();
    let engine = serve(copy.path(), &settings(WINDOWS));
    (copy, engine)
}

/// A session with the fixture's first question.
fn asked(engine: &mut Driven, expected: &Expected, piece: usize) -> SessionHandle {
    let session = engine.open();
    submit(&session, Command::SetInstructions(INSTRUCTIONS.to_owned()));
    say(engine, &session, &expected.tensor("turn0.audio").0, 0, piece);
    session
}

fn say(engine: &mut Driven, session: &SessionHandle, sound: &[f32], item: u64, piece: usize) {
    for samples in sound.chunks(piece) {
        submit(session, Command::Append(samples.to_vec()));
        // Windows that are closed are encoded and prefilled.
        engine.settle();
    }
    submit(session, Command::Commit { item });
}

fn assert_equals(ours: &Response, expected: &Expected, run: &str) {
    assert_eq!(ours.text, expected.facts["runs"][run]["text"].as_str().unwrap(), "{run}");
    // Each code is 40 ms at 24 kHz.
    assert_eq!(ours.samples.len(), 960 * expected.ids(&format!("{run}.heard")).0.len(), "{run}");
    assert!(ours.samples.iter().any(|sample| sample.abs() > 0.01), "{run}");
}

#[test]
fn a_conversation_equals_the_derivations() {
    let expected = Expected::load(NAME);
    let mut sounds = Vec::new();
    for piece in [700, 9000] {
        let (_copy, mut engine) = engine();
        let session = asked(&mut engine, &expected, piece);
        let first = engine.respond(&session, Respond::new(0, 1)).unwrap();
        assert_equals(&first, &expected, RUNS[0]);
        // The second prompt has the first response's text and codes.
        say(&mut engine, &session, &expected.tensor("turn1.audio").0, 2, piece);
        let second = engine.respond(&session, Respond::new(1, 3)).unwrap();
        assert_equals(&second, &expected, RUNS[1]);
        sounds.push((first.samples, second.samples));
        drop(session);
        assert_eq!(engine.left_behind(), (0, 0));
    }
    assert!(sounds[0] == sounds[1], "the same bits for any split of the input");
}

#[test]
fn served_sound_is_that_of_the_windows() {
    let (expected, (_copy, mut engine)) = (Expected::load(NAME), engine());
    let session = asked(&mut engine, &expected, 9000);
    let response = engine.respond(&session, Respond { seed: 0, ..Respond::new(0, 1) }).unwrap();
    let mut model = model(&checkpoint(), WINDOWS);
    let latents = latents(&mut model, &expected.ids("turn0.heard").0);
    assert!(response.samples == samples(&mut model, &latents, 2), "the same bits as of the stages");
}

#[test]
fn rewinding_cuts_text_and_codes() {
    let (expected, (_copy, mut engine)) = (Expected::load(NAME), engine());
    let session = asked(&mut engine, &expected, 9000);
    let whole = engine.respond(&session, Respond::new(0, 1)).unwrap();
    submit(&session, Command::Delete { item: 1 });
    submit(&session, Command::text(2, Role::User, "the quick brown fox"));
    let other = engine.respond(&session, Respond { max_tokens: Some(2), ..Respond::new(1, 3) }).unwrap();
    assert_ne!(other.text, whole.text);
    submit(&session, Command::Delete { item: 3 });
    submit(&session, Command::Delete { item: 2 });
    let again = engine.respond(&session, Respond { seed: 0, ..Respond::new(0, 4) }).unwrap();
    assert_eq!(again.text, whole.text);
    assert!(again.samples == whole.samples, "the same bits as before");
}

#[test]
fn written_responses_have_no_sound() {
    let (expected, (_copy, mut engine)) = (Expected::load(NAME), engine());
    let session = asked(&mut engine, &expected, 9000);
    let respond = Respond { max_tokens: Some(6), audio: false, ..Respond::new(0, 1) };
    let written = engine.respond(&session, respond).unwrap();
    assert!(!written.text.is_empty() && written.samples.is_empty(), "{}", written.text);
    assert!(written.usage.output_text_tokens <= 6);
}

fn template() -> (Tokenizer, Template) {
    let checkpoint = open(&checkpoint());
    let tokenizer = Tokenizer::load(&checkpoint, VOCABULARY).unwrap();
    let template = Template::load(&checkpoint, &tokenizer, "default_female").unwrap();
    (tokenizer, template)
}

#[test]
fn prompts_equal_the_derivations() {
    let (expected, (tokenizer, template)) = (Expected::load(NAME), template());
    let text = |kind, text: &str| Message::text(kind, tokenizer.encode(text).unwrap());
    let heard = |run: &str| {
        let (rows, shape) = expected.tensor(&format!("{run}.rows"));
        Message::audio(vec![Arc::new(AudioRows { count: shape[0], rows })])
    };
    let mut said = Message { kind: MessageKind::Assistant, parts: Vec::new() };
    for id in expected.ids("turn0.said").0.into_iter().filter(|id| *id > 5) {
        match id.checked_sub(FIRST_CODE) {
            Some(code) => said.push_codes(Arc::from([code]), None),
            None => said.push_token(id),
        }
    }
    let mut history = vec![text(MessageKind::System, INSTRUCTIONS), heard(RUNS[0])];
    for run in RUNS {
        let id = |value: &ElementValue| match value {
            ElementValue::Token(id) => *id,
            ElementValue::Codes(codes) => FIRST_CODE + codes[0],
            ElementValue::Audio { .. } => AUDIO,
        };
        let prompt = template.render(&history, None, true);
        let ours: Vec<u32> = prompt.iter().map(|element| id(&element.value)).collect();
        assert_eq!(ours, expected.ids(&format!("{run}.prompt")).0, "{run}");
        history.extend([said.clone(), heard(RUNS[1])]);
    }
}

#[test]
fn the_sentence_follows_instructions_once() {
    let (tokenizer, template) = template();
    let system = |instructions: Option<&str>| {
        let message = instructions.map(|text| Message::text(MessageKind::System, tokenizer.encode(text).unwrap()));
        let prompt = template.render(&message.into_iter().collect::<Vec<_>>(), None, false);
        let ids = prompt.iter().filter_map(|element| match element.value {
            ElementValue::Token(id) => Some(id),
            _ => None,
        });
        tokenizer.decode(&ids.collect::<Vec<_>>())
    };
    let alone = system(None);
    assert!(alone.ends_with("default_female\n"), "{alone}");
    let sentence = alone.strip_prefix("system\n").unwrap();
    assert_eq!(system(Some("sing")), format!("system\nsing\n{sentence}"));
    assert_eq!(system(Some(sentence.trim_end())), alone, "said once");
}
