//! `POST /v1/chat/completions`: one question in one upload.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee::auth::KeySet;
use repartee_engine::{Engine, EngineConfig};
use repartee_engine_api::{Command, SessionError};
use repartee_media::pcm;
use repartee_media::sound_file;
use repartee_media::wav;
use repartee_testkit::scripted::{FRAME_SAMPLES, OUTPUT_RATE, Script, ScriptedEngine, voice};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use repartee_gateway_testkit::http::{Reply, send};
use repartee_gateway_testkit::{PATIENCE, Running, serve_engine};

const PATH: &str = "/v1/chat/completions";
const JSON: (&str, &str) = ("content-type", "application/json");

async fn complete(server: &Running, request: &Value) -> Reply {
    send(server.address, "POST", PATH, &[JSON], request.to_string().as_bytes()).await
}

/// Wav file of one second of sound, in base64.
fn second() -> String {
    STANDARD.encode(wav::encode(&vec![0.1; 8_000], 8_000).unwrap())
}

fn spoken(format: Option<&str>) -> Value {
    let sound = json!({"type": "input_audio", "input_audio": {"data": second(), "format": "wav"}});
    let mut request = json!({
        "model": "gpt-audio", "modalities": ["text", "audio"],
        "messages": [{"role": "user", "content": [sound]}],
    });
    if let Some(format) = format {
        request["audio"] = json!({"voice": "bob", "format": format});
    }
    request
}

/// Chunks of a stream, without its end mark.
fn chunks(reply: &Reply) -> Vec<Value> {
    reply.assert_events();
    let mut data: Vec<_> = reply.body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    data.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Asserts five frames of the scripted voice.
fn assert_voice(samples: &[f32]) {
    assert_eq!(samples.len(), 5 * FRAME_SAMPLES);
    assert!((0..5).flat_map(voice).zip(samples).all(|(a, b)| (a - b).abs() < 1e-3));
}

#[tokio::test]
async fn a_spoken_question_gets_a_wav_answer() {
    let server = Running::start(Script::default()).await;
    for format in [Some("wav"), None] {
        let reply = complete(&server, &spoken(format)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer = reply.json();
        assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("scripted")));
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "stop");
        assert_eq!((&choice["message"]["role"], &choice["message"]["content"]), (&json!("assistant"), &Value::Null));
        let audio = &choice["message"]["audio"];
        assert_eq!(audio["transcript"], "I heard 1000 ms.");
        let file = STANDARD.decode(audio["data"].as_str().unwrap()).unwrap();
        assert_voice(&sound_file::read(&file[..], OUTPUT_RATE, PATIENCE).unwrap());
        let usage = &answer["usage"];
        assert_eq!(
            (&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]),
            (&json!(30), &json!(9), &json!(39))
        );
        assert_eq!(usage["prompt_tokens_details"]["audio_tokens"], 20);
        assert_eq!(answer["repartee"]["warnings"][0], "model: `gpt-audio` is served as `scripted`");
    }
    server.sessions(0).await;
}

#[tokio::test]
async fn a_response_is_streamed_in_chunks() {
    let server = Running::start(Script::default()).await;
    let mut request = spoken(Some("pcm16"));
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_usage": true});
    let chunks = chunks(&complete(&server, &request).await);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(chunks[0]["repartee"]["warnings"].is_array() && chunks[1]["repartee"].is_null());
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"] && chunk["object"] == "chat.completion.chunk"));
    let audio: Vec<_> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["audio"]).collect();
    let transcript: String = audio.iter().filter_map(|audio| audio["transcript"].as_str()).collect();
    assert_eq!(transcript, "I heard 1000 ms.");
    let pieces: Vec<_> = audio.iter().filter_map(|audio| audio["data"].as_str()).collect();
    assert!(pieces.len() >= 5, "a piece for each frame, not {}", pieces.len());
    let sound: Vec<u8> = pieces.iter().flat_map(|piece| STANDARD.decode(piece).unwrap()).collect();
    assert_voice(&pcm::decode_i16le(&sound).unwrap());
    let [.., last, usage] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(39)));
    server.sessions(0).await;
}

#[tokio::test]
async fn text_gets_text_with_the_whole_history() {
    let server = Running::start(Script::default()).await;
    let mut request = json!({
        "model": "scripted", "temperature": 0, "seed": 5, "max_completion_tokens": 9, "tools": [], "store": true, "user": "me",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "And kind."}]},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "text", "text": "hello"}, {"type": "refusal", "refusal": "no"}]},
            {"role": "user", "content": "why?"},
            {"role": "assistant", "content": "because", "audio": null},
            {"role": "user", "content": [{"type": "text", "text": "how"}, {"type": "text", "text": "are you"}]},
        ],
    });
    let answer = complete(&server, &request).await.json();
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["content"], "You wrote: how\nare you");
    assert!(message["audio"].is_null());
    let warnings = answer["repartee"]["warnings"].to_string();
    assert!(warnings.contains("store is not known") && warnings.contains("user is not known"), "{warnings}");
    let commands = server.engine.commands();
    assert_eq!(commands[0], Command::SetInstructions("Be brief.\nAnd kind.".into()));
    // A refusal is text of the assistant.
    assert!(format!("{commands:?}").contains("hello\\nno"), "{commands:?}");
    let [.., Command::Respond(respond)] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((respond.item, respond.audio, respond.max_tokens, respond.seed), (6, false, Some(9), 5));
    assert_eq!(respond.sampling.unwrap().temperature, 0.0);

    request["stream"] = json!(true);
    let chunks = chunks(&complete(&server, &request).await);
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "You wrote: how\nare you");
}

/// A file of the decoder's tests, in base64.
fn fixture(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("media/testdata/sounds");
    STANDARD.encode(std::fs::read(folder.join(name)).unwrap())
}

#[tokio::test]
async fn sound_files_are_judged_by_their_bytes() {
    let server = Running::start(Script::default()).await;
    for (name, format) in [
        ("pipe.wav", "wav"),
        ("mu-law.wav", "mp3"),
        ("tone.mp3", "mp3"),
        ("tone.flac", "wav"),
        ("opus-stereo.ogg", "ogg"),
        ("opus.webm", "webm"),
        ("aac.m4a", "m4a"),
    ] {
        let sound = json!({"type": "input_audio", "input_audio": {"data": fixture(name), "format": format}});
        let reply = complete(&server, &json!({"messages": [{"role": "user", "content": [sound]}]})).await;
        let text = reply.json()["choices"][0]["message"]["content"].to_string();
        assert!(reply.status == 200 && text.starts_with("\"I heard 2"), "{name}: {} {text}", reply.status);
    }
    for (name, what) in [("tone.aiff", "an AIFF file"), ("adpcm.wav", "wav with Microsoft ADPCM")] {
        let sound = json!({"type": "input_audio", "input_audio": {"data": fixture(name), "format": "wav"}});
        let reply = complete(&server, &json!({"messages": [{"role": "user", "content": [sound]}]})).await;
        let message = reply.json()["error"]["message"].to_string();
        assert!(reply.status == 400 && message.contains(what), "{message}");
    }
}

#[tokio::test]
async fn sound_beyond_the_context_is_not_encoded() {
    let config = EngineConfig { session_tokens: 256, ..EngineConfig::default() };
    let (address, running) =
        serve_engine(Engine::start(repartee_gateway_testkit::fixture("dense"), &config).unwrap()).await;
    let ask = async |seconds: usize| {
        let file = STANDARD.encode(wav::encode(&vec![0.1; 8_000 * seconds], 8_000).unwrap());
        let sound = json!({"type": "input_audio", "input_audio": {"data": file, "format": "wav"}});
        let request = json!({"messages": [{"role": "user", "content": [sound]}], "max_tokens": 4});
        send(address, "POST", PATH, &[JSON], request.to_string().as_bytes()).await
    };
    let encoded = async || {
        let metrics = send(address, "GET", "/metrics", &[], b"").await.body;
        let line = metrics.lines().find_map(|line| line.strip_prefix("repartee_engine_rows_total{stage=\"encoder\"} "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = encoded().await;
    let refused = ask(120).await;
    assert_eq!((refused.status, &*refused.code()), (400, "invalid_audio"), "{}", refused.body);
    assert_eq!(encoded().await, before, "windows of a sound that no prompt has room for");
    let answered = ask(2).await;
    assert_eq!(answered.status, 200, "{}", answered.body);
    assert!(encoded().await > before);
    running.abort();
}

#[tokio::test]
async fn bad_requests_are_refused_without_a_slot() {
    let server = Running::start(Script::default()).await;
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let sound = |data: &str, format: &str| {
        user(json!([{"type": "input_audio", "input_audio": {"data": data, "format": format}}]))
    };
    let long = STANDARD.encode(wav::encode(&vec![0.0; 8_000 * 601], 8_000).unwrap());
    for (request, param) in [
        (json!({}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "system", "content": "x"}]}), "messages"),
        (json!({"messages": [{"role": "robot", "content": "x"}]}), "messages[0].role"),
        (json!({"messages": user(json!("x")), "n": 2}), "n"),
        (json!({"messages": user(json!("x")), "temperature": 3}), "temperature"),
        (json!({"messages": [{"role": 5, "content": "x"}]}), "messages[0].role"),
        (json!({"messages": user(json!(5))}), "messages[0].content"),
        (
            json!({"messages": user(json!([{"type": "text", "text": "x"}, {"type": "image_url"}]))}),
            "messages[0].content[1].type",
        ),
        (json!({"messages": user(json!([{"type": "text", "text": 5}]))}), "messages[0].content[0].text"),
        (
            json!({"messages": user(json!([{"type": "input_audio", "input_audio": {"data": "x"}}]))}),
            "messages[0].content[0].input_audio.data",
        ),
        (json!({"messages": user(json!("x")), "max_tokens": 1.5}), "max_tokens"),
        (json!({"messages": sound("%", "wav")}), "messages[0].content[0].input_audio.data"),
        (json!({"messages": sound("AAAA", "wav")}), "messages[0].content[0].input_audio.data"),
        (json!({"messages": sound(&long, "wav")}), "messages[0].content[0].input_audio.data"),
        (json!({"messages": sound(&fixture("tone.aiff"), "wav")}), "messages[0].content[0].input_audio.data"),
        (json!({"messages": sound(&fixture("alac.m4a"), "mp4")}), "messages[0].content[0].input_audio.data"),
        (json!({"messages": user(json!("x")), "modalities": ["audio"], "audio": {"format": "mp3"}}), "audio.format"),
        (
            json!({"messages": user(json!("x")), "modalities": ["audio"], "stream": true, "audio": {"format": "wav"}}),
            "audio.format",
        ),
    ] {
        let reply = complete(&server, &request).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{error}");
    }
    assert_eq!(send(server.address, "POST", PATH, &[JSON], b"{").await.status, 400);
    assert_eq!(send(server.address, "POST", PATH, &[JSON], &vec![b' '; 21 << 20]).await.status, 413);
    server.sessions(0).await;
}

#[tokio::test]
async fn capacity_and_key_are_checked_first() {
    let server = Running::start(Script { slots: 0, ..Script::default() }).await;
    let reply = complete(&server, &json!({})).await;
    assert_eq!((reply.status, &*reply.code()), (503, "session_limit_reached"));
    let server = Running::start_with(Script::default(), |config| {
        config.api_keys = KeySet::parse("a-key-that-nobody-has").unwrap();
    })
    .await;
    assert_eq!(complete(&server, &spoken(None)).await.status, 401);
}

#[tokio::test]
async fn an_engine_failure_is_an_error() {
    let failure = Some(SessionError::NotFinite { stage: "talker" });
    let server = Running::start(Script { failure, ..Script::default() }).await;
    let mut request = spoken(None);
    let reply = complete(&server, &request).await;
    assert_eq!((reply.status, &*reply.code()), (500, "internal_error"));
    request["stream"] = json!(true);
    let reply = complete(&server, &request).await;
    reply.assert_events();
    let error: Value = serde_json::from_str(reply.body.trim().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "internal_error");
    server.sessions(0).await;
}

#[tokio::test]
async fn a_disconnect_frees_the_session() {
    let gate = Some(Arc::new(Semaphore::new(1)));
    let server = Running::start(Script { gate, ..Script::default() }).await;
    for stream in [false, true] {
        let mut request = spoken(Some("pcm16"));
        request["stream"] = json!(stream);
        let body = request.to_string();
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let head = format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        if stream {
            // The answer has begun.
            timeout(PATIENCE, socket.read_u8()).await.unwrap().unwrap();
        }
        server.sessions(1).await;
        drop(socket);
        server.sessions(0).await;
    }
}

#[tokio::test]
async fn a_request_lasts_no_longer_than_a_call() {
    let gate = Some(Arc::new(Semaphore::new(1)));
    let script = Script { gate, ..Script::default() };
    let server = Running::start_with(script, |config| config.limits.call = Duration::from_millis(300)).await;
    let reply = complete(&server, &spoken(Some("wav"))).await;
    assert_eq!((reply.status, &*reply.code()), (408, "session_expired"), "{reply:?}");
    server.sessions(0).await;
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_errors_total{code=\"session_expired\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_stalled_reader_is_closed() {
    // More sound than any socket buffer holds.
    let script = Script { frames: 20_000, ..Script::default() };
    let server = Running::start_with(script, |config| config.stalled_after = Duration::from_millis(200)).await;
    let mut request = spoken(Some("pcm16"));
    request["stream"] = json!(true);
    let body = request.to_string();
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    server.sessions(1).await;
    server.sessions(0).await;
}

#[tokio::test]
async fn slow_uploads_keep_nobody_out() {
    let server = Running::start(Script::default()).await;
    let request = spoken(Some("wav")).to_string();
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let length = request.len();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        // The server begins to read it.
        let mut go_on = [0; 25];
        timeout(PATIENCE, socket.read_exact(&mut go_on)).await.unwrap().unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        socket.write_all(&request.as_bytes()[..100]).await.unwrap();
        slow.push(socket);
    }
    let reply = send(server.address, "POST", PATH, &[JSON], request.as_bytes()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    // A slow upload is served once it has arrived.
    let mut socket = slow.swap_remove(0);
    socket.write_all(&request.as_bytes()[100..]).await.unwrap();
    let mut status = [0; 12];
    timeout(PATIENCE, socket.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

/// All commands arrive in order, even far more than the session's queue holds.
#[tokio::test]
async fn a_long_history_is_submitted_whole() {
    let server = Running::start(Script::default()).await;
    let messages: Vec<_> = (0..1_000).map(|n| json!({"role": "user", "content": format!("{n}")})).collect();
    let answer = complete(&server, &json!({"messages": messages})).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "You wrote: 999");
    let engine: &ScriptedEngine = &server.engine;
    assert_eq!(engine.commands().len(), 1_001);
}

#[tokio::test]
async fn voices_of_other_forms_are_refused() {
    let server = Running::start(Script::default()).await;
    let ask = async |voice: Value| {
        let audio = json!({"voice": voice, "format": "wav"});
        let messages = json!([{"role": "user", "content": "hello"}]);
        complete(&server, &json!({"messages": messages, "modalities": ["text", "audio"], "audio": audio})).await
    };
    for voice in [json!({"id": {"id": 1}}), json!({}), json!(["any"]), json!(7), json!(true)] {
        let reply = ask(voice.clone()).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_value"), "{voice}");
        assert_eq!(reply.json()["error"]["param"], "audio.voice");
    }
    for voice in [json!("any"), json!({"id": "any"}), Value::Null] {
        assert_eq!(ask(voice.clone()).await.status, 200, "{voice}");
    }
}

#[tokio::test]
async fn demanded_json_is_refused() {
    let server = Running::start(Script::default()).await;
    let ask = async |format: Value| {
        let messages = json!([{"role": "user", "content": "hello"}]);
        complete(&server, &json!({"messages": messages, "response_format": format})).await
    };
    let schema = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}});
    for (format, named) in [
        (schema, "json_schema"),
        (json!({"type": "json_object"}), "json_object"),
        (json!({"type": "yaml"}), "text"),
        (json!({"type": 3}), "text"),
        (json!("json_object"), "text"),
        (json!([]), "text"),
    ] {
        let reply = ask(format.clone()).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_value"), "{format}");
        let error = &reply.json()["error"];
        assert_eq!(error["param"], "response_format.type");
        assert!(error["message"].as_str().unwrap().contains(&format!("`{named}`")), "{error}");
    }
    // The body's own bounds come first.
    let nested = (0..100).fold(json!({}), |inner, _| json!({"not": inner}));
    let bomb = ask(json!({"type": "json_schema", "json_schema": {"name": "x", "schema": nested}})).await;
    assert_eq!((bomb.status, &*bomb.code()), (400, "message_too_large"));
    for format in [json!({"type": "text"}), Value::Null] {
        let answer = ask(format).await.json();
        assert_eq!(answer["choices"][0]["message"]["content"], "You wrote: hello");
        assert_eq!(answer["repartee"], Value::Null, "it is served as asked");
    }
}

#[tokio::test]
async fn demanded_function_calls_are_refused() {
    let server = Running::start(Script::default()).await;
    let ask = async |choice: Value| {
        let messages = json!([{"role": "user", "content": "hello"}]);
        complete(&server, &json!({"messages": messages, "tool_choice": choice})).await
    };
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "get_time"}})] {
        let reply = ask(choice).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_value"));
        assert_eq!(reply.json()["error"]["param"], "tool_choice");
    }
    for choice in [json!("auto"), json!("none"), Value::Null] {
        let answer = ask(choice).await.json();
        assert_eq!(answer["choices"][0]["message"]["content"], "You wrote: hello");
        assert_eq!(answer["repartee"], Value::Null, "it is served as asked");
    }
}
