//! Handshakes, broken frames and bodies: each is refused with a code or a typed error.

use repartee::auth::KeySet;
use repartee_testkit::scripted::Script;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use repartee_gateway_testkit::http::{Reply, send};
use repartee_gateway_testkit::{PATIENCE, Running};

const KEY: &str = "the-key-of-the-house";
const UPGRADE: [(&str, &str); 4] = [
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// Opens a websocket, sends `frame`, and returns the code of the closing frame.
async fn close_code(server: &Running, frame: &[u8]) -> Option<u16> {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let headers: String = UPGRADE.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("GET /v1/realtime HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", server.address);
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, socket.read_u8()).await.unwrap().unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    socket.write_all(frame).await.unwrap();
    loop {
        let [kind, length] = [timeout(PATIENCE, socket.read_u8()).await.unwrap(), socket.read_u8().await];
        let (kind, length) = (kind.ok()?, length.ok()?);
        let length = match length {
            126 => u64::from(socket.read_u16().await.unwrap()),
            127 => socket.read_u64().await.unwrap(),
            short => short.into(),
        };
        let mut payload = vec![0; length as usize];
        socket.read_exact(&mut payload).await.unwrap();
        if kind == 0x88 {
            return payload.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
        }
    }
}

/// A frame of a client, with the mask of zeros.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

#[tokio::test]
async fn broken_frames_close_with_their_code() {
    let server = Running::start(Script::default()).await;
    for (frame, code) in [
        (frame(0xc1, b"{}"), 1002),
        (vec![0x81, 2, b'{', b'}'], 1002),
        (frame(0x83, b""), 1002),
        (frame(0x81, b"\xff"), 1007),
        (frame(0x81, b"\xed\xa0\x80"), 1007),
    ] {
        assert_eq!(close_code(&server, &frame).await, Some(code), "{frame:?}");
    }
    server.sessions(0).await;
}

async fn dial(server: &Running, path: &str, changes: &[(&str, &str)]) -> Reply {
    // The server closes, so that the reply has an end.
    let closing = [("connection", "upgrade, close")];
    let changes = [&closing[..], changes].concat();
    let kept = UPGRADE.iter().filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    let headers: Vec<_> = kept.chain(&changes).copied().filter(|(_, value)| !value.is_empty()).collect();
    send(server.address, "GET", path, &headers, b"").await
}

#[tokio::test]
async fn handshakes_are_refused_by_their_reason() {
    let server = Running::start(Script::default()).await;
    let version = dial(&server, "/v1/realtime", &[("sec-websocket-version", "8")]).await;
    assert_eq!((version.status, version.header("sec-websocket-version")), (426, Some("13")));
    assert_eq!(version.header("upgrade"), Some("websocket"));
    assert_eq!(dial(&server, "/v1/realtime", &[("sec-websocket-key", "")]).await.status, 400);
    let twice = dial(&server, "/v1/realtime?intent=a&intent=b", &[]).await;
    assert_eq!((twice.status, &twice.json()["error"]["param"]), (400, &json!("intent")));
    let only = dial(&server, "/v1/realtime", &[("sec-websocket-protocol", "openai-insecure-api-key.KEY")]).await;
    assert_eq!((only.status, &only.json()["error"]["param"]), (400, &json!("Sec-WebSocket-Protocol")));
    let name = send(server.address, "GET", "/v1/models/%ff", &[], b"").await;
    assert_eq!((name.status, &name.json()["error"]["type"]), (400, &json!("invalid_request_error")));
}

#[tokio::test]
async fn keys_must_not_contradict_each_other() {
    let server = Running::start_with(Script::default(), |config| config.api_keys = KeySet::parse(KEY).unwrap()).await;
    let (bearer, same) = (format!("Bearer {KEY}"), format!("realtime, openai-insecure-api-key.{KEY}"));
    let other = "realtime, openai-insecure-api-key.something-else-of-length";
    for (authorization, protocols) in [(bearer.as_str(), other), ("Bearer something-else-of-length", same.as_str())] {
        let headers = [("authorization", authorization), ("sec-websocket-protocol", protocols)];
        let reply = dial(&server, "/v1/realtime", &headers).await;
        assert_eq!((reply.status, &*reply.code()), (401, "invalid_api_key"));
    }
    let headers = [("authorization", bearer.as_str()), ("sec-websocket-protocol", same.as_str())];
    server.dial_with(&headers).await.unwrap();
}

#[tokio::test]
async fn compressed_bodies_are_refused() {
    let server = Running::start(Script::default()).await;
    for path in ["/v1/chat/completions", "/v1/audio/speech", "/v1/realtime/client_secrets", "/v1/realtime/calls"] {
        let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
        let reply = send(server.address, "POST", path, &headers, b"\x1f\x8b").await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (415, &json!("Content-Encoding")), "{path}");
    }
    let headers = [("content-type", "application/json"), ("content-encoding", "identity")];
    assert_eq!(send(server.address, "POST", "/v1/realtime/client_secrets", &headers, b"{}").await.status, 200);
}

#[tokio::test]
async fn bodies_are_one_json_value_with_lenient_fields() {
    let server = Running::start(Script::default()).await;
    let post = async |path: &str, body: &str| {
        send(server.address, "POST", path, &[("content-type", "application/json")], body.as_bytes()).await
    };
    let secrets = "/v1/realtime/client_secrets";
    for body in ["{} x", "{}{}"] {
        let reply = post(secrets, body).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_json"), "{body}");
    }
    for body in [r#"{"expires_after": null}"#, r#"{"expires_after": {"anchor": null, "seconds": 60.0}}"#] {
        assert_eq!(post(secrets, body).await.status, 200, "{body}");
    }
    let wrong = post(secrets, r#"{"expires_after": {"seconds": "x"}}"#).await;
    assert_eq!(wrong.json()["error"]["param"], "expires_after.seconds");
}

#[tokio::test]
async fn beta_clients_are_told_the_present_names() {
    let server = Running::start(Script::default()).await;
    for headers in [[("openai-beta", "realtime=v1")], [("sec-websocket-protocol", "realtime, openai-beta.realtime-v1")]]
    {
        let mut client = server.dial_with(&headers).await.unwrap();
        let created = client.expect("session.created").await;
        let warning = created["session"]["repartee"]["warnings"][0].as_str().unwrap();
        assert!(warning.contains("response.output_audio.delta"), "{warning}");
    }
    let mut client = server.dial().await.unwrap();
    assert_eq!(client.expect("session.created").await["session"]["repartee"], Value::Null);
}
