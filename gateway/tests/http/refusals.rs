//! Invalid input: a typed error, the connection stays open, other calls are unaffected.

use futures_util::SinkExt as _;
use repartee_testkit::scripted::Script;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{Client, Running, question, silence};

/// Asserts that the connection still answers.
async fn assert_alive(client: &mut Client) {
    client.update(json!({})).await;
}

#[tokio::test]
async fn malformed_events_keep_the_connection() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    for (text, code, param) in [
        ("hello", "invalid_json", Value::Null),
        ("[]", "invalid_json", Value::Null),
        (r#"{"event_id":"e"}"#, "missing_required_parameter", json!("type")),
        (r#"{"type":"party.start"}"#, "unknown_event_type", json!("type")),
        (r#"{"type":"session.update"}"#, "missing_required_parameter", json!("session")),
        (r#"{"type":"session.update","session":3}"#, "invalid_value", json!("session")),
        (r#"{"type":"input_audio_buffer.append"}"#, "missing_required_parameter", json!("audio")),
        (r#"{"type":"input_audio_buffer.append","audio":"%%%"}"#, "invalid_audio", json!("audio")),
        (r#"{"type":"input_audio_buffer.append","audio":"AA=="}"#, "invalid_audio", json!("audio")),
        (r#"{"type":"conversation.item.retrieve","item_id":"x"}"#, "item_retrieve_invalid_item_id", json!("item_id")),
        (r#"{"type":"conversation.item.delete","item_id":"x"}"#, "item_delete_invalid_item_id", json!("item_id")),
        (r#"{"type":"output_audio_buffer.clear"}"#, "invalid_value", json!("type")),
    ] {
        client.send_text(text).await;
        assert_eq!(client.error(code).await["param"], param, "{text}");
    }
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn an_error_names_the_event_that_caused_it() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.send(json!({"type": "input_audio_buffer.append", "event_id": "mine", "audio": "%"})).await;
    assert_eq!(client.error("invalid_audio").await["event_id"], "mine");
    client.send(json!({"type": "response.cancel", "event_id": "other"})).await;
    let error = client.error("response_cancel_not_active").await;
    assert_eq!(error["event_id"], "other");
    assert!(error["message"].as_str().unwrap().starts_with("Cancellation failed"));
}

#[tokio::test]
async fn an_oversized_event_keeps_the_connection() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    let audio = "A".repeat(16 << 20);
    client.send(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
    client.error("message_too_large").await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn an_event_too_large_to_skip_disconnects() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    let text = "x".repeat(31 << 20);
    // The server may stop reading before the whole text was written.
    let _ = client.socket.feed(Message::text(text)).await;
    let _ = client.socket.flush().await;
    client.error("message_too_large").await;
    let Some(Message::Close(Some(frame))) = client.message().await else { panic!("a farewell") };
    assert_eq!(u16::from(frame.code), 1009);
    server.sessions(0).await;
}

#[tokio::test]
async fn a_second_commit_finds_the_buffer_empty() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.update(json!({"audio": {"input": {"turn_detection": null}}})).await;
    client.speak(&silence(500), 480).await;
    client.send(json!({"type": "input_audio_buffer.commit"})).await;
    client.until("conversation.item.done").await;
    client.send(json!({"type": "input_audio_buffer.commit"})).await;
    client.error("input_audio_buffer_commit_empty").await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn binary_messages_need_opus_input() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.socket.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    client.error("invalid_audio").await;
    assert_alive(&mut client).await;
}

#[tokio::test]
async fn errors_stay_with_their_caller() {
    let server = Running::start(Script::default()).await;
    let (mut clumsy, mut other) = (server.connect().await, server.connect().await);
    other.speak(&question()[..40_000], 480).await;
    for _ in 0..100 {
        clumsy.send_text("{").await;
        clumsy.error("invalid_json").await;
    }
    drop(clumsy);
    other.speak(&question()[40_000..], 480).await;
    let events = other.until("response.done").await;
    assert!(events.iter().all(|event| event["type"] != "error"));
}

#[tokio::test]
async fn settings_of_stock_clients_give_warnings() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    let session = client
        .update(json!({
            "type": "realtime", "model": "gpt-realtime", "tracing": "auto", "new_field": {"a": 1},
            "audio": {
                "input": {"noise_reduction": {"type": "near_field"}, "transcription": {"model": "whisper-1"},
                    "turn_detection": {"type": "semantic_vad", "eagerness": "high", "interrupt_response": false}},
                "output": {"voice": "marin", "speed": 1.5, "format": {"type": "audio/pcm", "rate": 24000}},
            },
        }))
        .await;
    assert_eq!(session["model"], "scripted");
    assert_eq!(session["audio"]["output"]["voice"], "ada");
    let detection = json!({"type": "semantic_vad", "eagerness": "high", "create_response": true,
        "interrupt_response": false});
    assert_eq!(session["audio"]["input"]["turn_detection"], detection);
    assert_eq!(session["audio"]["input"]["noise_reduction"], json!({"type": "near_field"}));
    let warnings = session["repartee"]["warnings"].as_array().unwrap();
    assert!(!warnings.iter().any(|warning| warning.to_string().contains("noise_reduction")), "{warnings:?}");
    assert!(warnings.contains(&json!("session.audio.output.voice: `marin` is served as `ada`")), "{warnings:?}");
    assert!(warnings.contains(&json!("session.new_field is not known here and was ignored")), "{warnings:?}");
}

#[tokio::test]
async fn documented_translation_answers_slice_by_slice() {
    let page = include_str!("../../../docs/live.md");
    let example = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let server = Running::start(Script { has_transcription: true, ..Script::default() }).await;
    let mut client = server.connect().await;
    client.send_text(example).await;
    let session = client.expect("session.updated").await["session"].clone();
    assert_eq!(session["repartee"]["slice_ms"], 2_000, "{session}");
    // Two whole slices without a pause, and the caller goes on.
    let sound: Vec<f32> = question().into_iter().cycle().take(24_000 * 5).collect();
    client.speak(&sound, 480).await;
    let mut events = client.until("response.done").await;
    events.extend(client.until("response.done").await);
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert!(count("input_audio_buffer.committed") >= 2 && count("response.output_audio.delta") >= 2, "{events:?}");
    // What is said is written down, too, before or behind the answers.
    let written = "conversation.item.input_audio_transcription.completed";
    if count(written) == 0 {
        client.until(written).await;
    }
}

#[tokio::test]
async fn unserved_interfaces_are_named() {
    let server = Running::start(Script::default()).await;
    for (method, path, word) in [
        ("POST", "/v1/realtime/translations/client_secrets", "translation sessions"),
        ("POST", "/v1/live/sessions", "Live sessions"),
        ("POST", "/v1/realtime/sessions", "/v1/realtime/client_secrets"),
        ("POST", "/v1/realtime/calls/rtc_1/accept", "docs/telephone.md"),
        ("POST", "/v1/responses", "/v1/chat/completions"),
        ("GET", "/v1/nothing", "no such path"),
    ] {
        let reply = send(server.address, method, path, &[], b"{}").await;
        assert_eq!((reply.status, &*reply.code()), (404, "not_found"), "{path}: {reply:?}");
        assert!(reply.body.contains(word), "{path}: {}", reply.body);
    }
}
