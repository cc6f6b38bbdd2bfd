//! `/v1/audio/transcriptions` and `/v1/audio/translations`.

use std::net::SocketAddr;
use std::time::Duration;

use repartee_engine_api::Command;
use repartee_gateway_testkit::http::{Chunked, Reply, form, send, send_form};
use repartee_gateway_testkit::{Running, question, serve_checkpoint};
use repartee_media::wav;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use repartee_testkit::wav::{SampleEncoding, WavFormat, encode};
use serde_json::{Value, json};

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
const TRANSLATIONS: &str = "/v1/audio/translations";

fn script() -> Script {
    Script { has_transcription: true, ..Script::default() }
}

/// The spoken question as a wav file.
fn spoken() -> Vec<u8> {
    wav::encode(&question(), 24_000).unwrap()
}

/// Wav file of bytes at 8 kHz, of which 128 is silence.
fn telephone(sound: &[u8]) -> Vec<u8> {
    let mut file = encode(&[], WavFormat { channels: 1, rate: 8_000, encoding: SampleEncoding::Int(8) });
    // The reader takes a length of zero as "to the end".
    file.extend_from_slice(sound);
    file
}

/// This many seconds of a hum, with a second of silence in the middle of each minute.
fn hum(seconds: usize) -> Vec<u8> {
    let second: Vec<u8> = (0..8_000).map(|at| if at / 20 % 2 == 0 { 160 } else { 96 }).collect();
    (0..seconds).flat_map(|at| if at % 60 == 30 { vec![128; 8_000] } else { second.clone() }).collect()
}

async fn ask(address: SocketAddr, file: &[u8], fields: &[(&str, &str)]) -> Reply {
    let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
    let fields: Vec<_> = [("file", file), ("model", b"whisper-1")].into_iter().chain(fields).collect();
    send_form(address, TRANSCRIPTIONS, &fields).await
}

/// Data of server-sent events.
fn events(reply: &Reply) -> Vec<Value> {
    reply.assert_events();
    let events = reply.body.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    events.map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn text(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn formats_have_one_text() {
    let (address, _server) = serve_checkpoint("whisper").await;
    let file = spoken();
    let reply = ask(address, &file, &[]).await;
    let whole = text(&reply);
    assert!(!whole.is_empty(), "nothing was heard");
    assert_eq!(reply.header("repartee-warnings"), Some("model: `whisper-1` is served as `checkpoint`"));
    assert_eq!(reply.json()["usage"], json!({"type": "duration", "seconds": 4.0}), "{reply:?}");
    let plain = ask(address, &file, &[("response_format", "text")]).await;
    assert_eq!((plain.body.strip_suffix('\n'), plain.status), (Some(&*whole), 200));

    let both = [("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")];
    let fields = [&[("response_format", "verbose_json")][..], &both].concat();
    let verbose = ask(address, &file, &fields).await.json();
    assert_eq!((&verbose["text"], &verbose["task"]), (&json!(whole), &json!("transcribe")));
    let duration = verbose["duration"].as_f64().unwrap();
    assert!((duration - question().len() as f64 / 24_000.0).abs() < 0.01, "{duration}");
    assert!(verbose["language"].as_str().is_some_and(|name| name.len() > 3), "{verbose}");
    let (segments, words) = (verbose["segments"].as_array().unwrap(), verbose["words"].as_array().unwrap());
    let joined: String = segments.iter().map(|segment| segment["text"].as_str().unwrap()).collect();
    assert_eq!(joined.trim(), whole, "the segments are the text");
    let spelt: String = words.iter().map(|word| word["word"].as_str().unwrap()).collect();
    assert_eq!(spelt, whole.split_whitespace().collect::<String>(), "the words are the text");
    for list in [segments, words] {
        let times: Vec<f64> =
            list.iter().flat_map(|one| ["start", "end"].map(|at| one[at].as_f64().unwrap())).collect();
        assert!(times.is_sorted() && times.last().is_some_and(|end| *end <= duration), "{times:?}");
    }
    for (id, segment) in segments.iter().enumerate() {
        assert_eq!((&segment["id"], &segment["temperature"].is_f64()), (&json!(id), &true));
        let numbers =
            ["avg_logprob", "compression_ratio", "no_speech_prob"].map(|name| segment[name].as_f64().unwrap());
        assert!(numbers[0] < 0.0 && numbers[1] > 0.0 && (0.0..=1.0).contains(&numbers[2]), "{segment}");
        assert!(segment["tokens"].as_array().is_some_and(|tokens| !tokens.is_empty()) && segment["seek"].is_u64());
    }
    let alone =
        ask(address, &file, &[("response_format", "verbose_json"), ("timestamp_granularities[]", "word")]).await;
    assert!(alone.json().get("segments").is_none() && alone.json()["words"].is_array(), "{alone:?}");

    let srt = ask(address, &file, &[("response_format", "srt")]).await;
    assert!(srt.body.starts_with("1\n00:00:0") && srt.body.matches(" --> ").count() == segments.len(), "{srt:?}");
    let vtt = ask(address, &file, &[("response_format", "vtt")]).await;
    assert!(vtt.body.starts_with("WEBVTT\n\n00:00:0"), "{vtt:?}");
}

#[tokio::test]
async fn a_stream_of_deltas_is_the_text() {
    let (address, _server) = serve_checkpoint("whisper").await;
    let file = spoken();
    let whole = text(&ask(address, &file, &[("language", "de"), ("prompt", "the lazy dog")]).await);
    assert_ne!(whole, text(&ask(address, &file, &[("language", "de")]).await), "the prompt is heard");
    let stream = ask(address, &file, &[("stream", "true"), ("language", "de"), ("prompt", "the lazy dog")]).await;
    let events = events(&stream);
    let (done, deltas) = events.split_last().unwrap();
    assert!(deltas.iter().all(|delta| delta["type"] == "transcript.text.delta"), "{events:?}");
    let joined: String = deltas.iter().map(|delta| delta["delta"].as_str().unwrap()).collect();
    assert_eq!((done["type"].as_str(), &done["text"], joined), (Some("transcript.text.done"), &json!(whole), whole));
    assert_eq!(done["languages"], json!([{"code": "de"}]));
    let heard: Vec<f64> = deltas.iter().map(|delta| delta["repartee"]["heard_s"].as_f64().unwrap()).collect();
    assert!(heard.is_sorted() && heard.last().is_some_and(|last| *last > 1.0), "{heard:?}");
}

#[tokio::test]
async fn a_translation_is_another_task() {
    let (address, _server) = serve_checkpoint("whisper").await;
    let (file, verbose) = (spoken(), ("response_format", &b"verbose_json"[..]));
    let translated =
        send_form(address, TRANSLATIONS, &[("file", &file), ("model", b"whisper-1"), verbose]).await.json();
    assert_eq!((&translated["task"], &translated["language"]), (&json!("translate"), &json!("english")));
    assert_ne!(translated["text"], json!(text(&ask(address, &file, &[]).await)), "the task is in the prompt");
    let refused = send_form(address, TRANSLATIONS, &[("file", &file), ("language", b"de")]).await;
    assert!(refused.status == 400 && refused.body.contains("`response_format`"), "{refused:?}");
}

/// Durations of the pieces of sound that the engine got, in ms.
fn pieces(engine: &ScriptedEngine) -> Vec<usize> {
    let mut pieces = vec![0];
    for command in engine.take_commands() {
        match command {
            Command::Append(samples) => *pieces.last_mut().unwrap() += samples.len() / 16,
            Command::Commit { .. } => pieces.push(0),
            _ => {}
        }
    }
    pieces.pop();
    pieces
}

#[tokio::test]
async fn a_long_file_is_heard_in_pieces() {
    let server = Running::start(script()).await;
    let reply = ask(server.address, &telephone(&hum(600)), &[("stream", "true")]).await;
    let events = events(&reply);
    let pieces = pieces(&server.engine);
    // The deltas of each piece are its text, and its end.
    assert_eq!(events.len(), 2 * pieces.len() + 1);
    let heard: Vec<f64> = events.iter().filter_map(|event| event["repartee"]["heard_s"].as_f64()).collect();
    assert!(heard.is_sorted() && heard.last().is_some_and(|last| *last > 599.0), "{heard:?}");
    let (_, long) = pieces.split_last().unwrap();
    assert!(long.iter().all(|ms| (14_000..=28_000).contains(ms)), "{pieces:?}");
    let sum: usize = pieces.iter().sum();
    assert!((595_000..=600_000).contains(&sum), "{sum} ms of ten minutes");
    let words: Vec<String> = pieces.iter().map(|ms| format!("words of {ms} ms")).collect();
    assert_eq!(events.last().unwrap()["text"], json!(words.join(" ")));
    let (_, metrics) = server.get("/metrics").await;
    let counted = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}"));
        line.trim().parse::<f64>().unwrap()
    };
    assert!((counted("repartee_transcribed_seconds_total") - sum as f64 / 1_000.0).abs() < 1.0);
    assert!((counted("repartee_key_sound_seconds_total{key=\"none\"}") - 600.0).abs() < 1.0);
}

#[tokio::test]
async fn long_silence_is_no_text() {
    let server = Running::start(script()).await;
    let reply = ask(server.address, &telephone(&vec![128; 600 * 8_000]), &[]).await;
    assert_eq!((text(&reply), &reply.json()["usage"]["seconds"]), (String::new(), &json!(600.0)));
    assert_eq!(pieces(&server.engine), [0; 0], "silence costs the model nothing");
    let srt = ask(server.address, &telephone(&[128; 80_000]), &[("response_format", "srt")]).await;
    assert_eq!((srt.status, &*srt.body), (200, ""));
}

#[tokio::test]
async fn subtitles_without_word_times_are_short() {
    let server = Running::start(script()).await;
    let srt = ask(server.address, &telephone(&hum(25)), &[("response_format", "srt")]).await;
    assert_eq!(srt.body.matches(" --> ").count(), pieces(&server.engine).len(), "{srt:?}");
    assert!(srt.body.matches(" --> ").count() >= 3 && srt.body.contains("\n2\n"), "{srt:?}");
}

#[tokio::test]
async fn files_that_cannot_be_heard_are_named() {
    let server = Running::start_with(script(), |config| {
        (config.limits.file, config.limits.file_bytes) = (Duration::from_secs(20), 1 << 20);
    })
    .await;
    let refused = async |file: &[u8]| {
        let reply = ask(server.address, file, &[]).await;
        let error = reply.json()["error"].clone();
        let [code, param] = ["code", "param"].map(|field| error[field].as_str().unwrap_or_default().to_owned());
        (reply.status, code, param, error["message"].as_str().unwrap().to_owned())
    };
    for (file, words) in [
        (&b""[..], "an empty file"),
        (b"hello", "unknown format"),
        (b"FORM\0\0\0\x2eAIFFCOMM", "AIFF"),
        (&telephone(&[]), "holds no audio"),
        (&telephone(&hum(30)), "limits.file_s"),
    ] {
        let (status, code, param, message) = refused(file).await;
        assert_eq!((status, &*code, &*param), (400, "invalid_audio", "file"), "{message}");
        assert!(message.contains(words), "{message}");
    }
    let (status, code, ..) = refused(&vec![0; 2 << 20]).await;
    assert_eq!((status, &*code), (413, "message_too_large"));
    // A torn file is heard to there.
    let heard = text(&ask(server.address, &spoken()[..120_000], &[]).await);
    let ms = heard.strip_prefix("words of ").and_then(|rest| rest.strip_suffix(" ms")).unwrap().parse::<u32>().unwrap();
    assert!((1_000..=2_500).contains(&ms), "{heard}");
    server.sessions(0).await;
}

#[tokio::test]
async fn requests_that_cannot_be_served_are_named() {
    let server = Running::start(script()).await;
    let file = telephone(&hum(1));
    let refused = async |fields: &[(&str, &[u8])]| {
        let reply = send_form(server.address, TRANSCRIPTIONS, fields).await;
        (reply.status, reply.code(), reply.json()["error"]["param"].as_str().unwrap_or_default().to_owned())
    };
    let invalid = |param: &str| (400, "invalid_value".to_owned(), param.to_owned());
    let missing = (400, "missing_required_parameter".to_owned(), "file".to_owned());
    assert_eq!(refused(&[("model", b"whisper-1")]).await, missing);
    assert_eq!(refused(&[("file", &file), ("response_format", b"diarized_json")]).await, invalid("response_format"));
    assert_eq!(refused(&[("file", &file), ("prompt", b"\xff")]).await, invalid("prompt"));
    assert_eq!(refused(&[("file", &file), ("file", &file)]).await, invalid(""));
    assert_eq!(refused(&[("file", &file), ("keywords[]", b"Ada")]).await, invalid(""));
    let lists: Vec<(&str, &[u8])> = [("timestamp_granularities[]", &b"word"[..]); 20].into();
    assert_eq!(refused(&lists).await, invalid(""));
    let large = vec![b'a'; 20 << 10];
    assert_eq!(refused(&[("file", &file), ("prompt", &large)]).await.1, "message_too_large");
    let json = send(server.address, "POST", TRANSCRIPTIONS, &[("content-type", "application/json")], b"{}").await;
    assert_eq!((json.status, json.code().as_str()), (415, "invalid_value"));
    assert_eq!(send(server.address, "GET", TRANSCRIPTIONS, &[], b"").await.status, 405);
}

#[tokio::test]
async fn models_that_cannot_are_named() {
    let deaf = Running::start(Script::default()).await;
    let refused = ask(deaf.address, b"never read", &[]).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "transcription_not_available"));
    assert!(refused.body.contains("`scripted`") && refused.body.contains("--hear"), "{refused:?}");
    let able = Running::start(script()).await;
    let refused = send_form(able.address, TRANSLATIONS, &[("file", b"never read")]).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "translation_not_available"));
    assert!(refused.body.contains("`scripted`") && refused.body.contains("engine.translates"), "{refused:?}");
}

#[tokio::test]
async fn a_client_that_goes_frees_its_session() {
    let server = Running::start(Script { withholds_transcripts: true, ..script() }).await;
    let (kind, body) = form(&[("file", &telephone(&hum(600)))]);
    let mut request = Chunked::post(server.address, TRANSCRIPTIONS, &kind).await;
    request.write(&body).await;
    request.end().await;
    server.sessions(1).await;
    drop(request);
    server.sessions(0).await;
    // The decoding has ended too: the same caller's next file is heard.
    assert_eq!(ask(server.address, b"", &[]).await.status, 400);
}

#[tokio::test]
async fn sound_of_files_is_in_the_budget() {
    let server = Running::start_with(script(), |config| config.limits.sound_s_per_minute = 10).await;
    let file = telephone(&hum(40));
    assert!(text(&ask(server.address, &file, &[]).await).starts_with("words of"), "what has begun is finished");
    let refused = ask(server.address, &file, &[]).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"));
    assert_eq!(refused.json()["error"]["param"], "sound_s_per_minute");
}

/// Path and fields of a request.
type Example = (String, Vec<(String, Vec<u8>)>);

/// Examples of the page: those of each `curl`, with `@FILE` as the spoken question.
fn examples() -> Vec<Example> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/serving.md")).unwrap();
    let (_, section) = page.split_once("\n## A file written down\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let commands = section.lines().filter_map(|line| line.trim().strip_prefix("curl "));
    let commands = commands.map(|command| {
        let mut words = command.split_whitespace();
        let path = words.find_map(|word| word.strip_prefix("http://127.0.0.1:8080")).unwrap().to_owned();
        let fields = words.filter_map(|word| word.split_once('=')).map(|(name, value)| {
            let value = if value.starts_with('@') { spoken() } else { value.as_bytes().to_vec() };
            (name.to_owned(), value)
        });
        (path, fields.collect())
    });
    commands.collect()
}

#[tokio::test]
async fn examples_of_the_page_are_served() {
    let (address, _server) = serve_checkpoint("whisper").await;
    let examples = examples();
    assert!(examples.len() >= 3, "{} examples", examples.len());
    for (path, fields) in examples {
        let fields: Vec<(&str, &[u8])> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        let reply = send_form(address, &path, &fields).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
    }
}
