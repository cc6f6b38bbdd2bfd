//! Functions that the model calls.

use repartee_engine_api::{Command, Content, Event, FinishReason, ModelInfo, ResponseId, Tool};
use serde_json::{Value, json};

use super::super::{Delivery, Input};
use super::{Talk, model};

fn weather() -> Value {
    json!({"type": "function", "name": "weather", "description": "Tells the weather.", "parameters": {"type": "object"}})
}

fn calls(talk: &mut Talk, response: ResponseId, call: u32, name: &str, pieces: &[&str]) {
    talk.input(Input::Engine(Event::ToolCall { response, call, name: name.into() }));
    for piece in pieces {
        let arguments = (*piece).to_owned();
        talk.input(Input::Engine(Event::ToolArguments { response, call, arguments }));
    }
}

#[test]
fn a_session_offers_its_functions_and_no_others() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"tools": [weather(), {"type": "mcp", "server_label": "x"}]}));
    let tool = Tool {
        name: "weather".into(),
        description: "Tells the weather.".into(),
        parameters: r#"{"type":"object"}"#.into(),
    };
    assert_eq!(talk.commands, [Command::SetTools(vec![tool])]);
    let session = &talk.find("session.updated")["session"];
    assert_eq!(session["tools"], json!([weather()]));
    assert_eq!(session["repartee"]["warnings"], json!(["session.tools is served differently"]));
    talk.forget();
    talk.update(json!({"instructions": "Hi."}));
    assert!(!talk.commands.iter().any(|command| matches!(command, Command::SetTools(_))), "said once");
    talk.update(json!({"tool_choice": "none"}));
    assert_eq!(talk.commands.last(), Some(&Command::SetTools(Vec::new())));
    talk.update(json!({"tools": [{"type": "function"}]}));
    assert_eq!(talk.events.last().unwrap()["error"]["param"], "session.tools[0].name");
}

#[test]
fn a_call_is_streamed_and_its_result_is_answered() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.forget();
    talk.says(response, "One moment.");
    calls(&mut talk, response, 0, "weather", &["{\"city\":", "\"Oslo\"}"]);
    calls(&mut talk, response, 1, "time", &["{}"]);
    talk.finished(response, FinishReason::Stop);
    let kinds = talk.kinds();
    let calling = kinds.iter().position(|kind| kind.contains("function_call")).unwrap();
    assert_eq!(
        kinds[calling - 2..calling + 7],
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
    let done = &talk.events.iter().find(|event| event["type"] == "response.function_call_arguments.done").unwrap();
    assert_eq!((&done["arguments"], &done["name"]), (&json!("{\"city\":\"Oslo\"}"), &json!("weather")));
    assert_eq!(done["output_index"], 1);
    let answer = &talk.find("response.done")["response"];
    let output = &answer["output"];
    assert_eq!(
        (&output[0]["type"], &output[1]["type"], &output[2]["name"]),
        (&json!("message"), &json!("function_call"), &json!("time"))
    );
    assert_eq!(output[1]["status"], "completed");
    let (call_id, item_id) = (output[1]["call_id"].clone(), output[1]["id"].clone());
    assert_ne!(call_id, output[2]["call_id"]);
    // The call's arguments can be looked up.
    talk.client(json!({"type": "conversation.item.retrieve", "item_id": item_id}));
    assert_eq!(talk.find("conversation.item.retrieved")["item"]["arguments"], "{\"city\":\"Oslo\"}");
    talk.forget();
    let result = json!({"type": "function_call_output", "call_id": call_id, "output": "rain"});
    talk.client(json!({"type": "conversation.item.create", "item": result}));
    assert!(
        matches!(&talk.commands[..], [Command::Insert { content: Content::ToolResult(text), .. }] if text == "rain")
    );
    assert_eq!(talk.find("conversation.item.done")["item"]["output"], "rain");
}

#[test]
fn a_call_without_a_word_is_the_answer() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    calls(&mut talk, response, 0, "weather", &["{}"]);
    talk.client(json!({"type": "response.cancel"}));
    calls(&mut talk, response, 1, "time", &["{}"]);
    talk.finished(response, FinishReason::Cancelled);
    let output = &talk.find("response.done")["response"]["output"];
    assert_eq!(output.as_array().unwrap().len(), 1);
    assert_eq!((&output[0]["status"], &output[0]["name"]), (&json!("incomplete"), &json!("weather")));
    // It is the engine's item, too.
    let id = output[0]["id"].clone();
    talk.forget();
    talk.client(json!({"type": "conversation.item.delete", "item_id": id}));
    assert!(matches!(talk.commands[..], [Command::Delete { .. }]));
}

#[test]
fn earlier_calls_can_be_written_into_the_history() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let call = json!({"type": "function_call", "name": "weather", "arguments": "{}"});
    talk.client(json!({"type": "conversation.item.create", "item": call}));
    assert!(
        matches!(&talk.commands[..], [Command::Insert { content: Content::ToolCall { name, .. }, .. }] if name == "weather")
    );
    assert!(talk.find("conversation.item.added")["item"]["call_id"].is_string());
}

#[test]
fn an_answer_can_have_tools_of_its_own_or_none() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"tools": [weather()]}));
    let mut tools = |overrides: Value| -> Option<Vec<String>> {
        talk.client(json!({"type": "response.create", "response": overrides}));
        let respond = talk.asked().unwrap().clone();
        talk.finished(respond.response, FinishReason::Stop);
        respond.tools.map(|tools| tools.into_iter().map(|tool| tool.name).collect())
    };
    assert_eq!(tools(json!({})), None);
    assert_eq!(tools(json!({"tool_choice": "none"})), Some(vec![]));
    assert_eq!(tools(json!({"tools": [{"name": "time"}]})), Some(vec!["time".to_owned()]));
    assert_eq!(
        tools(json!({"tool_choice": {"type": "function", "name": "weather"}})),
        Some(vec!["weather".to_owned()])
    );
}

#[test]
fn a_model_that_cannot_call_is_not_asked_to() {
    let mut talk = Talk::with_model(Delivery::Unpaced, ModelInfo { tools: false, ..model() });
    // Clients offer tools to whatever model they meet: that is no error, and they are told what holds.
    talk.update(json!({"tools": [weather()]}));
    assert_eq!(talk.kinds(), ["session.updated"]);
    assert_eq!(talk.events[0]["session"]["tools"], json!([]));
    let warnings = talk.events[0]["session"]["repartee"]["warnings"].to_string();
    assert!(warnings.contains("tools"), "{warnings}");
    assert!(!talk.commands.iter().any(|command| matches!(command, Command::SetTools(_))));
    talk.client(json!({"type": "response.create", "response": {"tool_choice": "auto"}}));
    assert_eq!(talk.asked().unwrap().tools, None);
}
