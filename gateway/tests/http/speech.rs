//! `POST /v1/audio/speech`: speech synthesis of a given text.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{Command, SessionError};
use repartee_engine_testkit::folder;
use repartee_engine_testkit::speech::copy;
use repartee_media::resample::Resampler;
use repartee_media::{pcm, sound_file};
use repartee_testkit::scripted::{FRAME_SAMPLES, Script, voice, voice_at};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use repartee_gateway_testkit::http::{Chunked, Reply, send};
use repartee_gateway_testkit::{PATIENCE, Running, connect, find, serve_checkpoint, serve_engine, sound};

const PATH: &str = "/v1/audio/speech";
const TEXT: &str = "One two three. Four five!";

async fn speak(server: &Running, request: &Value) -> Reply {
    let headers = [("content-type", "application/json")];
    send(server.address, "POST", PATH, &headers, request.to_string().as_bytes()).await
}

fn request(format: &str) -> Value {
    json!({"model": "tts-1", "voice": "bob", "input": TEXT, "response_format": format})
}

/// Scripted speech of [`TEXT`]: one frame a word, each sentence from its first frame.
fn said() -> Vec<f32> {
    [3, 2].into_iter().flat_map(|words| (0..words).flat_map(voice)).collect()
}

fn assert_said(samples: &[f32]) {
    let said = said();
    assert_eq!(samples.len(), said.len());
    assert!(said.iter().zip(samples).all(|(a, b)| (a - b).abs() < 1e-3));
}

/// Samples of a wav file whose header holds no length.
fn wav_samples(file: &[u8]) -> Vec<f32> {
    assert!(file.starts_with(b"RIFF") && &file[36..40] == b"data", "{:?}", &file[..44]);
    assert_eq!(file[24..28], 24_000u32.to_le_bytes());
    pcm::decode_i16le(&file[44..]).unwrap()
}

/// Events of a stream.
fn events(reply: &Reply) -> Vec<Value> {
    reply.assert_events();
    let data = reply.body.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn text_is_read_in_each_format() {
    let server = Running::start(Script::default()).await;
    let wav = speak(&server, &request("wav")).await;
    assert_eq!((wav.status, wav.header("content-type")), (200, Some("audio/wav")), "{:?}", wav.head);
    assert!(wav.complete);
    assert_said(&wav_samples(&wav.bytes));
    let pcm = speak(&server, &request("pcm")).await;
    assert_eq!((pcm.status, pcm.header("content-type")), (200, Some("audio/pcm")));
    assert_said(&pcm::decode_i16le(&pcm.bytes).unwrap());
    let flac = speak(&server, &request("flac")).await;
    assert_eq!((flac.status, flac.header("content-type")), (200, Some("audio/flac")));
    let read = sound_file::read(&flac.bytes[..], 24_000, PATIENCE).unwrap();
    assert_eq!(pcm::encode_i16le(&read), pcm.bytes, "every sample");
    let opus = speak(&server, &request("opus")).await;
    assert_eq!((opus.status, opus.header("content-type")), (200, Some("audio/ogg")));
    assert!(opus.bytes.starts_with(b"OggS") && opus.bytes.len() < pcm.bytes.len() / 4, "{} bytes", opus.bytes.len());
    // The published default.
    let mut asked = request("mp3");
    asked.as_object_mut().unwrap().remove("response_format");
    let mp3 = speak(&server, &asked).await;
    assert_eq!((mp3.status, mp3.header("content-type")), (200, Some("audio/mpeg")));
    // Frames of 24 ms at 96 kbit/s, to the last sample: the encoder puts 1,057 before the first one.
    let frames = (said().len() + 1_057).div_ceil(576);
    assert_eq!(mp3.bytes.len(), frames * 288);
    assert!(mp3.bytes.chunks(288).all(|frame| frame[..2] == [0xff, 0xf3] || frame[..2] == [0xff, 0xf2]));
    // The position of the last page counts samples at 48 kHz, including those that a player skips.
    let last = opus.bytes.windows(4).rposition(|window| window == b"OggS").unwrap();
    let position = u64::from_le_bytes(opus.bytes[last + 6..last + 14].try_into().unwrap());
    assert_eq!(position, 2 * (said().len() as u64 + 156));
}

#[tokio::test]
async fn a_voice_at_another_rate_is_converted_once() {
    const RATE: u32 = 44_100;
    let server = Running::start(Script { output_rate: RATE, ..Script::default() }).await;
    let frames = || [3, 2].into_iter().flat_map(|words| 0..words);
    let own: Vec<f32> = frames().flat_map(|frame| voice_at(frame, RATE)).collect();
    let equals = |samples: &[f32], wanted: &[f32]| {
        assert_eq!(samples.len(), wanted.len());
        let off = samples.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-3, "{off}");
    };
    // A wav file keeps the rate of the model.
    let wav = speak(&server, &request("wav")).await.bytes;
    assert_eq!(wav[24..28], RATE.to_le_bytes());
    equals(&pcm::decode_i16le(&wav[44..]).unwrap(), &own);
    let mut filter = Resampler::new(RATE, 24_000).unwrap();
    let converted = [filter.push(&own).unwrap(), filter.flush().unwrap()].concat();
    assert_eq!(converted.len(), said().len());
    let pcm = speak(&server, &request("pcm")).await;
    equals(&pcm::decode_i16le(&pcm.bytes).unwrap(), &converted);
    // MP3 and Opus count the samples of the same conversion.
    let mp3 = speak(&server, &request("mp3")).await;
    assert_eq!(mp3.bytes.len(), (said().len() + 1_057).div_ceil(576) * 288);
    let opus = speak(&server, &request("opus")).await;
    let last = opus.bytes.windows(4).rposition(|window| window == b"OggS").unwrap();
    let position = u64::from_le_bytes(opus.bytes[last + 6..last + 14].try_into().unwrap());
    assert_eq!(position, 2 * (said().len() as u64 + 156));
}

#[tokio::test]
async fn a_family_at_44_khz_is_read_aloud() {
    /// Samples of a patch of the checkpoint, and of the same time at 24 kHz.
    const PATCH: [usize; 2] = [4 * 256, 4 * 256 * 24_000 / 44_100];
    let (address, running) = serve_checkpoint("ming_tts").await;
    let speak = async |format: &str| {
        let asked = json!({"model": "ming", "input": "the sea", "response_format": format, "instructions": "be kind"});
        let headers = [("content-type", "application/json")];
        send(address, "POST", PATH, &headers, asked.to_string().as_bytes()).await
    };
    let wav = speak("wav").await;
    assert_eq!((wav.status, &wav.bytes[24..28]), (200, &44_100_u32.to_le_bytes()[..]), "{wav:?}");
    let samples = pcm::decode_i16le(&wav.bytes[44..]).unwrap();
    assert!(samples.len() >= 5 * PATCH[0] && samples.len().is_multiple_of(PATCH[0]), "{}", samples.len());
    assert!(samples.iter().any(|sample| sample.abs() > 0.01));
    let pcm = speak("pcm").await;
    assert!(pcm.status == 200 && pcm.bytes.len() >= 2 * 5 * PATCH[1], "{}", pcm.bytes.len());
    running.abort();
}

#[tokio::test]
async fn a_taught_model_reads_a_message() {
    const READ: &str = "the lazy dog sings";
    let copy = copy(&folder("lfm2_audio").join("checkpoint"));
    std::fs::write(copy.path().join("generation_config.json"), r#"{"audio_temperature": 0.0}"#).unwrap();
    let engine = Engine::start(Source::Folder(copy.path().to_owned()), &EngineConfig::default()).unwrap();
    let (address, running) = serve_engine(engine).await;
    for (given, whole) in [
        ("", "Perform TTS. Use the US male voice."),
        ("Use the UK female voice.", "Perform TTS. Use the UK female voice."),
    ] {
        let asked = json!({"model": "lfm", "input": READ, "response_format": "wav", "instructions": given});
        let headers = [("content-type", "application/json")];
        let reply = send(address, "POST", PATH, &headers, asked.to_string().as_bytes()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        // The same as a message with these instructions.
        let mut client = connect(address).await;
        let content = json!([{"type": "input_text", "text": READ}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        client.send(json!({"type": "conversation.item.create", "item": item})).await;
        let response = json!({"instructions": whole, "max_output_tokens": READ.len() + 1});
        client.send(json!({"type": "response.create", "response": response})).await;
        let heard = sound(&client.until("response.done").await);
        assert!(wav_samples(&reply.bytes) == heard, "{given}: other samples");
        assert!(!given.is_empty() || heard.iter().any(|sample| sample.abs() > 0.01), "{} samples", heard.len());
    }
    let model = send(address, "GET", "/v1/models", &[], b"").await.json();
    assert_eq!(model["data"][0]["repartee"]["speech"], true, "{model}");
    running.abort();
}

#[tokio::test]
async fn events_carry_the_same_sound_and_the_usage() {
    let server = Running::start(Script::default()).await;
    let mut asked = request("wav");
    asked["stream_format"] = json!("sse");
    let reply = speak(&server, &asked).await;
    let mut events = events(&reply);
    let usage = json!({"input_tokens": 5, "output_tokens": 5, "total_tokens": 10});
    assert_eq!(events.pop(), Some(json!({"type": "speech.audio.done", "usage": usage})));
    assert!(events.len() >= 5, "sound is sent as it comes: {} events", events.len());
    assert!(events.iter().all(|event| event["type"] == "speech.audio.delta"), "{events:?}");
    let file: Vec<u8> =
        events.iter().flat_map(|event| STANDARD.decode(event["audio"].as_str().unwrap()).unwrap()).collect();
    assert_said(&wav_samples(&file));
}

#[tokio::test]
async fn speech_cut_at_a_limit_is_reported() {
    let server = Running::start(Script { cuts_speech: true, ..Script::default() }).await;
    let mut asked = request("wav");
    asked["stream_format"] = json!("sse");
    let last = events(&speak(&server, &asked).await).pop().unwrap();
    assert!(last["repartee"]["warnings"][0].as_str().unwrap().contains("limit"), "{last}");
    let headers = [("content-type", "application/json"), ("te", "trailers")];
    let body = request("pcm").to_string();
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let mut head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\nconnection: te, close\r\n",
        body.len()
    );
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    socket.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    timeout(PATIENCE, socket.read_to_end(&mut reply)).await.unwrap().unwrap();
    let tail = String::from_utf8_lossy(&reply[reply.len().saturating_sub(200)..]).to_ascii_lowercase();
    assert!(tail.contains("\r\n0\r\nrepartee-warnings: the model's limit"), "{tail}");
}

#[tokio::test]
async fn sentences_are_responses_of_one_session() {
    let server = Running::start_with(Script::default(), |config| config.engine.spoken_text.enabled = false).await;
    let mut asked = request("pcm");
    asked["instructions"] = json!("Speak slowly.");
    let text: String = (0..100).map(|n| format!("Sentence number {n}. ")).collect();
    asked["input"] = json!(text);
    let reply = speak(&server, &asked).await;
    assert_eq!(reply.bytes.len(), 100 * 3 * FRAME_SAMPLES * 2);
    let commands = server.engine.commands();
    let responds: Vec<_> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Respond(respond) => Some(respond),
            _ => None,
        })
        .collect();
    assert_eq!(responds.len(), 100);
    assert!(responds.iter().all(|respond| respond.streamed && respond.voice.as_deref() == Some("bob")));
    assert!(responds.iter().all(|respond| respond.instructions.as_deref() == Some("Speak slowly.")));
    let texts = commands.iter().filter_map(|command| match command {
        Command::StreamText { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(texts.collect::<Vec<_>>().join(" "), text.trim());
}

/// Text that the engine was given, with `|` at the end of each response.
fn given(server: &Running) -> String {
    let shown = |command: &Command| match command {
        Command::StreamText { text, .. } => text.clone(),
        Command::EndText { .. } => "|".to_owned(),
        _ => String::new(),
    };
    server.engine.commands().iter().map(shown).collect()
}

/// Written text whose numbers and marks no voice can say.
const WRITTEN: &str = "# Prices\n\nDr. Smith pays **$3.50** for 2 km. See [the list](https://a.example/list)!";

#[tokio::test]
async fn texts_are_made_speakable() {
    let spoken = "Prices.|Doctor Smith pays three dollars and fifty cents for two kilometers.|See the list!|";
    for size in [1, 7, WRITTEN.len()] {
        let server = Running::start(Script::default()).await;
        let mut sending = Chunked::post(server.address, STREAM, "text/plain").await;
        for chunk in WRITTEN.as_bytes().chunks(size) {
            sending.write(chunk).await;
        }
        assert_eq!(sending.finish(Vec::new()).await.status, 200);
        assert_eq!(given(&server), spoken, "in pieces of {size}");
    }
    let server = Running::start(Script::default()).await;
    speak(&server, &json!({"input": WRITTEN, "response_format": "pcm"})).await;
    assert_eq!(given(&server), spoken);
}

#[tokio::test]
async fn a_voice_of_clauses_gets_the_whole_text() {
    for size in [1, 7, WRITTEN.len()] {
        let server = Running::start(Script { reads_clauses: true, ..Script::default() }).await;
        let mut sending = Chunked::post(server.address, STREAM, "text/plain").await;
        for chunk in WRITTEN.as_bytes().chunks(size) {
            sending.write(chunk).await;
        }
        assert_eq!(sending.finish(Vec::new()).await.status, 200);
        assert_eq!(given(&server), format!("{WRITTEN}|"), "in pieces of {size}");
    }
}

#[tokio::test]
async fn what_is_served_otherwise_is_said() {
    let server = Running::start(Script::default()).await;
    let asked = json!({"model": "tts-1", "voice": "alloy", "input": "Hello.", "response_format": "pcm", "new": 1});
    let reply = speak(&server, &asked).await;
    assert_eq!(reply.status, 200);
    let expected = "model: `tts-1` is served as `scripted`; voice: `alloy` is served as `ada`; new is not known here and was ignored";
    assert_eq!(reply.header("repartee-warnings"), Some(expected));
    let asked = json!({"model": "scripted", "voice": {"id": "bob"}, "input": "Hello.", "response_format": "pcm"});
    assert_eq!(speak(&server, &asked).await.header("repartee-warnings"), None);
}

#[tokio::test]
async fn speed_changes_the_duration_alone() {
    let server = Running::start(Script::default()).await;
    let length = async |speed: f64| {
        let asked = json!({"model": "scripted", "voice": "ada", "input": "Hello. And more words.", "response_format": "pcm",
            "speed": speed});
        let reply = speak(&server, &asked).await;
        assert_eq!((reply.status, reply.header("repartee-warnings").is_some()), (200, speed < 0.5), "{:?}", reply.head);
        reply.bytes.len() / 2
    };
    let whole = length(1.0).await;
    assert!(whole > 0);
    for (speed, served) in [(0.5, 0.5), (2.0, 2.0), (0.25, 0.5)] {
        assert_eq!(length(speed).await, (whole as f64 / served) as usize, "{speed}");
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_a_typed_error() {
    let server = Running::start(Script::default()).await;
    for (field, value, says) in [
        ("response_format", json!("aac"), "`mp3`, `wav`, `flac`, `pcm` or `opus`"),
        ("input", json!(" ... "), "no text"),
        ("input", json!("a".repeat(4_097)), "at most 4096"),
        ("speed", json!(9.0), "0.25 to 4.0"),
        ("stream_format", json!("xml"), "`audio` or `sse`"),
        ("voice", json!(7), "a name, or an object"),
        ("voice", json!({"name": "bob"}), "a name, or an object"),
        ("voice", json!({"id": "nobody"}), "no voice `nobody`"),
        ("voice", json!("voice_of_nobody"), "no voice `voice_of_nobody`"),
        ("voice", json!(""), "no voice ``"),
        ("voice", json!("a".repeat(65)), "GET /v1/audio/voices"),
    ] {
        let mut asked = request("wav");
        asked[field] = value;
        let reply = speak(&server, &asked).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!(field)), "{reply:?}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    let mut long = request("wav");
    long["input"] = json!("a".repeat(15 << 20));
    assert_eq!(speak(&server, &long).await.status, 413);
    assert!(server.engine.commands().is_empty(), "nothing of it reached the engine");
}

#[tokio::test]
async fn engine_failures_have_a_status() {
    let failure = Some(SessionError::TooManyResponses { limit: 1 });
    let server = Running::start(Script { failure, ..Script::default() }).await;
    let reply = speak(&server, &request("wav")).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.json()["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
}

#[tokio::test]
async fn a_request_may_come_in_chunks() {
    let server = Running::start(Script::default()).await;
    let mut sending = Chunked::post(server.address, PATH, "application/json").await;
    for chunk in request("pcm").to_string().as_bytes().chunks(7) {
        sending.write(chunk).await;
    }
    let reply = sending.finish(Vec::new()).await;
    assert_eq!((reply.status, reply.complete), (200, true), "{reply:?}");
    assert_said(&pcm::decode_i16le(&reply.bytes).unwrap());
}

/// Path of requests with a streamed text.
const STREAM: &str = "/v1/audio/speech?response_format=pcm&voice=bob";

#[tokio::test]
async fn sound_comes_before_the_text_ends() {
    let server = Running::start(Script::default()).await;
    let mut sending = Chunked::post(server.address, STREAM, "text/plain; charset=utf-8").await;
    sending.write(b"One t").await;
    // More than the head: the first word is heard while the second is written.
    let begun = sending.read(2 * FRAME_SAMPLES).await;
    sending.write(b"wo three. Fo").await;
    sending.write(b"ur five!").await;
    let reply = sending.finish(begun).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("audio/pcm")), "{:?}", reply.head);
    assert_eq!(reply.header("repartee-warnings"), None);
    assert!(reply.complete);
    assert_said(&pcm::decode_i16le(&reply.bytes).unwrap());
    server.sessions(0).await;
    let commands = server.engine.commands();
    let responds = commands.iter().filter(|command| matches!(command, Command::Respond(_)));
    assert_eq!(responds.count(), 2, "a sentence is a response");
    let voices = commands.iter().filter_map(|command| match command {
        Command::Respond(respond) => respond.voice.as_deref(),
        _ => None,
    });
    assert!(voices.into_iter().all(|voice| voice == "bob"));
    let text: String = commands
        .iter()
        .filter_map(|command| match command {
            Command::StreamText { text, .. } => Some(text.as_str()),
            Command::EndText { .. } => Some("|"),
            _ => None,
        })
        .collect();
    assert_eq!(text, "One two three.|Four five!|");
}

#[tokio::test]
async fn texts_that_stream_in_are_refused_with_reasons() {
    let server = Running::start(Script::default()).await;
    for (query, body, status, code, param, says) in [
        ("response_format=pcm", "(…)".as_bytes(), 400, "invalid_value", "input", "no text"),
        ("response_format=pcm", b"", 400, "invalid_value", "input", "no text"),
        ("response_format=pcm", b"\xff\xfe", 400, "invalid_value", "input", "not UTF-8"),
        ("response_format=pcm", b"caf\xc3", 400, "invalid_value", "input", "within a character"),
        ("response_format=aac", b"Hello.", 400, "invalid_value", "response_format", "`aac` is not served"),
        ("response_format=pcm&input=Hello", b"Hello.", 400, "invalid_value", "input", "the body is the text"),
        ("response_format=pcm&speed=fast", b"Hello.", 400, "invalid_value", "speed", "a number"),
        ("response_format=pcm", &[b' '; (64 << 10) + 1], 413, "message_too_large", "input", "64 KiB"),
    ] {
        let mut sending = Chunked::post(server.address, &format!("{PATH}?{query}"), "text/plain").await;
        if !body.is_empty() {
            sending.write(body).await;
        }
        let reply = sending.finish(Vec::new()).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status, reply.code().as_str(), &error["param"]), (status, code, &json!(param)), "{reply:?}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    server.sessions(0).await;
}

#[tokio::test]
async fn errors_after_the_first_sound_are_events() {
    let server = Running::start(Script::default()).await;
    let path = format!("{STREAM}&stream_format=sse&new=1");
    let mut sending = Chunked::post(server.address, &path, "text/plain").await;
    sending.write(b"One two ").await;
    let begun = sending.read(2 * FRAME_SAMPLES).await;
    sending.write(b"\xff").await;
    let reply = sending.finish(begun).await;
    assert_eq!(reply.header("repartee-warnings"), Some("new is not known here and was ignored"));
    let events = events(&reply);
    assert_eq!(events[0]["type"], "speech.audio.delta", "{events:?}");
    let error = &events.last().unwrap()["error"];
    assert_eq!((&error["code"], &error["param"]), (&json!("invalid_value"), &json!("input")), "{events:?}");
    server.sessions(0).await;
}

#[tokio::test]
async fn a_writer_who_leaves_frees_the_session() {
    let server = Running::start(Script::default()).await;
    let mut sending = Chunked::post(server.address, STREAM, "text/plain").await;
    server.sessions(1).await;
    drop(sending.socket);
    server.sessions(0).await;
    sending = Chunked::post(server.address, STREAM, "text/plain").await;
    sending.write(b"One two ").await;
    sending.read(2 * FRAME_SAMPLES).await;
    drop(sending.socket);
    server.sessions(0).await;
}

#[tokio::test]
async fn a_stalled_reader_of_a_text_is_closed() {
    let server =
        Running::start_with(Script::default(), |config| config.stalled_after = Duration::from_millis(200)).await;
    let mut sending = Chunked::post(server.address, STREAM, "text/plain").await;
    // More sound than any socket buffer holds, from a text that goes on.
    sending.write("word ".repeat(12_000).as_bytes()).await;
    server.sessions(1).await;
    server.sessions(0).await;
}

#[tokio::test]
async fn a_stopped_server_waits_for_no_text() {
    let mut server = Running::start_with(Script::default(), |config| config.drain = Duration::ZERO).await;
    let sending = Chunked::post(server.address, STREAM, "text/plain").await;
    server.sessions(1).await;
    server.stop();
    let reply = repartee_gateway_testkit::http::read(sending.socket).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "shutting_down"));
    server.ended().await;
}

#[tokio::test]
async fn a_text_may_take_longer_than_a_request() {
    let server =
        Running::start_with(Script::default(), |config| config.limits.request = Duration::from_millis(1)).await;
    let mut sending = Chunked::post(server.address, STREAM, "text/plain").await;
    sending.write(b"One two ").await;
    let begun = sending.read(2 * FRAME_SAMPLES).await;
    sending.write(b"three. Four five!").await;
    let reply = sending.finish(begun).await;
    assert!(reply.complete);
    assert_said(&pcm::decode_i16le(&reply.bytes).unwrap());
}

/// A server that speaks two frames and waits, and a request to it.
async fn held() -> (Running, TcpStream) {
    let gate = Arc::new(Semaphore::new(2));
    let script = Script { gate: Some(gate), ..Script::default() };
    let server = Running::start_with(script, |config| config.drain = Duration::ZERO).await;
    let body = request("pcm").to_string();
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n", server.address, body.len());
    socket.write_all((head + &body).as_bytes()).await.unwrap();
    let mut frames = server.engine.frames();
    timeout(PATIENCE, frames.wait_for(|frames| *frames == 2)).await.unwrap().unwrap();
    (server, socket)
}

#[tokio::test]
async fn a_disconnect_frees_the_session() {
    let (server, socket) = held().await;
    drop(socket);
    server.sessions(0).await;
}

#[tokio::test]
async fn a_stopped_server_cuts_the_body() {
    let (mut server, mut socket) = held().await;
    // Frames leave later than the engine makes them: with the head before it, this ends inside the second one.
    let mut begun = vec![0; 2 * FRAME_SAMPLES * 2];
    timeout(PATIENCE, socket.read_exact(&mut begun)).await.unwrap().unwrap();
    server.stop();
    let reply = repartee_gateway_testkit::http::read(std::io::Cursor::new(begun).chain(socket)).await;
    assert_eq!((reply.status, reply.bytes.len()), (200, 2 * FRAME_SAMPLES * 2));
    assert!(!reply.complete, "what was cut has no end");
    server.ended().await;
}

#[tokio::test]
async fn the_list_of_voices_begins_with_the_default() {
    let server = Running::start(Script::default()).await;
    let list = send(server.address, "GET", "/v1/audio/voices", &[], b"").await.json();
    let started = &list["data"][0]["created_at"];
    let voice =
        |name: &str| json!({"id": name, "object": "audio.voice", "name": name, "type": "model", "created_at": started});
    assert!(started.as_u64().is_some_and(|started| started > 1_700_000_000), "{list}");
    assert_eq!(list, json!({"object": "list", "data": [voice("ada"), voice("bob")]}));
}

#[tokio::test]
async fn a_reading_family_speaks_in_its_voices() {
    /// Samples of a frame of the checkpoint.
    const FRAME: usize = 240;
    let (address, running) = serve_checkpoint("tts_custom").await;
    let model = send(address, "GET", "/v1/models/checkpoint", &[], b"").await.json();
    assert_eq!(model["repartee"]["speech"], true, "{model}");
    let list = send(address, "GET", "/v1/audio/voices", &[], b"").await.json();
    let names: Vec<_> = list["data"].as_array().unwrap().iter().map(|voice| voice["id"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["ada", "grace", "li"]);
    assert!(names.contains(&"li/english"));
    let speak = async |voice: &str| {
        let asked = json!({"model": "tts_custom", "voice": voice, "input": "the sea. a song about the rain!",
            "instructions": "sing softly", "response_format": "pcm", "stream_format": "sse"});
        let headers = [("content-type", "application/json")];
        send(address, "POST", PATH, &headers, asked.to_string().as_bytes()).await
    };
    let reply = speak("li/english").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let mut heard = events(&reply);
    let done = heard.pop().unwrap();
    assert_eq!(done["type"], "speech.audio.done", "{done}");
    let bytes: Vec<u8> =
        heard.iter().flat_map(|event| STANDARD.decode(event["audio"].as_str().unwrap()).unwrap()).collect();
    let frames = done["usage"]["output_tokens"].as_u64().unwrap() as usize;
    // One sentence, because a small letter follows the full stop; a response has two frames at least.
    assert!(frames >= 2 && bytes.len() == 2 * FRAME * frames, "{frames} frames, {} bytes", bytes.len());
    let samples = pcm::decode_i16le(&bytes).unwrap();
    assert!(samples.iter().any(|sample| sample.abs() > 0.01));
    let other = speak("nobody").await;
    assert!(other.header("repartee-warnings").unwrap().contains("`nobody` is served as `ada`"), "{:?}", other.head);
    running.abort();
}

#[tokio::test]
async fn text_streams_in_over_the_websocket() {
    let server = Running::start(Script::default()).await;
    for conversation in ["auto", "none"] {
        read_over_the_websocket(&server, conversation).await;
    }
}

async fn read_over_the_websocket(server: &Running, conversation: &str) {
    let mut client = server.connect().await;
    let reads = json!({"conversation": conversation, "repartee": {"reads": true}});
    client.send(json!({"type": "response.create", "response": reads})).await;
    client.send(json!({"type": "repartee.text.append", "text": "One two "})).await;
    // The first words are heard before the last are written.
    let begun = client.until("response.output_audio.delta").await;
    client.send(json!({"type": "repartee.text.append", "text": "three."})).await;
    client.send(json!({"type": "repartee.text.done"})).await;
    let rest = client.until("response.done").await;
    let events = [begun, rest].concat();
    let sound = events.iter().filter(|event| event["type"] == "response.output_audio.delta");
    let bytes: Vec<u8> = sound.flat_map(|event| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap()).collect();
    let said: Vec<f32> = (0..3).flat_map(voice).collect();
    assert_eq!(bytes.len(), 2 * said.len());
    assert_eq!(find(&events, "response.output_audio_transcript.done")["transcript"], "One two three.");
}
