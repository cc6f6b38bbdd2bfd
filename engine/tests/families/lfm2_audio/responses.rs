//! Responses of the engine equal those of the reference: text and speech in turn and in sequence, with own speech in later
//! prompts.

use std::sync::Arc;

use repartee_engine::EngineConfig;
use repartee_engine::internals::lfm2_audio::Template;
use repartee_engine::internals::{
    AudioRows, Element, ElementValue, Message, MessageKind, MessagePart, PromptTemplate, Tokenizer,
};
use repartee_engine_api::{Command, FinishReason, Respond, Role, Transcribe};
use repartee_engine_testkit::driven::{Driven, serve, submit};

use super::*;

/// A copy of the fixture that takes the likeliest codes.
fn greedy() -> tempfile::TempDir {
    let copy = copy(&checkpoint());
    std::fs::write(copy.path().join("generation_config.json"), r#"{"audio_temperature": 0.0}"#).unwrap();
    copy
}

fn engine() -> (tempfile::TempDir, Driven) {
    let copy = greedy();
    let engine = serve(copy.path(), &EngineConfig { sessions: 2, session_tokens: 1024, ..EngineConfig::default() });
    (copy, engine)
}

/// Asserts that samples begin as the reference's. Its last ones are of a transform that ends there.
fn assert_begins(ours: &[f32], reference: &[f32], cut: usize) {
    let whole = reference.len() - cut;
    assert!(ours.len() >= whole, "{} samples of {}", ours.len(), reference.len());
    let off = difference(&ours[..whole], &reference[..whole]);
    assert!(off <= TOLERANCE, "{off}");
}

#[test]
fn a_conversation_equals_the_references() {
    let (expected, (_copy, mut engine)) = (Expected::load(NAME), engine());
    let session = engine.open();
    let samples = expected.tensor("turn0.audio").0;
    for samples in samples.chunks(4000) {
        submit(&session, Command::Append(samples.to_vec()));
    }
    submit(&session, Command::Commit { item: 0 });
    let first = engine.respond(&session, Respond { max_tokens: Some(9), ..Respond::new(0, 1) }).unwrap();
    assert_eq!(first.text, expected.facts["runs"]["turn0"]["text"].as_str().unwrap());
    // The reference's response is cut where its speech ends; what is drawn next is no end.
    assert_eq!(first.reason, Some(FinishReason::Length));
    let waveform = expected.tensor("turn0.waveform").0;
    assert_eq!(first.samples.len(), waveform.len());
    assert_begins(&first.samples, &waveform, 0);
    // The second prompt has the first response, its codes included.
    submit(&session, Command::text(2, Role::User, "the quick brown fox"));
    let second = engine.respond(&session, Respond { max_tokens: Some(64), ..Respond::new(1, 3) }).unwrap();
    let text = expected.facts["runs"]["turn1"]["text"].as_str().unwrap();
    assert!(second.text.starts_with(text), "{:?} does not begin with {text:?}", second.text);
    assert_begins(&second.samples, &expected.tensor("turn1.waveform").0, 48);
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
}

#[test]
fn speech_in_sequence_equals_the_references() {
    let (expected, (_copy, mut engine)) = (Expected::load(NAME), engine());
    let session = engine.open();
    submit(&session, Command::SetInstructions("Perform TTS. Use the US male voice.".to_owned()));
    submit(&session, Command::text(0, Role::User, "the lazy dog sings"));
    let said = engine.respond(&session, Respond { max_tokens: Some(16), ..Respond::new(0, 1) }).unwrap();
    assert_begins(&said.samples, &expected.tensor("speech.waveform").0, 48);
}

#[test]
fn a_transcript_equals_the_references() {
    let (expected, (_copy, mut engine)) = (Expected::load(NAME), engine());
    let session = engine.open();
    submit(&session, Command::Append(expected.tensor("transcript.audio").0));
    submit(&session, Command::Commit { item: 0 });
    let request = Transcribe::new(0, 0);
    submit(&session, Command::Transcribe(request));
    let heard = engine.listen(&session, 0).unwrap();
    let text = expected.facts["runs"]["transcript"]["text"].as_str().unwrap();
    assert!(heard.text.starts_with(text.trim_end()), "{:?} does not begin with {text:?}", heard.text);
}

#[test]
fn prompts_equal_the_references() {
    let expected = Expected::load(NAME);
    let checkpoint = open(&checkpoint());
    let model = load(&Cpu::default(), &super::checkpoint());
    let tokenizer = Tokenizer::load(&checkpoint, model.config.lfm.vocab_size).unwrap();
    let end = model.config.entries as u32 - 1;
    let template = Template::load(&checkpoint, &tokenizer, (model.config.turns, end, model.config.codebooks)).unwrap();
    let (_, said) = positions(&expected, "turn0", model.config.codebooks);
    let mut answer = Message { kind: MessageKind::Assistant, parts: Vec::new() };
    for position in &said {
        match position {
            Position::Text(id) => answer.push_token(*id),
            // The history lacks the end of the speech.
            Position::Frame(codes) if codes[0] == end => {}
            Position::Frame(codes) => answer.push_codes(Arc::from(&codes[..]), None),
            Position::Heard(_) => unreachable!("a response hears nothing"),
        }
    }
    let (rows, shape) = expected.tensor("turn0.encoded");
    let heard = Message::audio(vec![Arc::new(AudioRows { count: shape[0], rows })]);
    let question = Message::text(MessageKind::User, tokenizer.encode("the quick brown fox").unwrap());
    let prompt = template.render(&[heard, answer, question], None, true);
    let (reference, _) = positions(&expected, "turn1", model.config.codebooks);
    assert_eq!(prompt.len(), reference.len());
    for (at, (ours, theirs)) in prompt.iter().zip(&reference).enumerate() {
        let equal = match (&ours.value, theirs) {
            (ElementValue::Token(id), Position::Text(other)) => id == other,
            (ElementValue::Audio { row, .. }, Position::Heard(other)) => row == other,
            (ElementValue::Codes(codes), Position::Frame(other)) => codes[..] == other[..],
            _ => false,
        };
        assert!(equal, "position {at}: {ours:?} and {theirs:?}");
    }
}

#[test]
fn instructions_ask_for_speech_in_turn() {
    let checkpoint = open(&checkpoint());
    let tokenizer = Tokenizer::load(&checkpoint, 420).unwrap();
    let template = Template::load(&checkpoint, &tokenizer, ((6, 12), 32, 8)).unwrap();
    let written = |text: &str| {
        let message = Message::text(MessageKind::System, tokenizer.encode(text).unwrap());
        let ids: Vec<u32> = template
            .render(&[message], None, false)
            .iter()
            .filter_map(|element| if let ElementValue::Token(id) = element.value { Some(id) } else { None })
            .collect();
        tokenizer.decode(&ids).replace('\n', "|")
    };
    let sentence = "Respond with interleaved text and audio.";
    assert_eq!(written("Sing."), format!("system|Sing. {sentence}|"));
    assert_eq!(written(""), format!("system|{sentence}|"));
    for whole in [
        sentence,
        "Sing. Respond with interleaved text and audio.",
        "Perform ASR.",
        "Perform TTS. Use the UK male voice.",
    ] {
        assert_eq!(written(whole), format!("system|{whole}|"));
    }
}

/// Words without speech stand as they are, and a cut response has no end.
#[test]
fn cut_responses_are_written_as_said() {
    let checkpoint = open(&checkpoint());
    let tokenizer = Tokenizer::load(&checkpoint, 420).unwrap();
    let template = Template::load(&checkpoint, &tokenizer, ((6, 12), 32, 8)).unwrap();
    let frame: Arc<[u32]> = Arc::from([1; 8]);
    let end: Arc<[u32]> = Arc::from([32; 8]);
    let written = |parts: Vec<MessagePart>| {
        let answer = Message { kind: MessageKind::Assistant, parts };
        let prompt = template.render(&[answer], None, false);
        let kind = |element: &Element| match &element.value {
            ElementValue::Token(250) => 't',
            ElementValue::Token(130) => 'E',
            ElementValue::Codes(codes) if *codes == end => 'e',
            ElementValue::Codes(_) => 'f',
            _ => '.',
        };
        prompt
            .iter()
            .filter(|element| element.role == Role::Assistant)
            .map(kind)
            .collect::<String>()
            .trim_matches('.')
            .to_owned()
    };
    let text = |count: usize| MessagePart::Text(vec![250; count]);
    let ended = |count: usize| MessagePart::Text([vec![250; count], vec![130]].concat());
    let speech = |count: usize| MessagePart::Speech(vec![Arc::clone(&frame); count]);
    assert_eq!(written(vec![text(9)]), "ttttttttt", "text alone");
    assert_eq!(written(vec![text(6), speech(5)]), "ttttttfffff", "cut within its speech");
    assert_eq!(written(vec![text(6), speech(12), text(2)]), "ttttttfffffffffffftt");
    assert_eq!(written(vec![text(6), speech(2), text(2)]), "ttttttffett", "the speech has ended early");
    assert_eq!(written(vec![ended(3), speech(14)]), "tttEffffffffffffffe");
}
