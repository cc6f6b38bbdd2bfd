//! Every log line of a call has the call's id, and the line of its end has the reason.

#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use repartee::telemetry::{LogFormat, log};
use repartee::transport::webrtc::{PeerEvent, WebRtcSettings, offer};
use repartee_testkit::scripted::Script;
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{PATIENCE, Running};

/// Writer that captures the log.
#[derive(Clone, Default)]
struct CapturedLogs(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLogs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for CapturedLogs {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl CapturedLogs {
    fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }
}

/// Id of the call that a line is about.
fn call_of(line: &Value) -> Option<&str> {
    let span = line["spans"].as_array()?.iter().find(|span| span["name"] == "call")?;
    span["id"].as_str()
}

/// Requests are logged with their ids, refused ones as warnings, and a client that speaks TLS to the plain address.
async fn requests_have_ids(server: &Running, kept: &CapturedLogs) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let mine = [("x-request-id", "mine-1")];
    let reply = send(server.address, "GET", "/v1/models?key=planted", &mine, b"").await;
    assert_eq!(reply.header("x-request-id"), Some("mine-1"));
    let reply = send(server.address, "POST", "/v1/audio/speech", &[("content-type", "application/json")], b"{}").await;
    let own = reply.header("x-request-id").unwrap().to_owned();
    assert!(reply.status == 400 && own.starts_with("req_"), "{reply:?}");
    let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    socket.write_all(&[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3]).await.unwrap();
    assert_eq!(socket.read(&mut [0; 1]).await.unwrap_or(0), 0, "it is closed");

    let lines = kept.lines();
    let requests: Vec<_> = lines.iter().filter(|line| line["message"] == "a request").collect();
    let logged = |line: &Value| ["path", "status", "request_id", "address"].map(|name| line[name].clone());
    assert_eq!(logged(requests[0]), [json!("/v1/models"), json!(200), json!("mine-1"), json!("127.0.0.1")]);
    assert_eq!((requests.len(), &requests[1]["request_id"]), (2, &json!(own)));
    let refused = lines.iter().find(|line| line["message"] == "a request was refused").expect("a line");
    assert_eq!((&refused["level"], &refused["request_id"]), (&json!("WARN"), &json!(own)), "{refused}");
    assert!(refused["code"].as_str().is_some_and(|code| !code.is_empty()), "{refused}");
    assert!(lines.iter().any(|line| line["message"].as_str().unwrap().starts_with("a client speaks TLS")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_call_have_its_id() {
    let kept = CapturedLogs::default();
    // A span exists even if the filter drops its lines.
    let filter = EnvFilter::new("warn,repartee::call=trace,repartee::transport=trace,repartee::server=info");
    log::init(LogFormat::Json, filter, kept.clone(), false).unwrap();
    let server = Running::start_with(Script::default(), |config| config.log.access = true).await;
    requests_have_ids(&server, &kept).await;

    let mut client = server.dial().await.unwrap();
    let created = client.expect("session.created").await;
    client.update(json!({"tracing": "auto"})).await;
    client.ask("hello").await;
    drop(client);
    server.sessions(0).await;

    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let headers = [("content-type", "application/sdp")];
    let reply = send(server.address, "POST", "/v1/realtime/calls", &headers, sdp.as_bytes()).await;
    let webrtc = reply.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
    let mut call = dialing.accept(&reply.body).await.unwrap();
    let session = loop {
        match tokio::time::timeout(PATIENCE, call.events.recv()).await.expect("an event in time").unwrap() {
            PeerEvent::Message(text) if text.contains("session.created") => {
                break serde_json::from_str::<Value>(&text).unwrap()["session"]["id"].clone();
            }
            _ => {}
        }
    };
    // The caller is out of reach, so a task of the call logs that sending failed.
    call.close().await;
    server.sessions(0).await;

    // A call that is never connected: the log says why.
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let mut impatient = Running::start_with(Script::default(), |config| {
        config.webrtc.connect_within = Duration::from_millis(100);
    })
    .await;
    let reply = send(impatient.address, "POST", "/v1/realtime/calls", &headers, sdp.as_bytes()).await;
    let unconnected = reply.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
    impatient.sessions(0).await;
    impatient.stop();
    drop(dialing);
    let lines = kept.lines();
    let warning = lines.iter().find(|line| line["message"] == "a call has not connected in time").expect("a warning");
    assert_eq!((&warning["level"], call_of(warning)), (&json!("WARN"), Some(&*unconnected)), "{warning}");
    assert!(warning["missing"].as_str().unwrap().starts_with("no check of the caller has arrived"), "{warning}");
    // The native caller names its loopback address, and the server names that one too.
    for side in ["ours", "theirs"] {
        assert!(warning[side].as_str().unwrap().contains("127.0.0.1:"), "{side} of {warning}");
    }

    let lines = kept.lines();
    let ends: Vec<_> = lines.iter().filter(|line| line["message"] == "a call ended").collect();
    assert_eq!(ends.len(), 3, "{lines:?}");
    assert_eq!(ends[2]["ended"], "unconnected", "{lines:?}");
    for (end, transport, id) in
        [(ends[0], "websocket", created["session"]["id"].as_str().unwrap()), (ends[1], "webrtc", &*webrtc)]
    {
        assert_eq!((&end["level"], &end["ended"]), (&json!("INFO"), &json!("hangup")), "{end}");
        assert_eq!((&end["transport"], call_of(end)), (&json!(transport), Some(id)), "{end}");
    }
    let figures = |end: &Value| ["answers", "cancelled", "errors"].map(|name| end[name].as_u64().unwrap());
    assert_eq!(figures(ends[0]), [1, 0, 0], "{}", ends[0]);
    assert!(ends[0]["first_sound_p95_ms"].is_u64() && ends[2].get("first_sound_p95_ms").is_none(), "{ends:?}");
    for (begin, end) in lines.iter().filter(|line| line["message"] == "a call begins").zip(&ends) {
        assert_eq!((call_of(begin), &begin["transport"]), (call_of(end), &end["transport"]), "{begin}");
        assert!(begin["request_id"].as_str().unwrap().starts_with("req_"), "{begin}");
        assert_eq!((&begin["key"], &begin["address"]), (&json!("none"), &json!("127.0.0.1")), "{begin}");
    }
    let span = &ends[1]["spans"][0];
    assert_eq!((&span["transport"], &span["session"]), (&json!("webrtc"), &session));
    assert!(lines.iter().any(|line| line["message"] == "the first audible packet of an answer was sent"), "{lines:?}");
    let of_calls = lines.iter().filter(|line| {
        let target = line["target"].as_str().unwrap();
        target.starts_with("repartee::call") || target.starts_with("repartee::transport")
    });
    for line in of_calls.filter(|line| line["target"] != "repartee::transport::webrtc::udp_mux") {
        assert!(call_of(line).is_some(), "{line}");
    }
}
