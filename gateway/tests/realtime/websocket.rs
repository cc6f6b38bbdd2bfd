//! Functions, out-of-band responses, speculation, silence and who interrupts, over the websocket.

use std::sync::Arc;

use repartee::config::BargeInSetting;
use repartee_engine_api::Command;
use repartee_media::sound_file;
use repartee_testkit::scripted::{Script, ScriptedResponse};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{PATIENCE, Running, find, kinds, question, silence};

#[tokio::test]
async fn a_function_result_is_spoken() {
    let call = Some(("weather".to_owned(), vec!["{\"city\": ".to_owned(), "\"Oslo\"}".to_owned()]));
    let server = Running::start(Script { call, ..Script::default() }).await;
    let mut client = server.connect().await;
    let tool = json!({"type": "function", "name": "weather", "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}});
    client.update(json!({"tools": [tool], "tool_choice": "auto"})).await;
    client.speak(&question(), 480).await;
    let events = client.until("response.done").await;
    let done = find(&events, "response.function_call_arguments.done");
    assert_eq!((&done["name"], &done["arguments"]), (&json!("weather"), &json!("{\"city\": \"Oslo\"}")));
    let deltas = events.iter().filter(|event| event["type"] == "response.function_call_arguments.delta");
    assert_eq!(deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>(), "{\"city\": \"Oslo\"}");
    let output = &find(&events, "response.done")["response"]["output"];
    assert_eq!((&output[0]["type"], &output[0]["status"]), (&json!("function_call"), &json!("completed")));
    let item = json!({"type": "function_call_output", "call_id": done["call_id"], "output": "Rain."});
    client.send(json!({"type": "conversation.item.create", "item": item})).await;
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("response.done").await;
    assert_eq!(find(&events, "conversation.item.added")["previous_item_id"], output[0]["id"]);
    assert_eq!(find(&events, "response.output_audio_transcript.done")["transcript"], "The tool says: Rain.");
}

/// The calls that the server lists.
async fn listed(server: &Running) -> Vec<Value> {
    let reply = send(server.address, "GET", "/v1/realtime/calls", &[], b"").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_listed_websocket_is_hung_up() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.ask("hello").await;
    client.send(json!({"type": "conversation.item.delete", "item_id": "item_nobody"})).await;
    client.until("error").await;
    let calls = listed(&server).await;
    let [call] = &calls[..] else { panic!("one call runs: {calls:?}") };
    assert_eq!(
        (&call["transport"], &call["address"], &call["key"]),
        (&json!("websocket"), &json!("127.0.0.1"), &json!("none"))
    );
    assert_eq!((&call["answers"], &call["errors"], &call["ended"]), (&json!(1), &json!(1), &Value::Null));
    let path = format!("/v1/realtime/calls/{}/hangup", call["id"].as_str().unwrap());
    assert_eq!(send(server.address, "POST", &path, &[], b"").await.status, 200);
    // The session is free a moment before the call is listed as ended.
    let calls = loop {
        let calls = listed(&server).await;
        if calls.iter().all(|call| !call["ended"].is_null()) {
            break calls;
        }
    };
    let [ended] = &calls[..] else { panic!("one call has ended: {calls:?}") };
    assert_eq!((&ended["id"], &ended["ended"], &ended["answers"]), (&call["id"], &json!("hangup"), &json!(1)));
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_call_seconds_count{end=\"hangup\",transport=\"websocket\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn an_out_of_band_response_runs_in_parallel() {
    let gate = Arc::new(Semaphore::new(1));
    let server = Running::start(Script { gate: Some(gate.clone()), ..Script::default() }).await;
    let mut client = server.connect().await;
    client.send(json!({"type": "response.create"})).await;
    client.until("response.output_audio.delta").await;
    let content = json!([{"type": "input_text", "text": "Are they angry?"}]);
    let input = json!([{"type": "message", "role": "user", "content": content}]);
    client
        .send(json!({"type": "response.create", "response": {"conversation": "none", "input": input,
            "output_modalities": ["text"], "metadata": {"client_event_id": "abc"}}}))
        .await;
    let events = client.until("response.done").await;
    let done = &find(&events, "response.done")["response"];
    assert_eq!((&done["metadata"]["client_event_id"], &done["conversation_id"]), (&json!("abc"), &Value::Null));
    assert_eq!(done["output"][0]["content"][0]["text"], "You wrote: Are they angry?");
    assert!(!kinds(&events).iter().any(|kind| kind.starts_with("conversation.item")));
    gate.add_permits(4);
    let events = client.until("response.done").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
}

#[tokio::test]
async fn a_speculation_is_aborted_when_speech_resumes() {
    let responses = ["First.", "Second."]
        .map(|text| ScriptedResponse { text: Some(text.into()), frames: 2, hold_after_frames: None })
        .to_vec();
    let server = Running::start(Script { responses, ..Script::default() }).await;
    let mut client = server.connect().await;
    // A pause within the turn.
    let question = question();
    let voice = &question[12_000..question.len() - 24_000];
    let mut speech = silence(500);
    for part in [voice, &silence(350), voice, &silence(1_000)] {
        speech.extend_from_slice(part);
    }
    client.speak(&speech, 480).await;
    let events = client.until("response.done").await;
    assert_eq!(events.iter().filter(|event| event["type"] == "input_audio_buffer.speech_started").count(), 1);
    assert_eq!(find(&events, "response.output_audio_transcript.done")["transcript"], "First.");
    // The held answer may be sent before the commit reaches the engine.
    let commits = |command: &Command| matches!(command, Command::CommitSpeculation { .. });
    timeout(PATIENCE, server.engine.received(commits)).await.expect("the speculation is committed");
    let commands = server.engine.commands();
    let count = |wanted: fn(&Command) -> bool| commands.iter().filter(|command| wanted(command)).count();
    let begun = count(|command| matches!(command, Command::BeginSpeculation { .. }));
    assert!(begun >= 2, "the pause in the middle was suspected too");
    assert_eq!(count(|command| matches!(command, Command::AbortSpeculation { .. })), begun - 1);
    assert_eq!(count(commits), 1);
    assert_eq!(count(|command| matches!(command, Command::Respond(_))), 0);
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_speculations_total{outcome=\"committed\"} 1"), "{metrics}");
    // Without speculation the same sound also gives one answer to the same turn.
    let (start, end) =
        (find(&events, "input_audio_buffer.speech_started"), find(&events, "input_audio_buffer.speech_stopped"));
    let mut plain = server.connect().await;
    plain.update(json!({"repartee": {"speculative_start": false}})).await;
    plain.speak(&speech, 480).await;
    let again = plain.until("response.done").await;
    assert_eq!(kinds(&again), kinds(&events));
    assert_eq!(find(&again, "input_audio_buffer.speech_started")["audio_start_ms"], start["audio_start_ms"]);
    assert_eq!(find(&again, "input_audio_buffer.speech_stopped")["audio_end_ms"], end["audio_end_ms"]);
}

#[tokio::test]
async fn eagerness_sets_the_endpointing_delay() {
    let server = Running::start(Script::default()).await;
    let mut ends = Vec::new();
    for eagerness in ["high", "medium", "low"] {
        let mut client = server.connect().await;
        let detection = json!({"type": "semantic_vad", "eagerness": eagerness});
        client.update(json!({"audio": {"input": {"turn_detection": detection}}})).await;
        let mut speech = question();
        speech.extend(silence(1_000));
        client.speak(&speech, 480).await;
        let events = client.until("response.done").await;
        ends.push(find(&events, "input_audio_buffer.speech_stopped")["audio_end_ms"].as_u64().unwrap());
    }
    // In frames of the detector, 16 ms.
    assert!((ends[1] - ends[0]).abs_diff(300) < 16 && (ends[2] - ends[0]).abs_diff(800) < 16, "{ends:?}");
}

#[tokio::test]
async fn the_idle_timeout_triggers_a_response() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    let detection = json!({"type": "server_vad", "idle_timeout_ms": 5_000});
    client.update(json!({"audio": {"input": {"turn_detection": detection}}})).await;
    client.update(json!({"output_modalities": ["text"]})).await;
    client.ask("hello").await;
    client.speak(&silence(6_000), 2_400).await;
    let events = client.until("response.done").await;
    assert_eq!(
        kinds(&events)[..5],
        [
            "input_audio_buffer.timeout_triggered",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
        ]
    );
    assert_eq!(find(&events, "response.output_text.done")["text"], "I heard 5000 ms.");
}

/// Loads a recording of `tests/interruptions` at 24 kHz: `from_ms` and the duration of its part.
fn recording(file: &str, from_ms: usize, ms: usize) -> Vec<f32> {
    let path = format!("{}/../tests/interruptions/{file}", env!("CARGO_MANIFEST_DIR"));
    let sound = sound_file::read(&std::fs::read(path).unwrap()[..], 24_000, PATIENCE).unwrap();
    sound[from_ms * 24..(from_ms + ms) * 24].to_vec()
}

#[tokio::test]
async fn a_command_interrupts_and_a_backchannel_does_not() {
    // The client has half a minute of the answer, whatever it hears meanwhile.
    let server = Running::start_with(Script { frames: 400, ..Script::default() }, |config| {
        config.turns.barge_in = BargeInSetting::Balanced;
    })
    .await;
    let mut client = server.connect().await;
    client.speak(&question(), 480).await;
    client.until("response.done").await;
    let mut listening = silence(500);
    // The network is sure of these; `make bench-interruptions` counts those that it mistakes.
    for file in ["yeah-adam.wav", "sure-lewis.wav", "yeah-sarah.wav"] {
        listening.extend(recording(file, 0, 200));
        listening.extend(silence(1_500));
    }
    client.speak(&listening, 480).await;
    let heard_s = (question().len() + listening.len()) as f64 / 24_000.0;
    client.speak(&recording("starts/am_puck.opus", 7_456, 296), 480).await;
    client.speak(&silence(1_500), 480).await;
    let events = client.until("response.done").await;
    let started: Vec<_> = events.iter().filter(|event| event["type"] == "input_audio_buffer.speech_started").collect();
    assert_eq!(started.len(), 1, "{:?}", kinds(&events));
    let start_s = started[0]["audio_start_ms"].as_f64().unwrap() / 1_000.0;
    assert!((start_s - heard_s).abs() < 0.5, "the turn begins with the command: {start_s} s of {heard_s} s");
}
