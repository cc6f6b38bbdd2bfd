//! Responses of the engine equal those of the derivation: text, and the sound of its codes; both caches follow the history.

use repartee_engine::internals::fun_audio_chat::{Template, TextIds};
use repartee_engine::internals::{AudioRows, Element, ElementValue, Message, MessageKind, PromptTemplate, Tokenizer};
use repartee_engine_api::{Command, Respond, Role, SessionHandle};
use repartee_engine_testkit::driven::{Driven, Response, serve, submit};

use super::*;

/// Instructions of the fixture.
const INSTRUCTIONS: &str = "be brief";
/// Ids of the fixture's vocabulary, with and without a token.
const VOCABULARY: usize = 310;
const SYSTEM: &str = "You are asked to generate both text and speech tokens at the same time.";

/// An engine on a copy of the fixture that takes the likeliest codes.
fn engine() -> (tempfile::TempDir, Driven) {
    let copy = copy(&checkpoint());
    std::fs::write(copy.path().join("generation_config.json"), r#"{"audio_temperature": 0.0}"#).unwrap();
    let engine = serve(copy.path(), &settings());
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
    for piece in [500, 9000] {
        let (_copy, mut engine) = engine();
        let session = asked(&mut engine, &expected, piece);
        let first = engine.respond(&session, Respond::new(0, 1)).unwrap();
        assert_equals(&first, &expected, RUNS[0]);
        // The second prompt has the first response's text, and the cache of its last position is not that of a response.
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
fn rewinding_cuts_both_caches() {
    let (expected, (_copy, mut engine)) = (Expected::load(NAME), engine());
    let session = asked(&mut engine, &expected, 9000);
    let whole = engine.respond(&session, Respond::new(0, 1)).unwrap();
    // A response that ends early, and one of another prompt, leave nothing in the head's cache.
    submit(&session, Command::Delete { item: 1 });
    submit(&session, Command::text(2, Role::User, "the quick brown fox"));
    let other = engine.respond(&session, Respond { max_tokens: Some(2), ..Respond::new(1, 3) }).unwrap();
    assert_ne!(other.samples, whole.samples);
    submit(&session, Command::Delete { item: 3 });
    submit(&session, Command::Delete { item: 2 });
    let again = engine.respond(&session, Respond { seed: 0, ..Respond::new(0, 4) }).unwrap();
    assert_eq!(again.text, whole.text);
    assert!(again.samples == whole.samples, "the same bits as before");
}

#[test]
fn sampled_positions_are_not_reused() {
    let mut model = load_model(&open(&checkpoint()), &settings()).unwrap();
    let stage = model.stages[0].as_mut();
    let prompt: Vec<Element> = (0..20).map(|at| Element::token(Role::User, 100 + at)).collect();
    let mut rewound = |elements: Vec<Element>, response: Option<ResponseParams>| {
        let (mut out, read) = (Outbox::new(), vec![false; elements.len()]);
        stage.accept(1, StageItem::Prompt { elements, read, response }, &mut out);
        while stage.runnable_rows(1).rows > 0 {
            let rows = stage.runnable_rows(1).rows;
            stage.launch(&[BatchEntry { slot: 1, rows }], &mut out);
            stage.collect(&mut out);
        }
        out.into_iter().find_map(|(_, item)| if let StageItem::Rewind { to } = item { Some(to) } else { None })
    };
    assert_eq!(rewound(prompt.clone(), Some(ResponseParams { max_tokens: 2, ..params() })), None);
    // The last position of the prompt has drawn codes in the head's cache, those of the response have them, too.
    let longer = |count: u32| prompt.iter().cloned().chain((0..count).map(|at| Element::token(Role::User, 200 + at)));
    assert_eq!(rewound(longer(5).collect(), None), Some(prompt.len() - 1));
    // Positions that were only prefilled are all found again.
    assert_eq!(rewound(longer(9).collect(), None), None);
}

#[test]
fn written_responses_have_no_mark_and_no_sound() {
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
    let ids = TextIds { audio: AUDIO, begin: BEGIN, end: END, silent: 7 };
    let template = Template::load(&checkpoint, &tokenizer, ids).unwrap();
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
    let said = expected.ids("turn0.said").0.into_iter().filter(|id| *id >= 8).collect();
    let mut history = vec![text(MessageKind::System, INSTRUCTIONS), heard(RUNS[0])];
    for run in RUNS {
        let id = |value: &ElementValue| if let ElementValue::Token(id) = value { *id } else { AUDIO };
        let prompt = template.render(&history, None, true);
        let ours: Vec<u32> = prompt.iter().map(|element| id(&element.value)).collect();
        assert_eq!(ours, expected.ids(&format!("{run}.prompt")).0, "{run}");
        history.extend([Message::text(MessageKind::Assistant, Clone::clone(&said)), heard(RUNS[1])]);
    }
}

#[test]
fn instructions_and_tools_follow_the_sentence() {
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
    assert_eq!(system(None), format!("system\n{SYSTEM}\n"));
    assert_eq!(system(Some("sing")), format!("system\n{SYSTEM} sing\n"));
    assert_eq!(system(Some(&format!("{SYSTEM} sing"))), format!("system\n{SYSTEM} sing\n"), "said once");
    let tools = template.tools().unwrap();
    assert!(tools.system("", &[]).starts_with("# Tools"));
    assert_eq!(tools.call_tokens().unwrap().open.1, "<tool_call>");
}
