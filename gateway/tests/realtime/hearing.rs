//! A recogniser before a language model, behind the server.

use repartee_engine::{CascadeParts, Engine, EngineConfig};
use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{Client, connect, find, fixture, question, serve_engine};
use serde_json::{Value, json};

/// Session that answers in text, whose turns are committed.
async fn caller(address: std::net::SocketAddr) -> Client {
    let mut caller = connect(address).await;
    let input = json!({"turn_detection": null, "transcription": {"model": "any"}});
    caller.update(json!({"type": "realtime", "output_modalities": ["text"], "audio": {"input": input}})).await;
    caller
}

fn text(events: &[Value]) -> &Value {
    &find(events, "response.output_text.done")["text"]
}

#[tokio::test]
async fn a_heard_turn_is_answered_as_its_text() {
    let parts = CascadeParts { hear: Some(fixture("whisper")), think: Some(fixture("text_qwen2")), speak: None };
    let engine = Engine::start_cascade(parts, &EngineConfig::default(), |_| {}).unwrap();
    let (address, _server) = serve_engine(engine).await;
    let model = send(address, "GET", "/v1/models/checkpoint", &[], b"").await.json();
    assert_eq!(model["repartee"]["hears"], true, "{model}");
    let mut speaker = caller(address).await;
    speaker.speak(&question()[..60_000], 4_800).await;
    speaker.send(json!({"type": "input_audio_buffer.commit"})).await;
    speaker.send(json!({"type": "response.create"})).await;
    let mut events = speaker.until("response.done").await;
    if !events.iter().any(|event| event["type"] == "conversation.item.input_audio_transcription.completed") {
        events.extend(speaker.until("conversation.item.input_audio_transcription.completed").await);
    }
    let heard = find(&events, "conversation.item.input_audio_transcription.completed")["transcript"].as_str().unwrap();
    assert!(!heard.is_empty(), "the recogniser heard nothing");
    let deltas = events.iter().filter(|event| event["type"] == "conversation.item.input_audio_transcription.delta");
    let joined: String = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(joined, heard, "the deltas are the transcript");
    let mut writer = caller(address).await;
    assert_eq!(text(&events), text(&writer.ask(heard).await), "{heard:?}");
}

#[tokio::test]
async fn a_recogniser_alone_refuses_answers() {
    let (address, _server) = serve_engine(Engine::start(fixture("whisper"), &EngineConfig::default()).unwrap()).await;
    let mut writer = connect(address).await;
    writer.send(json!({"type": "response.create"})).await;
    let refused = writer.until("error").await;
    assert!(refused.iter().all(|event| event["type"] != "response.created"), "{refused:?}");
}
