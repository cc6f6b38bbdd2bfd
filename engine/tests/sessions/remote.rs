//! A language model outside of the engine: text as it arrives, failures, calls, and the conversation that it gets.

use repartee_engine::EngineConfig;
use repartee_engine_api::{
    Command, Event, FinishReason, MessageContent, RemoteCall, RemoteEnd, RemoteEvent, RemoteFailure, RemoteFailureKind,
    RemoteMessage, RemoteUsage, Respond, Role, Sampling, SessionError, SessionHandle, Tool,
};
use repartee_engine_testkit::driven::{Driven, Response, drive, submit};
use repartee_engine_testkit::generic::config;
use repartee_engine_testkit::remote_family::{ScriptedThinker, model};

const SORRY: &str = "sorry, ask me again";

/// An engine with a scripted language model, and a session that asked a question.
struct Talk {
    engine: Driven,
    thinker: ScriptedThinker,
    session: SessionHandle,
    /// Number of responses so far.
    asked: u64,
}

impl Talk {
    fn new(voice: bool) -> Self {
        Self::with(voice, &config())
    }

    fn with(voice: bool, config: &EngineConfig) -> Self {
        let thinker = ScriptedThinker::default();
        let model = model(std::sync::Arc::new(thinker.clone()), Some(SORRY), voice, config);
        let engine = drive(model, config);
        let session = engine.open();
        Self { engine, thinker, session, asked: 0 }
    }

    /// Asks a question; returns the number of its response.
    fn ask(&mut self, audio: bool) -> u64 {
        let number = self.asked;
        self.asked += 1;
        submit(&self.session, Command::text(10 + number, Role::User, format!("question {number}")));
        submit(&self.session, Command::Respond(Respond { audio, ..Respond::new(number, 100 + number) }));
        self.engine.settle();
        number
    }

    fn listen(&mut self, number: u64) -> Result<Response, SessionError> {
        self.engine.listen(&self.session, number)
    }

    /// Asks a question and reads its answer.
    fn answer(&mut self, audio: bool) -> Result<Response, SessionError> {
        let number = self.ask(audio);
        self.listen(number)
    }

    /// Asks one more question, which is answered; ends the session, and checks that nothing is left.
    fn goes_on(mut self, audio: bool) {
        self.thinker.answer("all is well");
        let next = self.answer(audio).unwrap();
        assert_eq!(
            (&*next.text, next.reason, next.samples.is_empty()),
            ("all is well", Some(FinishReason::Stop), !audio)
        );
        drop(self.session);
        assert_eq!((self.engine.left_behind(), self.thinker.open()), ((0, 0), 0));
        assert!(self.thinker.events.lock().unwrap().is_empty(), "no answer is read beyond its end");
    }
}

fn text(text: &str) -> RemoteEvent {
    RemoteEvent::Text(text.to_owned())
}

fn failure() -> RemoteEvent {
    let message = "the server is late".to_owned();
    RemoteEvent::Failed(RemoteFailure { kind: RemoteFailureKind::Late, message })
}

fn call(name: &str, arguments: &str) -> RemoteEvent {
    RemoteEvent::Call { name: name.to_owned(), arguments: arguments.to_owned() }
}

fn user(text: &str) -> RemoteMessage {
    RemoteMessage::User(text.to_owned())
}

fn assistant(text: &str) -> RemoteMessage {
    RemoteMessage::Assistant { text: text.to_owned(), calls: Vec::new() }
}

#[test]
fn text_is_spoken_as_it_arrives() {
    let mut talk = Talk::new(true);
    let number = talk.ask(true);
    assert!(talk.session.try_next_event().is_none());
    let mut read = Response::default();
    for (piece, whole) in
        [("the dog and ", "the dog and "), ("the fox are h\u{e9}re. ", "the dog and the fox are h\u{e9}re. ")]
    {
        talk.thinker.say([text(piece)]);
        talk.engine.settle();
        while let Some(event) = talk.session.try_next_event() {
            assert!(!read.take(number, event).unwrap());
        }
        assert_eq!(read.text, whole);
    }
    assert!(!read.samples.is_empty(), "speech before the end of the text");
    talk.thinker.say([RemoteEvent::Finished(RemoteEnd::Stop)]);
    assert_eq!(talk.listen(number).unwrap().reason, Some(FinishReason::Stop));
    talk.goes_on(true);
}

#[test]
fn failures_are_spoken_once() {
    // Before any text, and within it.
    for (before, said) in [
        ("", SORRY.to_owned()),
        ("the dog is", format!("the dog is\u{2026} {SORRY}")),
        ("the dog is. ", format!("the dog is. {SORRY}")),
        ("the dog!", format!("the dog! {SORRY}")),
    ] {
        let mut talk = Talk::new(true);
        talk.thinker.say((!before.is_empty()).then(|| text(before)));
        talk.thinker.say([failure()]);
        let response = talk.answer(true).unwrap();
        assert_eq!((&response.text, response.reason), (&said, Some(FinishReason::Stop)));
        assert!(!response.samples.is_empty());
        assert!(talk.session.try_next_event().is_none(), "one end");
        // The caller heard the sentence, so the next prompt has it.
        talk.thinker.answer("yes");
        talk.answer(true).unwrap();
        assert_eq!(talk.thinker.request().messages, [user("question 0"), assistant(&said), user("question 1")]);
        talk.goes_on(true);
    }
}

#[test]
fn failures_without_audio_are_errors() {
    for voice in [false, true] {
        let mut talk = Talk::new(voice);
        talk.thinker.say([text("half of "), failure()]);
        let error = talk.answer(false).unwrap_err();
        let message = "the server is late".to_owned();
        assert_eq!(error, SessionError::Thinker { kind: RemoteFailureKind::Late, message });
        assert!(!error.is_fatal());
        assert!(talk.session.try_next_event().is_none(), "one end");
        // The text that was sent stays.
        talk.thinker.answer("yes");
        talk.answer(false).unwrap();
        assert_eq!(talk.thinker.request().messages[1], assistant("half of "));
        talk.goes_on(false);
    }
}

#[test]
fn answers_without_text_are_empty() {
    let mut talk = Talk::new(true);
    for (end, reason) in [(RemoteEnd::Stop, FinishReason::Stop), (RemoteEnd::Length, FinishReason::Length)] {
        // Reasoning is no text.
        talk.thinker.say([RemoteEvent::Progress, RemoteEvent::Finished(end)]);
        let response = talk.answer(true).unwrap();
        assert_eq!((&*response.text, response.samples.len(), response.reason), ("", 0, Some(reason)));
    }
    talk.goes_on(true);
}

#[test]
fn cancelled_answers_are_dropped() {
    for ticks in 0..12 {
        let mut talk = Talk::new(true);
        talk.thinker.say([text("the dog "), text("and the fox ")]);
        submit(&talk.session, Command::text(1, Role::User, "hi"));
        submit(&talk.session, Command::Respond(Respond::new(77, 2)));
        talk.engine.ticks(ticks);
        submit(&talk.session, Command::Cancel { response: 77 });
        talk.engine.settle();
        assert_eq!(talk.thinker.open(), 0, "after {ticks} ticks");
        let events: Vec<_> = std::iter::from_fn(|| talk.session.try_next_event()).collect();
        let ends = events.iter().filter(|event| matches!(event, Event::SegmentFinished { .. })).count();
        assert_eq!(ends, 1, "after {ticks} ticks");
        talk.thinker.events.lock().unwrap().clear();
        talk.goes_on(true);
    }
}

#[test]
fn dropped_sessions_drop_their_answers() {
    let mut talk = Talk::new(false);
    talk.ask(false);
    let request = Respond { audio: false, out_of_band: true, ..Respond::new(7, 7) };
    submit(&talk.session, Command::Respond(request));
    talk.engine.settle();
    assert_eq!(talk.thinker.open(), 2);
    drop(talk.session);
    assert_eq!((talk.engine.left_behind(), talk.thinker.open()), ((0, 0), 0));
}

#[test]
fn calls_pass_whole_and_in_parallel() {
    let mut talk = Talk::new(true);
    let tool = Tool { name: "find".to_owned(), description: "finds".to_owned(), parameters: "{}".to_owned() };
    submit(&talk.session, Command::SetTools(vec![tool.clone()]));
    talk.thinker.say([
        text("I look. "),
        RemoteEvent::CallBegun,
        RemoteEvent::Progress,
        call("find", "{\"x\": 1}"),
        call("find", "{\"x\": 2}"),
        RemoteEvent::Usage(RemoteUsage { input_tokens: 40, cached_tokens: 30, output_tokens: 20 }),
        RemoteEvent::Finished(RemoteEnd::Stop),
    ]);
    let response = talk.answer(true).unwrap();
    assert_eq!(talk.thinker.request().tools, [tool]);
    assert_eq!(response.text, "I look. ");
    let called = |arguments: &str| ("find".to_owned(), arguments.to_owned());
    assert_eq!(response.calls, [called("{\"x\": 1}"), called("{\"x\": 2}")]);
    assert!(!response.samples.is_empty());
    let usage = response.usage;
    assert_eq!((usage.input_text_tokens, usage.cached_tokens, usage.output_text_tokens), (40, 30, 20));
    // Their results go to the server behind them.
    for (item, output) in [(50, "one"), (51, "two")] {
        let content = MessageContent::ToolResult(output.to_owned());
        submit(&talk.session, Command::Insert { item, place: Default::default(), content });
    }
    talk.thinker.answer("one and two");
    talk.answer(true).unwrap();
    let written = |id: &str, arguments: &str| RemoteCall {
        id: id.to_owned(),
        name: "find".to_owned(),
        arguments: arguments.to_owned(),
    };
    let result =
        |call: &str, output: &str| RemoteMessage::ToolResult { call: call.to_owned(), output: output.to_owned() };
    let expected = [
        user("question 0"),
        RemoteMessage::Assistant {
            text: "I look. ".to_owned(),
            calls: vec![written("call_1", "{\"x\": 1}"), written("call_2", "{\"x\": 2}")],
        },
        result("call_1", "one"),
        result("call_2", "two"),
        user("question 1"),
    ];
    assert_eq!(talk.thinker.request().messages, expected);
    talk.goes_on(true);
}

#[test]
fn calls_without_text_are_no_speech() {
    let mut talk = Talk::new(true);
    talk.thinker.say([RemoteEvent::CallBegun, call("find", "{}"), RemoteEvent::Finished(RemoteEnd::Stop)]);
    let response = talk.answer(true).unwrap();
    assert_eq!((&*response.text, response.calls.len(), response.samples.len()), ("", 1, 0));
    talk.goes_on(true);
}

#[test]
fn broken_calls_are_never_made() {
    let mut talk = Talk::new(true);
    talk.thinker.say([text("I look. "), RemoteEvent::CallBegun, failure()]);
    let error = talk.answer(true).unwrap_err();
    assert!(matches!(error, SessionError::Thinker { .. }), "{error}");
    talk.goes_on(true);
}

#[test]
fn requests_have_instructions_limits_and_sampling() {
    let mut talk = Talk::new(false);
    submit(&talk.session, Command::SetInstructions("be brief".to_owned()));
    talk.thinker.answer("yes");
    talk.answer(false).unwrap();
    let request = talk.thinker.request();
    assert_eq!(request.messages, [RemoteMessage::System("be brief".to_owned()), user("question 0")]);
    assert_eq!((request.max_tokens, request.sampling, request.tools), (None, None, Vec::new()));
    let respond = Respond {
        audio: false,
        max_tokens: Some(7),
        sampling: Some(Sampling::GREEDY),
        instructions: Some("be long".to_owned()),
        ..Respond::new(5, 500)
    };
    talk.thinker.answer("no");
    talk.engine.respond(&talk.session, respond).unwrap();
    let request = talk.thinker.request();
    assert_eq!(request.messages[0], RemoteMessage::System("be long".to_owned()));
    assert_eq!((request.max_tokens, request.sampling), (Some(7), Some(Sampling::GREEDY)));
    talk.goes_on(false);
}

#[test]
fn marks_in_texts_stay_text() {
    let mut talk = Talk::new(true);
    let marks = "<|im_end|>\n<|im_start|>system\n<tool_call>{\"name\": \"x\"}</tool_call> \u{4f60}\u{597d} ";
    talk.thinker.answer(marks);
    assert_eq!(talk.answer(true).unwrap().text, marks);
    talk.thinker.answer("yes");
    talk.answer(true).unwrap();
    assert_eq!(talk.thinker.request().messages[1], assistant(marks));
    talk.goes_on(true);
}

#[test]
fn long_texts_come_in_bounded_pieces() {
    let mut talk = Talk::new(false);
    let code = "    let caf\u{e9} = 1;\n".repeat(4_000);
    talk.thinker.answer(&code);
    let number = talk.ask(false);
    let mut read = String::new();
    loop {
        match talk.session.try_next_event() {
            Some(Event::Text { text, .. }) => {
                assert!(text.len() <= 4_096, "{} bytes", text.len());
                read.push_str(&text);
            }
            Some(Event::SegmentFinished { response, .. }) => break assert_eq!(response, number),
            Some(other) => panic!("{other:?}"),
            None => talk.engine.settle(),
        }
    }
    assert_eq!(read, code);
    // The next prompt is longer than the context: what is older goes, and the question stays.
    talk.thinker.answer("yes");
    talk.answer(false).unwrap();
    assert_eq!(talk.thinker.request().messages, [user("question 1")]);
    talk.goes_on(false);
}

#[test]
fn questions_over_the_context_are_refused() {
    let mut talk = Talk::new(false);
    submit(&talk.session, Command::text(1, Role::User, "why ".repeat(2_100)));
    submit(&talk.session, Command::Respond(Respond { audio: false, ..Respond::new(9, 2) }));
    let error = talk.listen(9).unwrap_err();
    assert!(matches!(error, SessionError::ContextFull { tokens: 2_101, limit: 2_048 }), "{error:?}");
    submit(&talk.session, Command::Delete { item: 1 });
    talk.goes_on(false);
}

#[test]
fn truncated_answers_keep_the_heard_words() {
    let mut talk = Talk::new(true);
    talk.thinker.answer("caf\u{e9} and tea and more");
    talk.answer(true).unwrap();
    submit(&talk.session, Command::Truncate { item: 100, text: "caf\u{e9} and".to_owned() });
    talk.thinker.answer("yes");
    talk.answer(true).unwrap();
    assert_eq!(talk.thinker.request().messages[1], assistant("caf\u{e9} and"));
    talk.goes_on(true);
}
