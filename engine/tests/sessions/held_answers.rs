//! Answers that are held to a form, of a small model whose logits are arbitrary: the form alone makes them fit.

#[path = "../../forms/tests/schemas/generated.rs"]
mod generated;
#[path = "../../forms/tests/schemas/validator.rs"]
mod validator;

use std::sync::Arc;
use std::time::Duration;

use repartee_engine::internals::{
    AudioRows, Element, Message, Model, PromptTemplate, ReasoningTokens, ToolCallTokens, ToolTemplate,
};
use repartee_engine_api::{
    AnswerForm, Command, FinishReason, JsonSchema, Respond, Role, Sampling, SessionError, SessionHandle, Tool,
    WakeSignal,
};
use repartee_engine_testkit::driven::{Driven, Response, drive, serve, submit};
use repartee_engine_testkit::folder;
use repartee_engine_testkit::generic::config;
use repartee_forms::Grammar;
use repartee_spoken::ReasoningMarks;
use serde_json::Value;

/// Number of schemas.
const SCHEMAS: u64 = 500;
/// Most tokens of an answer.
const MOST: u32 = 400;
/// Every token as likely as the model says.
const SAMPLING: Sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };

/// A model with a talker.
fn model() -> Driven {
    serve(&folder("dense").join("checkpoint"), &config())
}

/// The same, with a template of calls, and one that opens reasoning text if `reasons`.
fn calling_model(reasons: bool) -> Driven {
    let served = repartee_engine::internals::Checkpoint::open(repartee_engine::Source::Folder(
        folder("dense").join("checkpoint"),
    ));
    let model = repartee_engine::internals::load_model(&served.unwrap(), &config()).unwrap();
    // Control characters, which no JSON has, as the vocabulary spells them.
    let mark = |spelled: &str, text: &str| (model.tokenizer.token_id(spelled).unwrap(), text.to_owned());
    let tokens = ToolCallTokens { open: mark("\u{101}", "\u{1}"), close: mark("\u{102}", "\u{2}") };
    let opening = if reasons { model.tokenizer.encode("<think>\n").unwrap() } else { Vec::new() };
    let reasoning = ReasoningTokens { marks: ReasoningMarks::default(), open: None, close: None };
    let template = Calling { own: model.template, tokens, opening, reasoning: reasons.then_some(reasoning) };
    drive(Model { template: Box::new(template), ..model }, &config())
}

/// A template with calls between marks.
struct Calling {
    own: Box<dyn PromptTemplate>,
    tokens: ToolCallTokens,
    opening: Vec<u32>,
    reasoning: Option<ReasoningTokens>,
}

impl PromptTemplate for Calling {
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let mut prompt = self.own.render(history, open, respond);
        prompt.extend(self.opening.iter().filter(|_| respond).map(|id| Element::token(Role::Assistant, *id)));
        prompt
    }
    fn tools(&self) -> Option<&dyn ToolTemplate> {
        Some(self)
    }
    fn reasoning(&self) -> Option<&ReasoningTokens> {
        self.reasoning.as_ref()
    }
}

impl ToolTemplate for Calling {
    fn system(&self, instructions: &str, _: &[Tool]) -> String {
        instructions.to_owned()
    }
    fn call(&self, name: &str, arguments: &str) -> String {
        format!("\u{1}\n{{\"name\": {}, \"arguments\": {arguments}}}\n\u{2}", Value::from(name))
    }
    fn result(&self, output: &str) -> String {
        output.to_owned()
    }
    fn call_tokens(&self) -> Option<&ToolCallTokens> {
        Some(&self.tokens)
    }
}

fn schema(text: &str) -> AnswerForm {
    let (name, description) = ("answer".to_owned(), String::new());
    AnswerForm::JsonSchema(JsonSchema { name, description, schema: text.to_owned(), strict: Some(true) })
}

/// Request of a text in a form.
fn request(response: u64, form: AnswerForm) -> Respond {
    let (audio, max_tokens, sampling) = (false, Some(MOST), Some(SAMPLING));
    Respond { form, audio, max_tokens, sampling, seed: response, ..Respond::new(response, 1_000 + response) }
}

fn asked(engine: &Driven, text: &str) -> SessionHandle {
    let session = engine.open();
    submit(&session, Command::text(0, Role::User, text));
    session
}

fn tool(name: &str, schema: &Value) -> Tool {
    Tool { name: name.to_owned(), description: "Finds.".to_owned(), parameters: schema.to_string() }
}

#[test]
fn any_answer_fits_its_schema() {
    let mut engine = model();
    let (mut skipped, mut ended) = (0, 0);
    for (seed, of) in (0..).zip((0..SCHEMAS).map(generated::schema).chain(generated::published())) {
        if Grammar::json(&of.to_string()).unwrap().shortest() > MOST {
            skipped += 1;
            continue;
        }
        let session = asked(&engine, "where are you");
        let answer = engine.respond(&session, request(seed, schema(&of.to_string()))).unwrap();
        let value: Value =
            serde_json::from_str(&answer.text).unwrap_or_else(|error| panic!("{error}: {}", answer.text));
        assert!(validator::fits(&of, &of, &value), "{} does not fit {of}", answer.text);
        ended += u32::from(answer.reason == Some(FinishReason::Stop));
    }
    assert!(skipped < 20 && ended > 300, "{skipped} are too long, {ended} end");
    assert_eq!(engine.left_behind(), (0, 0));
}

#[test]
fn any_forced_call_fits_its_function() {
    let mut engine = calling_model(false);
    for seed in 0..60 {
        let of = generated::schema(seed);
        if Grammar::json(&of.to_string()).unwrap().shortest() > MOST / 2 {
            continue;
        }
        let session = asked(&engine, "where are you");
        let tools = vec![tool("find", &of), tool("set_colour", &of)];
        let form = if seed % 2 == 0 { AnswerForm::Calls } else { AnswerForm::Call("set_colour".to_owned()) };
        // A call is not spoken.
        let called = Respond { tools: Some(tools), audio: true, ..request(seed, form) };
        let Response { text, samples, calls, .. } = engine.respond(&session, called).unwrap();
        assert_eq!((text.as_str(), samples.len(), calls.len()), ("", 0, 1), "{calls:?}");
        let (name, arguments) = &calls[0];
        assert!(name == "set_colour" || name == "find" && seed % 2 == 0, "{name}");
        let value: Value = serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{error}: {arguments}"));
        assert!(validator::fits(&of, &of, &value), "{arguments} does not fit {of}");
    }
}

#[test]
fn reasoning_that_a_prompt_opens_is_closed() {
    let mut engine = calling_model(true);
    let session = asked(&engine, "where are you");
    let answer = engine.respond(&session, request(1, AnswerForm::JsonObject)).unwrap();
    assert!(serde_json::from_str::<Value>(&answer.text).unwrap().is_object(), "{}", answer.text);
}

#[test]
fn neighbours_of_held_answers_are_unmoved() {
    let free =
        |number: u64| Respond { audio: number % 2 == 1, max_tokens: Some(40), ..request(number, AnswerForm::Free) };
    let texts = ["and what do you do", "tell me more"];
    let alone: Vec<Response> = (0..2)
        .map(|number| {
            let mut engine = model();
            let session = asked(&engine, texts[number as usize]);
            engine.respond(&session, free(number)).unwrap()
        })
        .collect();
    let mut engine = model();
    let sessions = texts.map(|text| asked(&engine, text));
    let held = asked(&engine, "where are you");
    let of = r#"{"type": "object", "properties": {"a": {"type": "string", "minLength": 60}}, "required": ["a"]}"#;
    submit(&held, Command::Respond(request(7, schema(of))));
    for (number, session) in (0..).zip(&sessions) {
        submit(session, Command::Respond(free(number)));
    }
    let beside: Vec<Response> =
        (0..).zip(&sessions).map(|(number, session)| engine.listen(session, number).unwrap()).collect();
    assert_eq!(beside, alone);
    let answer = engine.listen(&held, 7).unwrap();
    assert!(serde_json::from_str::<Value>(&answer.text).is_ok(), "{}", answer.text);
}

#[test]
fn a_wrong_form_fails_its_response_alone() {
    let mut engine = calling_model(false);
    let session = asked(&engine, "where are you");
    let refused = |engine: &mut Driven, request: Respond| match engine.respond(&session, request) {
        Err(SessionError::BadForm(message)) => message,
        other => panic!("{other:?}"),
    };
    let pattern = refused(&mut engine, request(1, schema(r#"{"type": "string", "pattern": "a"}"#)));
    assert!(pattern.contains("`pattern`"), "{pattern}");
    let never = refused(&mut engine, request(2, schema(r##"{"anyOf": [{"$ref": "#"}]}"##)));
    assert!(never.contains("no value"), "{never}");
    let spoken = refused(&mut engine, Respond { audio: true, ..request(3, AnswerForm::JsonObject) });
    assert!(spoken.contains("not spoken"), "{spoken}");
    let unknown = refused(&mut engine, Respond { tools: Some(Vec::new()), ..request(4, AnswerForm::Calls) });
    assert!(unknown.contains("no such function"), "{unknown}");
    let answer = engine.respond(&session, request(5, AnswerForm::JsonObject)).unwrap();
    assert!(serde_json::from_str::<Value>(&answer.text).unwrap().is_object());
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
}

#[test]
fn a_form_is_read_beside_the_engine() {
    let mut engine = model();
    let (wake, woken) = WakeSignal::new();
    engine.scheduler.read_forms_on_thread(wake);
    let session = asked(&engine, "where are you");
    // Whoever goes away leaves nothing behind.
    let gone = asked(&engine, "tell me more");
    engine.send(&gone, Command::Respond(request(1, AnswerForm::JsonObject)));
    drop(gone);
    submit(&session, Command::Respond(request(2, AnswerForm::JsonObject)));
    let mut read = Response::default();
    loop {
        engine.settle();
        let mut events = std::iter::from_fn(|| session.try_next_event());
        if events.any(|event| read.take(2, event).unwrap()) {
            break;
        }
        woken.recv_timeout(Duration::from_secs(60)).expect("the reader wakes the engine");
    }
    assert!(serde_json::from_str::<Value>(&read.text).unwrap().is_object(), "{}", read.text);
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
}
