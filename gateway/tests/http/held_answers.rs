//! Answers of models that run here, held to JSON and to calls, over both doors.

use std::net::SocketAddr;
use std::path::Path;

use repartee_engine::{Engine, EngineConfig, Source};
use repartee_gateway_testkit::http::{Reply, send};
use repartee_gateway_testkit::{PATIENCE, connect, find, serve_engine};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

const JSON: (&str, &str) = ("content-type", "application/json");
/// A template that is given functions as such.
const TEMPLATE: &str = "{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.tool_calls %}{% for call in message.tool_calls %}{\"name\": {{ call.function.name | tojson }}, \"arguments\": \
{{ call.function.arguments | tojson }}}{% endfor %}{% else %}{{ message.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}";

/// Copy of a small model whose template has functions.
fn checkpoint() -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/fixtures/text_qwen2/checkpoint");
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let config = copy.path().join("tokenizer_config.json");
    let mut fields: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    fields["chat_template"] = TEMPLATE.into();
    std::fs::write(config, fields.to_string()).unwrap();
    copy
}

async fn serve() -> SocketAddr {
    let copy = checkpoint();
    let engine = Engine::start(Source::Folder(copy.path().to_owned()), &EngineConfig::default()).unwrap();
    serve_engine(engine).await.0
}

fn weather() -> Value {
    let units = json!({"enum": ["celsius", "fahrenheit"]});
    let properties =
        json!({"city": {"type": "string", "minLength": 1}, "unit": units, "days": {"type": "integer", "minimum": 1}});
    let parameters = json!({"type": "object", "properties": properties, "required": ["city", "unit"]});
    json!({"name": "weather", "description": "The weather of a city.", "parameters": parameters})
}

fn assert_fits(arguments: &str) {
    let read: Value = serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{error}: {arguments}"));
    assert!(!read["city"].as_str().unwrap().is_empty(), "{read}");
    assert!(["celsius", "fahrenheit"].contains(&read["unit"].as_str().unwrap()), "{read}");
    assert!(read.get("days").is_none_or(|days| days.as_i64().unwrap() >= 1), "{read}");
}

async fn complete(address: SocketAddr, more: Value) -> Reply {
    let mut request = json!({"max_tokens": 120, "messages": [{"role": "user", "content": "Is it warm in Oslo?"}]});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    send(address, "POST", "/v1/chat/completions", &[JSON], request.to_string().as_bytes()).await
}

#[tokio::test]
async fn completions_fit_their_schema() {
    let address = serve().await;
    let models = send(address, "GET", "/v1/models", &[], b"").await.json();
    assert_eq!(models["data"][0]["repartee"]["response_format"], json!(["text", "json_object", "json_schema"]));
    let schema = |schema: &Value| json!({"type": "json_schema", "json_schema": {"name": "weather", "schema": schema}});
    for seed in 0..5 {
        let format = schema(&weather()["parameters"]);
        let reply = complete(address, json!({"response_format": format, "seed": seed})).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_fits(reply.json()["choices"][0]["message"]["content"].as_str().unwrap());
        let reply = complete(address, json!({"response_format": {"type": "json_object"}, "seed": seed})).await.json();
        let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(text).unwrap().is_object(), "{text}");
    }
    for (of, part) in [
        (json!({"type": "string", "pattern": "^a"}), "`pattern`"),
        (json!({"$ref": "#"}), "no value"),
        (json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}), "no value"),
    ] {
        let reply = complete(address, json!({"response_format": schema(&of)})).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_value"), "{}", reply.body);
        assert!(reply.body.contains(part), "{}", reply.body);
    }
}

#[tokio::test]
async fn completions_call_demanded_functions() {
    let address = serve().await;
    let tools = json!([{"type": "function", "function": weather()}]);
    let named = json!({"type": "function", "function": {"name": "weather"}});
    for choice in [json!("required"), named] {
        let reply = complete(address, json!({"tools": tools, "tool_choice": choice})).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let choice = &reply.json()["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &Value::Null));
        let call = &choice["message"]["tool_calls"][0];
        assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("weather")), "{call}");
        assert_fits(call["function"]["arguments"].as_str().unwrap());
        // The result comes with the call, and the model speaks of it.
        let messages = json!([
            {"role": "user", "content": "Is it warm in Oslo?"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "12 degrees"},
        ]);
        let answer = complete(address, json!({"messages": messages, "tools": tools, "tool_choice": "none"})).await;
        assert_eq!((answer.status, &answer.json()["choices"][0]["message"]["tool_calls"]), (200, &Value::Null));
    }
    let streamed = complete(address, json!({"tools": tools, "tool_choice": "required", "stream": true})).await;
    let events = streamed.body.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let chunks: Vec<Value> = events.filter_map(|event| serde_json::from_str(event).ok()).collect();
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]).collect();
    let begun = deltas.iter().find(|delta| delta["id"].is_string()).unwrap();
    assert_eq!((&begun["index"], &begun["function"]["name"]), (&json!(0), &json!("weather")));
    assert_fits(&deltas.iter().filter_map(|delta| delta["function"]["arguments"].as_str()).collect::<String>());
    assert_eq!(chunks[chunks.len() - 1]["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn openai_client_gets_forms_and_calls() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join("target/tools/clients/bin/python");
    if !python.exists() {
        return println!("SKIPPED: the stock clients are not installed; scripts/setup.sh tests installs them");
    }
    // The second program of the page.
    let page = include_str!("../../../docs/tools.md");
    let program = page.split("```python\n").nth(2).and_then(|rest| rest.split("```").next()).unwrap();
    let address = serve().await;
    let mut command = Command::new(python);
    command.arg("-c").arg(program.replace("127.0.0.1:8080", &address.to_string())).kill_on_drop(true);
    let output = timeout(PATIENCE, command.env_remove("OPENAI_API_KEY").output()).await.expect("it ends").unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let [text, call] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    for printed in [text, call.strip_prefix("weather ").unwrap()] {
        assert!(
            printed.contains("'city': ") && ["'celsius'", "'fahrenheit'"].iter().any(|unit| printed.contains(unit))
        );
    }
    let metrics = send(address, "GET", "/metrics", &[], b"").await.body;
    for form in ["call", "json_schema"] {
        assert!(metrics.contains(&format!("repartee_held_answers_total{{form=\"{form}\"}} 1\n")), "{metrics}");
    }
}

#[tokio::test]
async fn wrong_functions_of_completions_are_named() {
    let address = serve().await;
    let tools = json!([{"type": "function", "function": weather()}]);
    let time = json!({"type": "function", "function": {"name": "time"}});
    let result = json!([{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "call_1", "content": "b"}]);
    for (request, param) in [
        (json!({"tools": [{"type": "mcp"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function", "function": {"name": ""}}]}), "tools[0].function.name"),
        (
            json!({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}),
            "tools[0].function.parameters",
        ),
        (json!({"tools": tools, "tool_choice": time}), "tool_choice"),
        (json!({"tools": tools, "tool_choice": "always"}), "tool_choice"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"messages": result}), "messages[1].tool_call_id"),
    ] {
        let reply = complete(address, request).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_value"), "{}", reply.body);
        assert_eq!(reply.json()["error"]["param"], param);
    }
}

#[tokio::test]
async fn forced_calls_of_sessions_fit_their_function() {
    let address = serve().await;
    let mut client = connect(address).await;
    let mut tool = weather();
    tool["type"] = "function".into();
    for choice in [json!("required"), json!({"type": "function", "name": "weather"})] {
        client
            .update(json!({"type": "realtime", "tools": [tool], "tool_choice": choice, "output_modalities": ["text"]}))
            .await;
        let events = client.ask("Is it warm in Oslo?").await;
        let output = &find(&events, "response.done")["response"]["output"];
        assert_eq!((output.as_array().unwrap().len(), &output[0]["type"]), (1, &json!("function_call")), "{output}");
        assert_eq!(output[0]["name"], "weather");
        assert_fits(output[0]["arguments"].as_str().unwrap());
    }
    let metrics = send(address, "GET", "/metrics", &[], b"").await.body;
    assert!(metrics.contains("repartee_held_answers_total{form=\"call\"} 2\n"), "{metrics}");
    // A form that is not understood fails its response; the session goes on.
    tool["parameters"] = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "a"}}});
    client.update(json!({"tools": [tool]})).await;
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("response.done").await;
    let failed = &find(&events, "response.done")["response"];
    assert_eq!(failed["status"], "failed", "{failed}");
    let refused = client.error("invalid_value").await;
    assert!(refused["message"].as_str().unwrap().contains("`pattern`"), "{refused}");
    client.update(json!({"tool_choice": "none"})).await;
    let events = client.ask("Is it warm in Oslo?").await;
    assert_eq!(find(&events, "response.done")["response"]["output"][0]["type"], "message");
}
