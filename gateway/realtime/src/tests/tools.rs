//! Function tools.

use repartee_engine_api::{
    AnswerForm, Command, Event, FinishReason, InsertAt, MessageContent, ModelInfo, ResponseId, ResponseInput, Tool,
};
use repartee_media::vad::TurnEvent;
use serde_json::{Value, json};

use super::super::{Delivery, Effect, PlayoutReport, SessionInput};
use super::{Harness, model};

fn weather() -> Value {
    json!({"type": "function", "name": "weather", "description": "Tells the weather.", "parameters": {"type": "object"}})
}

fn function_call(harness: &mut Harness, response: ResponseId, call: u32, name: &str, pieces: &[&str]) {
    harness.input(SessionInput::Engine(Event::ToolCall { response, call, name: name.into() }));
    for piece in pieces {
        let arguments = (*piece).to_owned();
        harness.input(SessionInput::Engine(Event::ToolArguments { response, call, arguments }));
    }
}

#[test]
fn only_function_tools_are_offered() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"tools": [weather(), {"type": "mcp", "server_label": "x"}]}));
    let tool = Tool {
        name: "weather".into(),
        description: "Tells the weather.".into(),
        parameters: r#"{"type":"object"}"#.into(),
    };
    assert_eq!(harness.commands, [Command::SetTools(vec![tool])]);
    let session = &harness.find("session.updated")["session"];
    assert_eq!(session["tools"], json!([weather()]));
    assert_eq!(session["repartee"]["warnings"], json!(["session.tools is served differently"]));
    harness.clear();
    harness.update(json!({"instructions": "Hi."}));
    assert!(!harness.commands.iter().any(|command| matches!(command, Command::SetTools(_))), "sent once");
    harness.update(json!({"tool_choice": "none"}));
    assert_eq!(harness.commands.last(), Some(&Command::SetTools(Vec::new())));
    harness.update(json!({"tools": [{"type": "function"}]}));
    assert_eq!(harness.events.last().unwrap()["error"]["param"], "session.tools[0].name");
}

#[test]
fn tools_of_a_model_without_are_dropped_audibly() {
    let mut harness = Harness::with_model(Delivery::Unpaced, ModelInfo { tools: false, ..model() });
    harness.update(json!({"tools": [weather()]}));
    let dropped = "tools dropped: this model calls no functions";
    let session = &harness.find("session.updated")["session"];
    assert_eq!((&session["tools"], &session["repartee"]["warnings"]), (&json!([]), &json!([dropped])));
    assert!(harness.other_effects.contains(&Effect::Unsupported(dropped)), "the log says so too");
    harness.clear();
    harness.client(json!({"type": "response.create", "response": {"tools": [weather()]}}));
    assert_eq!(harness.find("response.created")["repartee"]["warnings"], json!([dropped]));
}

#[test]
fn function_call_streams_and_takes_its_output() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.clear();
    harness.engine_text(response, "One moment.");
    function_call(&mut harness, response, 0, "weather", &["{\"city\":", "\"Oslo\"}"]);
    function_call(&mut harness, response, 1, "time", &["{}"]);
    harness.engine_finished(response, FinishReason::Stop);
    let types = harness.event_types();
    let calling = types.iter().position(|kind| kind.contains("function_call")).unwrap();
    assert_eq!(
        types[calling - 2..calling + 7],
        [
            "response.output_item.added",
            "conversation.item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.output_item.added",
            "conversation.item.added",
        ]
    );
    let done = &harness.events.iter().find(|event| event["type"] == "response.function_call_arguments.done").unwrap();
    assert_eq!((&done["arguments"], &done["name"]), (&json!("{\"city\":\"Oslo\"}"), &json!("weather")));
    assert_eq!(done["output_index"], 1);
    let response = &harness.find("response.done")["response"];
    let output = &response["output"];
    assert_eq!(
        (&output[0]["type"], &output[1]["type"], &output[2]["name"]),
        (&json!("message"), &json!("function_call"), &json!("time"))
    );
    assert_eq!(output[1]["status"], "completed");
    let (call_id, item_id) = (output[1]["call_id"].clone(), output[1]["id"].clone());
    assert_ne!(call_id, output[2]["call_id"]);
    // The call's arguments can be retrieved.
    harness.client(json!({"type": "conversation.item.retrieve", "item_id": item_id}));
    assert_eq!(harness.find("conversation.item.retrieved")["item"]["arguments"], "{\"city\":\"Oslo\"}");
    harness.clear();
    let result = json!({"type": "function_call_output", "call_id": call_id, "output": "rain"});
    harness.client(json!({"type": "conversation.item.create", "item": result}));
    assert!(
        matches!(&harness.commands[..], [Command::Insert { content: MessageContent::ToolResult(text), .. }] if text == "rain")
    );
    assert_eq!(harness.find("conversation.item.done")["item"]["output"], "rain");
}

#[test]
fn response_may_be_a_function_call_alone() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    function_call(&mut harness, response, 0, "weather", &["{}"]);
    harness.client(json!({"type": "response.cancel"}));
    function_call(&mut harness, response, 1, "time", &["{}"]);
    harness.engine_finished(response, FinishReason::Cancelled);
    let output = &harness.find("response.done")["response"]["output"];
    assert_eq!(output.as_array().unwrap().len(), 1);
    assert_eq!((&output[0]["status"], &output[0]["name"]), (&json!("incomplete"), &json!("weather")));
    // The call maps to the engine's item.
    let id = output[0]["id"].clone();
    harness.clear();
    harness.client(json!({"type": "conversation.item.delete", "item_id": id}));
    assert!(matches!(harness.commands[..], [Command::Delete { .. }]));
}

#[test]
fn earlier_calls_can_be_inserted() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let call = json!({"type": "function_call", "name": "weather", "arguments": "{}"});
    harness.client(json!({"type": "conversation.item.create", "item": call}));
    assert!(
        matches!(&harness.commands[..], [Command::Insert { content: MessageContent::ToolCall { name, .. }, .. }] if name == "weather")
    );
    assert!(harness.find("conversation.item.added")["item"]["call_id"].is_string());
}

#[test]
fn response_tools_override_the_session() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"tools": [weather()]}));
    let mut tools = |overrides: Value| -> Option<Vec<String>> {
        harness.client(json!({"type": "response.create", "response": overrides}));
        let respond = harness.last_respond().unwrap().clone();
        harness.engine_finished(respond.response, FinishReason::Stop);
        respond.tools.map(|tools| tools.into_iter().map(|tool| tool.name).collect())
    };
    assert_eq!(tools(json!({})), None);
    assert_eq!(tools(json!({"tool_choice": "none"})), Some(vec![]));
    assert_eq!(tools(json!({"tools": [{"name": "time"}]})), Some(vec!["time".to_owned()]));
}

#[test]
fn repeated_call_is_answered_without_tools() {
    // Arguments of the two calls, and the expected offer of the third response: `None` are the session's functions.
    for (calls, text_between, offered) in [
        ([r#"{"city":"Oslo"}"#, r#"{ "city": "Oslo", "sides": 6 }"#], false, Some(Vec::new())),
        (["", "{}"], false, Some(Vec::new())),
        ([r#"{"city":"Oslo"}"#, r#"{"city":"Rome"}"#], false, None),
        ([r#"{"city":"Oslo"}"#, r#"{"city":"Oslo"}"#], true, None),
    ] {
        let mut harness = Harness::new(Delivery::Unpaced);
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        harness.update(json!({"tools": [{"type": "function", "name": "weather", "parameters": parameters}]}));
        harness.message("a", "How is the weather?");
        for arguments in calls {
            let response = harness.create_response();
            assert_eq!(harness.last_respond().unwrap().tools, None);
            function_call(&mut harness, response, 0, "weather", &[arguments]);
            harness.engine_finished(response, FinishReason::Stop);
            let call_id = harness.find("response.done")["response"]["output"][0]["call_id"].clone();
            let result = json!({"type": "function_call_output", "call_id": call_id, "output": "rain"});
            harness.client(json!({"type": "conversation.item.create", "item": result}));
            if text_between {
                harness.message(&format!("b{}", harness.events.len()), "And now?");
            }
        }
        harness.clear();
        let response = harness.create_response();
        assert_eq!(harness.last_respond().unwrap().tools, offered, "{calls:?}");
        // Its prompt has the last of the equal calls alone, as the template writes it.
        let input = harness.last_respond().unwrap().input.clone();
        let arguments = if calls[1].is_empty() { "{}" } else { calls[1] }.to_owned();
        let call = MessageContent::ToolCall { name: "weather".into(), arguments };
        let contents = [call, MessageContent::ToolResult("rain".into())].map(ResponseInput::Content);
        match &offered {
            Some(_) => assert!(matches!(&input.unwrap()[..], [ResponseInput::Item(_), rest @ ..] if rest == contents)),
            None => assert_eq!(input, None),
        }
        let warned = harness.find("response.created")["repartee"]["warnings"].to_string().contains("`weather`");
        assert_eq!(warned, offered.is_some());
        harness.engine_finished(response, FinishReason::Stop);
        // A request's own functions are offered, and so are the session's after the caller's next words.
        harness.client(json!({"type": "response.create", "response": {"tools": [weather()]}}));
        assert_eq!(harness.last_respond().unwrap().tools.as_ref().map(Vec::len), Some(1));
        let response = harness.last_respond().unwrap().response;
        harness.engine_finished(response, FinishReason::Stop);
        harness.message("c", "And tomorrow?");
        harness.create_response();
        assert_eq!(harness.last_respond().unwrap().tools, None);
    }
}

#[test]
fn model_without_tools_gets_none() {
    let mut harness = Harness::with_model(Delivery::Unpaced, ModelInfo { tools: false, ..model() });
    // Clients send tools to any model: a warning, not an error.
    harness.update(json!({"tools": [weather()]}));
    assert_eq!(harness.event_types(), ["session.updated"]);
    assert_eq!(harness.events[0]["session"]["tools"], json!([]));
    let warnings = harness.events[0]["session"]["repartee"]["warnings"].to_string();
    assert!(warnings.contains("tools"), "{warnings}");
    assert!(!harness.commands.iter().any(|command| matches!(command, Command::SetTools(_))));
    harness.client(json!({"type": "response.create", "response": {"tool_choice": "auto"}}));
    assert_eq!(harness.last_respond().unwrap().tools, None);
}

#[test]
fn forced_calls_are_refused() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"tools": [weather()]}));
    harness.clear();
    for choice in [
        json!("required"),
        json!({"type": "function", "name": "weather"}),
        json!({"type": "mcp", "server_label": "x"}),
        json!("sometimes"),
    ] {
        harness.update(json!({"tool_choice": choice}));
        let error = &harness.events.last().unwrap()["error"];
        assert_eq!((&error["code"], &error["param"]), (&json!("invalid_value"), &json!("session.tool_choice")));
        assert_eq!(harness.core.config().tool_choice, "auto");
        harness.client(json!({"type": "response.create", "response": {"tool_choice": choice}}));
        let error = &harness.events.last().unwrap()["error"];
        assert_eq!((&error["code"], &error["param"]), (&json!("invalid_value"), &json!("response.tool_choice")));
    }
    assert_eq!(harness.commands, []);
}

#[test]
fn forced_calls_hold_answers_to_their_form() {
    let mut harness = Harness::with_model(Delivery::Unpaced, ModelInfo { answer_forms: true, ..model() });
    harness.update(json!({"tools": [weather()], "tool_choice": {"type": "function", "name": "weather"}}));
    assert_eq!(harness.core.config().tool_choice["name"], "weather");
    harness.message("a", "Is it warm?");
    harness.create_response();
    assert_eq!(harness.last_respond().unwrap().form, AnswerForm::Call("weather".into()));
    for (choice, form) in [(json!("required"), AnswerForm::Calls), (json!("none"), AnswerForm::Free)] {
        let response = harness.last_respond().unwrap().response;
        harness.engine_finished(response, FinishReason::Stop);
        harness.client(json!({"type": "response.create", "response": {"tool_choice": choice}}));
        assert_eq!(harness.last_respond().unwrap().form, form);
    }
    // A function that is none is refused by any model.
    harness.update(json!({"tool_choice": {"type": "function", "name": "time"}}));
    assert_eq!(harness.events.last().unwrap()["error"]["param"], "session.tool_choice");
}

#[test]
fn refused_choices_say_why() {
    let message = |model: ModelInfo, tools: Value, choice: &Value| {
        let mut harness = Harness::with_model(Delivery::Unpaced, model);
        harness.update(json!({"tools": tools, "tool_choice": choice}));
        let error = harness.events.last().unwrap()["error"].clone();
        assert_eq!((&error["code"], &error["param"]), (&json!("invalid_value"), &json!("session.tool_choice")));
        harness.client(json!({"type": "response.create", "response": {"tools": tools, "tool_choice": choice}}));
        let own = harness.events.last().unwrap()["error"].clone();
        assert_eq!((&own["message"], &own["param"]), (&error["message"], &json!("response.tool_choice")));
        error["message"].as_str().unwrap().to_owned()
    };
    let (required, named) = (json!("required"), |name: &str| json!({"type": "function", "name": name}));
    let (tools, without) = (json!([weather()]), || ModelInfo { tools: false, ..model() });
    for (model, tools, choice, part) in [
        (model(), &tools, &required, "cannot be forced"),
        (model(), &tools, &named("weather"), "cannot be forced"),
        (model(), &tools, &named("time"), "call of `time`"),
        (model(), &json!([]), &required, "has no function"),
        (model(), &json!([{"type": "mcp", "server_label": "x"}]), &required, "has no function"),
        (without(), &tools, &required, "calls no functions"),
        (model(), &tools, &json!({"type": "function"}), "a function by its name"),
        (model(), &tools, &json!(3), "a function by its name"),
    ] {
        let written = message(model, tools.clone(), choice);
        assert!(written.contains(part), "{written}");
    }
}

#[test]
fn calls_in_parallel_can_be_switched_off() {
    for text in ["", "One moment."] {
        let mut harness = Harness::new(Delivery::Unpaced);
        harness.update(json!({"tools": [weather()], "parallel_tool_calls": false}));
        assert_eq!(harness.find("session.updated")["session"]["parallel_tool_calls"], false);
        let response = harness.create_response();
        harness.clear();
        harness.engine_text(response, text);
        function_call(&mut harness, response, 0, "weather", &["{}"]);
        assert_eq!(harness.commands, []);
        function_call(&mut harness, response, 1, "weather", &["{\"city\": \"Rome\"}"]);
        assert_eq!(harness.commands, [Command::Cancel { response }]);
        harness.find("response.function_call_arguments.done");
        harness.engine_finished(response, FinishReason::Cancelled);
        let done = &harness.find("response.done")["response"];
        assert_eq!(done["status"], "completed");
        let calls = done["output"].as_array().unwrap().iter().filter(|item| item["type"] == "function_call");
        assert_eq!(calls.map(|call| &call["arguments"]).collect::<Vec<_>>(), ["{}"]);
        // The engine's history equals the output that was sent to the client.
        assert_eq!(harness.truncated_text(), Some(text));
        assert!(matches!(&harness.commands[2..],
            [Command::Insert { content: MessageContent::ToolCall { name, arguments }, .. }] if name == "weather" && arguments == "{}"));
        // The result follows the call.
        let Some(Command::Insert { item: call, place, .. }) = harness.commands.last().cloned() else {
            panic!("no call")
        };
        // Without text the response's own engine item is gone.
        let Command::Truncate { item: message, .. } = harness.commands[1] else { panic!("{:?}", harness.commands) };
        assert_eq!(place, if text.is_empty() { InsertAt::Start } else { InsertAt::After(message) });
        let call_id = harness.find("response.function_call_arguments.done")["call_id"].clone();
        let result = json!({"type": "function_call_output", "call_id": call_id, "output": "rain"});
        harness.client(json!({"type": "conversation.item.create", "item": result}));
        assert!(
            matches!(harness.commands.last(), Some(Command::Insert { place: InsertAt::After(item), .. }) if *item == call)
        );
    }
}

#[test]
fn one_response_may_forbid_parallel_calls() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.client(json!({"type": "response.create", "response": {"parallel_tool_calls": false}}));
    let response = harness.last_respond().unwrap().response;
    function_call(&mut harness, response, 0, "f", &["{}"]);
    function_call(&mut harness, response, 1, "f", &["{}"]);
    assert_eq!(harness.commands.last(), Some(&Command::Cancel { response }));
    harness.engine_finished(response, FinishReason::Stop);
    let response = harness.create_response();
    harness.clear();
    function_call(&mut harness, response, 0, "f", &["{}"]);
    function_call(&mut harness, response, 1, "f", &["{}"]);
    assert_eq!(harness.commands, [], "the default allows them");
}

#[test]
fn results_follow_the_order_of_their_calls() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    for (call, name) in ["first", "second", "third"].into_iter().enumerate() {
        function_call(&mut harness, response, call as u32, name, &["{}"]);
    }
    harness.engine_finished(response, FinishReason::Stop);
    let output = harness.find("response.done")["response"]["output"].clone();
    harness.message("a", "Hurry up.");
    for call in [2, 0, 1] {
        let (call_id, text) = (&output[call]["call_id"], &output[call]["name"]);
        let result = json!({"type": "function_call_output", "call_id": call_id, "output": text});
        harness.client(json!({"type": "conversation.item.create", "item": result}));
    }
    assert_eq!(harness.results(), ["first", "second", "third"]);
    // On the wire they keep the client's position.
    let added = harness.find("conversation.item.added");
    assert_eq!((&added["item"]["output"], &added["item"]["call_id"]), (&json!("second"), &output[1]["call_id"]));
}

#[test]
fn result_without_its_call_is_refused() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let result = json!({"type": "function_call_output", "call_id": "call_x", "output": "rain"});
    harness.client(json!({"type": "conversation.item.create", "item": result}));
    assert_eq!(harness.error_code(), "invalid_tool_call_id");
    assert_eq!(harness.events[0]["error"]["param"], "item.call_id");
    harness.client(json!({"type": "response.create", "response": {"input": [result]}}));
    assert_eq!(harness.error_code(), "invalid_tool_call_id");
    assert_eq!(harness.events[1]["error"]["param"], "response.input[0].call_id");
    assert_eq!(harness.commands, []);
}

#[test]
fn results_of_an_own_input_follow_their_calls() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let call = |name: &str| json!({"type": "function_call", "call_id": name, "name": name, "arguments": "{}"});
    let result = |name: &str| json!({"type": "function_call_output", "call_id": name, "output": name});
    let input = json!([call("a"), call("b"), result("b"), result("a")]);
    harness.client(json!({"type": "response.create", "response": {"conversation": "none", "input": input}}));
    let names = harness.last_respond().unwrap().input.as_ref().unwrap().iter().map(|input| match input {
        ResponseInput::Content(MessageContent::ToolCall { name, .. }) => format!("call {name}"),
        ResponseInput::Content(MessageContent::ToolResult(text)) => format!("result {text}"),
        other => panic!("{other:?}"),
    });
    assert_eq!(names.collect::<Vec<_>>(), ["call a", "result a", "call b", "result b"]);
}

/// Response with two seconds of speech and two calls, and the result of the second call.
struct SpokenWithCalls {
    harness: Harness,
    response: ResponseId,
    /// Engine ids of the response's item and of the question before it.
    item: u64,
    before: u64,
    output: Value,
}

impl SpokenWithCalls {
    fn new(delivery: Delivery) -> Self {
        let mut harness = Harness::new(delivery);
        harness.message("before", "Is it late?");
        let Some(&Command::Insert { item: before, .. }) = harness.commands.first() else { panic!("no question") };
        let response = harness.create_response();
        let item = harness.last_respond().unwrap().item;
        harness.engine_text(response, "One moment please.");
        harness.engine_audio(response, 2_000);
        function_call(&mut harness, response, 0, "weather", &["{}"]);
        function_call(&mut harness, response, 1, "time", &["{\"zone\":", "\"utc\"}"]);
        harness.engine_finished(response, FinishReason::Stop);
        let output = harness.find("response.done")["response"]["output"].clone();
        let mut spoken = Self { harness, response, item, before, output };
        spoken.result(2);
        spoken.harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
        spoken.harness.clear();
        spoken
    }

    /// Sends the result of a call.
    fn result(&mut self, call: usize) {
        let result = json!({"type": "function_call_output", "call_id": self.output[call]["call_id"], "output": "noon"});
        self.harness.client(json!({"type": "conversation.item.create", "item": result}));
    }

    /// Asserts that the calls were inserted as separate engine items, in order from `place`; returns the id of the first.
    fn assert_kept(&self, mut place: InsertAt) -> u64 {
        let mut calls = Vec::new();
        for command in &self.harness.commands {
            if let Command::Insert { item, place: at, content: MessageContent::ToolCall { name, arguments } } = command
            {
                assert_eq!(std::mem::replace(&mut place, InsertAt::After(*item)), *at, "{name}");
                calls.push((*item, name.as_str(), arguments.as_str()));
            }
        }
        let [(first, ..), _] = calls[..] else { panic!("{calls:?}") };
        assert_eq!((calls[0].1, calls[0].2), ("weather", "{}"));
        assert_eq!((calls[1].1, calls[1].2), ("time", "{\"zone\":\"utc\"}"));
        first
    }
}

#[test]
fn interruption_keeps_the_calls() {
    // If nothing was heard, the engine's item is gone, and the calls replace it.
    for (heard_ms, text) in [(1_000, "One"), (0, "")] {
        let mut spoken = SpokenWithCalls::new(Delivery::Paced);
        let (response, item) = (spoken.response, spoken.item);
        spoken.harness.played(response, heard_ms);
        spoken.harness.clear();
        spoken.harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
        assert_eq!(spoken.harness.commands[0], Command::Truncate { item, text: text.to_owned() });
        let call = spoken.assert_kept(InsertAt::After(if text.is_empty() { spoken.before } else { item }));
        // A result follows its call as before.
        spoken.harness.clear();
        spoken.result(1);
        assert!(
            matches!(spoken.harness.commands[..], [Command::Insert { place: InsertAt::After(item), .. }] if item == call)
        );
        spoken.harness.clear();
        let delete = json!({"type": "conversation.item.delete", "item_id": spoken.output[1]["id"]});
        spoken.harness.client(delete);
        assert_eq!(spoken.harness.commands, [Command::Delete { item: call }]);
    }
}

#[test]
fn truncated_or_deleted_messages_leave_their_calls() {
    let mut spoken = SpokenWithCalls::new(Delivery::Unpaced);
    let id = spoken.output[0]["id"].clone();
    let truncate =
        json!({"type": "conversation.item.truncate", "item_id": id, "content_index": 0, "audio_end_ms": 1_000});
    spoken.harness.client(truncate.clone());
    spoken.assert_kept(InsertAt::After(spoken.item));
    spoken.harness.clear();
    spoken.harness.client(truncate);
    spoken.harness.client(json!({"type": "conversation.item.delete", "item_id": id}));
    let (item, text) = (spoken.item, "One".to_owned());
    assert_eq!(spoken.harness.commands, [Command::Truncate { item, text }, Command::Delete { item }], "once");

    let mut spoken = SpokenWithCalls::new(Delivery::Unpaced);
    spoken.harness.client(json!({"type": "conversation.item.delete", "item_id": spoken.output[0]["id"]}));
    assert_eq!(spoken.harness.commands[0], Command::Delete { item: spoken.item });
    spoken.assert_kept(InsertAt::After(spoken.before));
}

#[test]
fn deleted_call_leaves_its_message_and_other_calls() {
    let mut spoken = SpokenWithCalls::new(Delivery::Unpaced);
    let delete =
        |call: usize, output: &Value| json!({"type": "conversation.item.delete", "item_id": output[call]["id"]});
    spoken.harness.client(delete(1, &spoken.output));
    let item = spoken.item;
    let [truncate, Command::Insert { item: time, place, content: MessageContent::ToolCall { name, .. } }] =
        &spoken.harness.commands[..]
    else {
        panic!("{:?}", spoken.harness.commands)
    };
    assert_eq!(*truncate, Command::Truncate { item, text: "One moment please.".into() });
    assert_eq!((name.as_str(), *place), ("time", InsertAt::After(item)));
    let time = *time;
    spoken.harness.clear();
    spoken.harness.client(delete(2, &spoken.output));
    assert_eq!(spoken.harness.commands, [Command::Delete { item: time }]);
    spoken.harness.clear();
    spoken.harness.client(delete(0, &spoken.output));
    assert_eq!(spoken.harness.commands, [Command::Delete { item }]);
}

#[test]
fn call_without_a_message_is_deleted_alone() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    let item = harness.last_respond().unwrap().item;
    function_call(&mut harness, response, 0, "weather", &["{}"]);
    function_call(&mut harness, response, 1, "time", &["{}"]);
    harness.engine_finished(response, FinishReason::Stop);
    let id = harness.find("response.done")["response"]["output"][1]["id"].clone();
    harness.clear();
    harness.client(json!({"type": "conversation.item.delete", "item_id": id}));
    assert_eq!(harness.commands[0], Command::Delete { item });
    assert!(
        matches!(&harness.commands[1..], [Command::Insert { content: MessageContent::ToolCall { name, .. }, .. }] if name == "weather"),
        "{:?}",
        harness.commands
    );
}

#[test]
fn call_deleted_during_its_response_leaves_the_message() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    let item = harness.last_respond().unwrap().item;
    harness.engine_text(response, "One moment.");
    function_call(&mut harness, response, 0, "weather", &["{}"]);
    let id = harness.find("response.output_item.added")["item"]["id"].clone();
    harness.clear();
    harness.client(json!({"type": "conversation.item.delete", "item_id": id}));
    harness.engine_finished(response, FinishReason::Cancelled);
    assert_eq!(
        harness.commands,
        [Command::Cancel { response }, Command::Truncate { item, text: "One moment.".into() }]
    );
}

#[test]
fn interruption_drops_the_call_in_progress() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.create_response();
    let item = harness.last_respond().unwrap().item;
    harness.engine_text(response, "One moment please.");
    harness.engine_audio(response, 2_000);
    function_call(&mut harness, response, 0, "weather", &["{}"]);
    function_call(&mut harness, response, 1, "time", &["{\"zone\":"]);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.played(response, 1_000);
    harness.clear();
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    harness.engine_finished(response, FinishReason::Cancelled);
    let output = &harness.find("response.done")["response"]["output"];
    assert_eq!((&output[1]["status"], &output[2]["status"]), (&json!("completed"), &json!("incomplete")));
    assert!(
        matches!(&harness.commands[1..], [Command::Truncate { text, .. }, Command::Insert { place, content: MessageContent::ToolCall { name, .. }, .. }]
            if text == "One" && *place == InsertAt::After(item) && name == "weather"),
        "{:?}",
        harness.commands
    );
}
