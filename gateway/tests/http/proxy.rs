//! Behind a real nginx, with the configuration that `docs/nginx.conf` recommends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use repartee::auth::KeySet;
use repartee::server::{PemCertificate, development_certificate};
use repartee::transport::webrtc::{WebRtcSettings, offer};
use repartee_testkit::scripted::Script;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use repartee_gateway_testkit::http::{Reply, send_over};
use repartee_gateway_testkit::{PATIENCE, Running, find, kinds, own_address};

const NAME: &str = "voice.example";
const KEY: &str = "a-key-behind-the-proxy";
const BEARER: (&str, &str) = ("authorization", "Bearer a-key-behind-the-proxy");

/// Path of nginx: the system's, or the one that `make setup-test` unpacked.
fn nginx() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/nginx/usr/sbin");
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), unpacked]);
    let found = folders.map(|folder| folder.join("nginx")).find(|nginx| nginx.is_file());
    found.expect("nginx is missing: run `make setup-test` first")
}

/// Repartee behind nginx.
struct Proxied {
    server: Running,
    proxy: SocketAddr,
    connector: TlsConnector,
    nginx: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Proxied {
    fn drop(&mut self) {
        // The process may already be gone.
        let _ = self.nginx.kill().and_then(|()| self.nginx.wait());
    }
}

/// Replaces `from`, which must occur, in `text`.
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} in {text}");
    text.replace(from, to)
}

impl Proxied {
    async fn start(server: Running) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let PemCertificate { certificate, key } = development_certificate(vec![NAME.into()]).unwrap();
        std::fs::write(path("cert.pem"), &certificate).unwrap();
        std::fs::write(path("key.pem"), key).unwrap();
        let proxy = own_address();

        let recommended = include_str!("../../../docs/nginx.conf");
        let site = with(recommended, "listen 443 ssl", &format!("listen {proxy} ssl"));
        let site = with(&site, "server 127.0.0.1:8080", &format!("server {}", server.address));
        let site = with(&site, "/etc/letsencrypt/live/voice.example/fullchain.pem", &path("cert.pem"));
        let site = with(&site, "/etc/letsencrypt/live/voice.example/privkey.pem", &path("key.pem"));
        let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {};", path(kind)))
            .join("\n");
        let whole = format!(
            "daemon off; master_process off; pid {}; error_log stderr warn;\nevents {{}}\nhttp {{ access_log \
             off;\n{folders}\n{site} }}",
            path("pid")
        );
        std::fs::write(path("nginx.conf"), whole).unwrap();
        let mut nginx = Command::new(nginx())
            .args(["-p", folder.path().to_str().unwrap(), "-e", "stderr", "-c", &path("nginx.conf")])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // nginx does not report that it listens.
        let started = tokio::time::Instant::now();
        while TcpStream::connect(proxy).await.is_err() {
            assert!(nginx.try_wait().unwrap().is_none() && started.elapsed() < PATIENCE, "nginx listens");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Self { server, proxy, connector: TlsConnector::from(Arc::new(config)), nginx, _folder: folder }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let socket = TcpStream::connect(self.proxy).await.unwrap();
        self.connector.connect(ServerName::try_from(NAME).unwrap(), socket).await.unwrap()
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        send_over(self.connect().await, NAME, method, path, headers, body.as_bytes()).await
    }
}

async fn keyed() -> Running {
    Running::start_with(Script::default(), |config| config.api_keys = KeySet::parse(KEY).unwrap()).await
}

#[tokio::test]
async fn a_websocket_turn_works_through_the_proxy() {
    let proxied = Proxied::start(keyed().await).await;
    let mut request = format!("wss://{NAME}/v1/realtime").into_client_request().unwrap();
    let protocols = format!("realtime, openai-insecure-api-key.{KEY}");
    request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
    request.headers_mut().insert("origin", format!("https://{NAME}").parse().unwrap());
    let socket = proxied.connect().await;
    let (mut socket, response) = tokio_tungstenite::client_async(request, socket).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "realtime");
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]});
    for event in [json!({"type": "conversation.item.create", "item": item}), json!({"type": "response.create"})] {
        socket.send(Message::text(event.to_string())).await.unwrap();
    }
    let mut events: Vec<Value> = Vec::new();
    while events.last().is_none_or(|event| event["type"] != "response.done") {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
        if message.is_text() {
            events.push(serde_json::from_str(message.to_text().unwrap()).unwrap());
        }
    }
    assert_eq!(kinds(&events)[0], "session.created");
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
}

#[tokio::test]
async fn other_origins_are_refused_behind_the_proxy() {
    let proxied = Proxied::start(keyed().await).await;
    for (origin, status) in [("https://voice.example", 200), ("http://voice.example", 403), ("https://a.example", 403)]
    {
        let reply = proxied.send("GET", "/v1/models", &[BEARER, ("origin", origin)], "").await;
        assert_eq!(reply.status, status, "{origin}");
    }
}

#[tokio::test]
async fn limits_count_clients_behind_the_proxy() {
    let server = Running::start_with(Script::default(), |config| {
        config.api_keys = KeySet::parse(KEY).unwrap();
        config.limits.opens_per_minute = 1;
    })
    .await;
    let proxied = Proxied::start(server).await;
    let asked = async |caller: &str| {
        let headers = [("x-forwarded-for", caller), BEARER];
        proxied.send("POST", "/v1/realtime/client_secrets", &headers, "").await.status
    };
    assert_eq!(asked("203.0.113.7").await, 200);
    assert_eq!(asked("203.0.113.7").await, 429);
    assert_eq!(asked("203.0.113.8").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_location_of_a_call_is_relative() {
    let proxied = Proxied::start(keyed().await).await;
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let headers = [BEARER, ("content-type", "application/sdp")];
    let reply = proxied.send("POST", "/v1/realtime/calls", &headers, &sdp).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let location = reply.header("location").unwrap().to_owned();
    assert!(location.starts_with("/v1/realtime/calls/rtc_"), "{location}");
    assert_eq!(proxied.send("POST", &format!("{location}/hangup"), &[BEARER], "").await.status, 200);
    proxied.server.sessions(0).await;
}

#[tokio::test]
async fn a_streamed_response_is_not_buffered() {
    let gate = Arc::new(tokio::sync::Semaphore::new(1));
    let script = Script { gate: Some(gate.clone()), ..Script::default() };
    let server = Running::start_with(script, |config| config.api_keys = KeySet::parse(KEY).unwrap()).await;
    let proxied = Proxied::start(server).await;
    let body = json!({
        "stream": true, "modalities": ["text", "audio"], "messages": [{"role": "user", "content": "hello"}],
    })
    .to_string();
    let mut socket = proxied.connect().await;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {NAME}\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    // The first frame arrives before the second is generated.
    let mut seen = String::new();
    while !seen.contains("\"data\":") {
        let mut bytes = [0; 4_096];
        let read = tokio::time::timeout(PATIENCE, socket.read(&mut bytes)).await.unwrap().unwrap();
        assert!(read > 0, "{seen}");
        seen += std::str::from_utf8(&bytes[..read]).unwrap();
    }
    assert_eq!(gate.available_permits(), 0);
    proxied.server.sessions(1).await;
    // A disconnect frees the session through the proxy, too.
    drop(socket);
    proxied.server.sessions(0).await;
}
