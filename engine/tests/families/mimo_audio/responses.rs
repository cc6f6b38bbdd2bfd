//! Responses of the engine equal those of the derivation: text and patches as they are drawn, with own speech in later prompts.

use std::sync::Arc;

use repartee_engine::internals::mimo_audio::Template;
use repartee_engine::internals::{
    AudioRows, Element, ElementValue, Message, MessageKind, MessagePart, PromptTemplate, Tokenizer,
};
use repartee_engine_api::{Command, Respond, Role, Transcribe};
use repartee_engine_testkit::driven::{Driven, Response, serve, submit};

use super::*;

/// Instructions of the fixture.
const INSTRUCTIONS: &str = "be brief and kind";
/// Ids of the fixture's vocabulary, with and without a token.
const VOCABULARY: usize = 304;

/// An engine on a copy of the fixture that takes the likeliest text and codes.
fn engine() -> (tempfile::TempDir, Driven) {
    let copy = copy(&checkpoint());
    let greedy = r#"{"text_temperature": 0.0, "audio_temperature": 0.0}"#;
    std::fs::write(copy.path().join("generation_config.json"), greedy).unwrap();
    let engine = serve(copy.path(), &settings(WINDOWS));
    (copy, engine)
}

fn assert_equals(ours: &Response, expected: &Expected, run: &str) {
    assert_eq!(ours.text, expected.facts["runs"][run]["text"].as_str().unwrap());
    let off = difference(&ours.samples, &expected.tensor(&format!("{run}.samples")).0);
    assert!(off <= TOLERANCE, "{run}: {off}, {} samples", ours.samples.len());
}

#[test]
fn a_conversation_equals_the_derivations() {
    let (expected, (_copy, mut engine)) = (Expected::load(NAME), engine());
    let session = engine.open();
    submit(&session, Command::SetInstructions(INSTRUCTIONS.to_owned()));
    for samples in expected.tensor("turn0.audio").0.chunks(1000) {
        submit(&session, Command::Append(samples.to_vec()));
    }
    submit(&session, Command::Commit { item: 0 });
    let first = engine.respond(&session, Respond { max_tokens: Some(6), ..Respond::new(0, 1) }).unwrap();
    assert_equals(&first, &expected, RUNS[0]);
    // The second prompt has the first response, its codes included.
    submit(&session, Command::text(2, Role::User, "the quick brown fox"));
    let second = engine.respond(&session, Respond { max_tokens: Some(4), ..Respond::new(1, 3) }).unwrap();
    assert_equals(&second, &expected, RUNS[1]);
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
}

#[test]
fn unspoken_responses_have_the_spoken_text() {
    let (expected, (_copy, mut engine)) = (Expected::load(NAME), engine());
    let session = engine.open();
    submit(&session, Command::SetInstructions(INSTRUCTIONS.to_owned()));
    submit(&session, Command::Append(expected.tensor("turn0.audio").0));
    submit(&session, Command::Commit { item: 0 });
    let respond = Respond { max_tokens: Some(6), audio: false, ..Respond::new(0, 1) };
    let written = engine.respond(&session, respond).unwrap();
    assert_eq!(written.text, expected.facts["runs"]["turn0"]["text"].as_str().unwrap());
    assert!(written.samples.is_empty());
    // A transcript is text, too.
    let request = Transcribe::new(1, 0);
    submit(&session, Command::Transcribe(request));
    assert!(engine.listen(&session, 1).unwrap().samples.is_empty());
}

fn template() -> (Tokenizer, Template) {
    let checkpoint = open(&checkpoint());
    let tokenizer = Tokenizer::load(&checkpoint, VOCABULARY).unwrap();
    let template = Template::load(&checkpoint, &tokenizer, FRAMES).unwrap();
    (tokenizer, template)
}

#[test]
fn prompts_equal_the_derivations() {
    let (expected, (tokenizer, template)) = (Expected::load(NAME), template());
    let message = |kind, text: &str| Message::text(kind, tokenizer.encode(text).unwrap());
    let mut answer = Message { kind: MessageKind::Assistant, parts: Vec::new() };
    for position in positions(&expected, RUNS[0], "said") {
        match position {
            Position::Text(id) => answer.push_token(id),
            Position::Patch(codes) => {
                codes.chunks(codes.len() / FRAMES).for_each(|frame| answer.push_codes(Arc::from(frame), None));
            }
        }
    }
    let (rows, shape) = expected.tensor("turn0.rows");
    let heard = Message::audio(vec![Arc::new(AudioRows { count: shape[0], rows })]);
    let mut history = vec![message(MessageKind::System, INSTRUCTIONS), heard];
    for run in RUNS {
        let prompt = template.render(&history, None, true);
        let reference = positions(&expected, run, "prompt");
        assert_eq!(prompt.len(), reference.len(), "{run}");
        for (at, (ours, theirs)) in prompt.iter().zip(&reference).enumerate() {
            let equal = match (&ours.value, theirs) {
                (ElementValue::Token(id), Position::Text(other)) => id == other,
                (ElementValue::Codes(codes), Position::Patch(other)) => codes[..] == other[..],
                (ElementValue::Audio { .. }, Position::Patch(_)) => true,
                _ => false,
            };
            assert!(equal, "{run}, position {at}: {ours:?} and {theirs:?}");
        }
        history.extend([answer.clone(), message(MessageKind::User, "the quick brown fox")]);
    }
}

/// Ids of pieces: marks by their names, `#` for a row of audio and `*` for a patch, other text as it is read.
fn spelt(tokenizer: &Tokenizer, pieces: &[&str]) -> Vec<u32> {
    let ids = |piece: &&str| match *piece {
        "#" => vec![1000],
        "*" => vec![1001],
        mark if mark.starts_with('<') => vec![tokenizer.token_id(mark).unwrap()],
        text => tokenizer.encode(text).unwrap(),
    };
    pieces.iter().flat_map(ids).collect()
}

fn ids(prompt: &[Element]) -> Vec<u32> {
    let id = |element: &Element| match element.value {
        ElementValue::Token(id) => id,
        ElementValue::Audio { .. } => 1000,
        ElementValue::Codes(_) => 1001,
    };
    prompt.iter().map(id).collect()
}

#[test]
fn prompts_have_the_published_forms() {
    let (tokenizer, template) = template();
    let text = |kind, text: &str| Message::text(kind, tokenizer.encode(text).unwrap());
    let heard = || Message::audio(vec![Arc::new(AudioRows { count: 1, rows: vec![0.0] })]);
    let (system, user) = (MessageKind::System, MessageKind::User);
    // A transcript: the question stands behind the audio, and thoughts without content before the answer.
    let transcript = template.transcription().unwrap();
    let asked = template.render(&[text(system, transcript), heard()], None, true);
    let written = ["<|im_start|>", "user\n", "<|sosp|>", "#", "<|eosp|>", transcript, "<|im_end|>", "\n"];
    let opened = ["<|im_start|>", "assistant\n", "<think>", "\n\n", "</think>", "\n"];
    assert_eq!(ids(&asked), spelt(&tokenizer, &[&written[..], &opened].concat()));
    // Instructions without a question, and audio that is not committed yet.
    let alone = template.render(&[text(system, "be brief")], None, true);
    let written = ["<|im_start|>", "user\n", "be brief", "\n\n", "<|im_end|>", "\n"];
    let opened = ["<|im_start|>", "assistant\n", "<|sostm|>"];
    assert_eq!(ids(&alone), spelt(&tokenizer, &[&written[..], &opened].concat()));
    let open = template.render(&[text(system, "be brief")], Some(&[]), false);
    assert_eq!(ids(&open), spelt(&tokenizer, &["<|im_start|>", "user\n", "be brief", "\n\n", "<|sosp|>"]));
    // Text alone, with its end, and speech of which the last frames fill no patch.
    let end = tokenizer.token_id("<|eot|>").unwrap();
    let mut said = text(MessageKind::Assistant, "sing");
    said.push_token(end);
    let answered = |said: &Message| ids(&template.render(&[text(user, "now"), said.clone()], None, false));
    let asked = ["<|im_start|>", "user\n", "now", "<|im_end|>", "\n", "<|im_start|>", "assistant\n"];
    let written = [&asked[..], &["sing", "<|im_end|>", "\n"]].concat();
    assert_eq!(answered(&said), spelt(&tokenizer, &written), "text alone");
    said.parts.push(MessagePart::Speech(vec![Arc::from([1; 8]); FRAMES + 3]));
    let written = [&asked[..], &["<|sostm|>", "sing", "<|eot|>", "*", "<|eostm|>", "<|im_end|>", "\n"]].concat();
    assert_eq!(answered(&said), spelt(&tokenizer, &written));
}
