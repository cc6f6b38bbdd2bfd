//! A cascade whose language model is a chat-completions server, over the websocket: speech, functions, barge-in, failures.

use repartee_chat_testkit::{
    LAST_CHUNK, ReceivedRequest, STREAM_HEAD, TestServer, answer, chunk, event, finish_event, response, text_event,
};
use repartee_engine::EngineConfig;
use repartee_gateway_testkit::thinker::Cascade;
use repartee_gateway_testkit::{PATIENCE, find, sound};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

const VOICE: Option<&str> = Some("tts_custom");
/// Places of a queue of the test.
const QUEUE: usize = 64;
const SORRY: &str = "Sorry, I cannot answer right now. Please ask me again.";

/// Server that sends these responses one after another, and hands over its requests.
fn scripted(responses: Vec<String>) -> (TestServer, mpsc::Receiver<ReceivedRequest>) {
    let (requests, received) = mpsc::channel(QUEUE);
    let responses = std::sync::Arc::new(std::sync::Mutex::new(std::collections::VecDeque::from(responses)));
    let llm = TestServer::new(move |_, mut peer| {
        let (requests, responses) = (requests.clone(), responses.clone());
        async move {
            while let Some(request) = peer.try_request().await {
                requests.send(request).await.unwrap();
                let response = responses.lock().unwrap().pop_front().expect("a response for each request");
                peer.send(response).await;
            }
        }
    });
    (llm, received)
}

/// Response with two calls of functions behind a text.
fn calls() -> String {
    let call = |index: usize, id: &str, arguments: &str| {
        let function = json!({"name": "weather", "arguments": arguments});
        json!({"index": index, "id": id, "type": "function", "function": function})
    };
    let delta = |delta: Value| event(json!({"choices": [{"delta": delta}]}));
    let body = [
        text_event("I look. "),
        delta(json!({"tool_calls": [call(0, "call_a", "{\"city\": ")]})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "\"Oslo\"}"}}]})),
        delta(json!({"tool_calls": [call(1, "call_b", "{\"city\": \"Rome\"}")]})),
        finish_event("tool_calls"),
        event("[DONE]"),
    ];
    format!("{STREAM_HEAD}{}{LAST_CHUNK}", chunk(&body.concat()))
}

fn transcript(events: &[Value]) -> &Value {
    &find(events, "response.output_audio_transcript.done")["transcript"]
}

#[tokio::test]
async fn a_conversation_is_spoken() {
    let (llm, mut requests) = scripted(vec![answer("The dog sleeps."), answer("It does.")]);
    let server = Cascade::serve(&llm.listen().await, VOICE, |_| {}).await;
    let mut client = server.connect().await;
    client.update(json!({"instructions": "be brief"})).await;
    let events = client.ask("What does the dog do?").await;
    assert_eq!(transcript(&events), "The dog sleeps.");
    assert!(sound(&events).iter().any(|sample| sample.abs() > 1e-3));
    assert_eq!(transcript(&client.ask("Really?").await), "It does.");
    requests.recv().await.unwrap();
    let messages = requests.recv().await.unwrap().json()["messages"].clone();
    let expected = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "What does the dog do?"},
        {"role": "assistant", "content": "The dog sleeps."},
        {"role": "user", "content": "Really?"},
    ]);
    assert_eq!(messages, expected);
}

#[tokio::test]
async fn parallel_calls_go_there_and_back() {
    let (llm, mut requests) = scripted(vec![calls(), answer("Rain and sun.")]);
    let server = Cascade::serve(&llm.listen().await, VOICE, |_| {}).await;
    let mut client = server.connect().await;
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool = json!({"type": "function", "name": "weather", "description": "Tells it.", "parameters": parameters});
    client.update(json!({"tools": [tool]})).await;
    let events = client.ask("How is the weather in Oslo and Rome?").await;
    assert_eq!(transcript(&events), "I look. ");
    assert!(!sound(&events).is_empty(), "the text before the calls is spoken");
    let done: Vec<_> = events.iter().filter(|event| event["type"] == "response.function_call_arguments.done").collect();
    let arguments: Vec<_> = done.iter().map(|call| &call["arguments"]).collect();
    assert_eq!(arguments, [&json!("{\"city\": \"Oslo\"}"), &json!("{\"city\": \"Rome\"}")]);
    let request = requests.recv().await.unwrap().json();
    let function = json!({"name": "weather", "description": "Tells it.", "parameters": parameters});
    assert_eq!(request["tools"], json!([{"type": "function", "function": function}]));

    // The results come in the other order.
    for (call, output) in [(done[1], "sun"), (done[0], "rain")] {
        let item = json!({"type": "function_call_output", "call_id": call["call_id"], "output": output});
        client.send(json!({"type": "conversation.item.create", "item": item})).await;
    }
    client.send(json!({"type": "response.create"})).await;
    assert_eq!(transcript(&client.until("response.done").await), "Rain and sun.");
    let messages = requests.recv().await.unwrap().json()["messages"].clone();
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}});
    let expected = json!([
        {"role": "system", "content": EngineConfig::default().spoken_answers.instructions},
        {"role": "user", "content": "How is the weather in Oslo and Rome?"},
        {"role": "assistant", "content": "I look. ",
         "tool_calls": [call("call_1", "{\"city\": \"Oslo\"}"), call("call_2", "{\"city\": \"Rome\"}")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_2", "content": "sun"},
    ]);
    assert_eq!(messages, expected);
}

#[tokio::test]
async fn an_answer_of_calls_alone_is_no_failure() {
    let delta = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "stop", "arguments": "{}"}}]});
    let body = [event(json!({"choices": [{"delta": delta}]})), finish_event("tool_calls"), event("[DONE]")].concat();
    let (llm, _requests) = scripted(vec![format!("{STREAM_HEAD}{}{LAST_CHUNK}", chunk(&body)), answer("Well.")]);
    let server = Cascade::serve(&llm.listen().await, VOICE, |_| {}).await;
    let mut client = server.connect().await;
    let tool = json!({"type": "function", "name": "stop", "description": "", "parameters": {"type": "object"}});
    client.update(json!({"tools": [tool]})).await;
    let events = client.ask("Stop it.").await;
    let done = &find(&events, "response.done")["response"];
    assert_eq!((&done["status"], &done["output"][0]["type"]), (&json!("completed"), &json!("function_call")), "{done}");
    // The call never gets a result, and the next turn is answered.
    assert_eq!(transcript(&client.ask("And now?").await), "Well.");
}

#[tokio::test]
async fn a_barge_in_cancels_the_request() {
    let (closed, mut was_closed) = mpsc::channel(QUEUE);
    let llm = TestServer::new(move |number, mut peer| {
        let closed = closed.clone();
        async move {
            if number > 0 {
                while peer.try_request().await.is_some() {
                    peer.send(answer("Go on.")).await;
                }
                return;
            }
            peer.request().await;
            let text = text_event("The dog and the fox and the man and the dog are here. ");
            peer.send(format!("{STREAM_HEAD}{}", chunk(&text))).await;
            peer.closed().await;
            closed.send(()).await.unwrap();
        }
    });
    let server = Cascade::serve(&llm.listen().await, VOICE, |_| {}).await;
    let mut client = server.connect().await;
    let content = json!([{"type": "input_text", "text": "Tell me a story."}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    client.send(json!({"type": "conversation.item.create", "item": item})).await;
    client.send(json!({"type": "response.create"})).await;
    client.until("response.output_audio.delta").await;
    client.send(json!({"type": "response.cancel"})).await;
    let events = client.until("response.done").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "cancelled");
    timeout(PATIENCE, was_closed.recv()).await.expect("the request ends").unwrap();
    assert_eq!(transcript(&client.ask("Well?").await), "Go on.");
}

#[tokio::test]
async fn failures_are_spoken_or_reported_once() {
    let busy = || response("429 Too Many Requests", "Retry-After: 3600\r\n", "");
    let (llm, _requests) = scripted(vec![busy(), busy(), answer("Well."), answer("Good.")]);
    let server = Cascade::serve(&llm.listen().await, VOICE, |_| {}).await;
    let mut client = server.connect().await;
    let events = client.ask("Hello?").await;
    assert_eq!(transcript(&events), SORRY);
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    assert!(!sound(&events).is_empty());

    let content = json!([{"type": "input_text", "text": "Hello?"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    client.send(json!({"type": "conversation.item.create", "item": item})).await;
    client.send(json!({"type": "response.create", "response": {"output_modalities": ["text"]}})).await;
    let events = client.until("response.done").await;
    let failed = &find(&events, "response.done")["response"];
    assert_eq!(
        (&failed["status"], &failed["status_details"]["error"]["code"]),
        (&json!("failed"), &json!("language_model_failed"))
    );
    // No event of its own repeats the failure.
    let events = client.ask("Hello?").await;
    assert!(events.iter().all(|event| event["type"] != "error"), "{events:?}");
    assert_eq!(transcript(&events), "Well.");
    assert_eq!(transcript(&client.ask("Good?").await), "Good.");
}
