//! A real server on a free port with the scripted engine behind it, and a websocket client.
#![allow(clippy::unwrap_used, reason = "helpers of tests: a panic is their report")]

pub mod http;
mod own_address;
pub mod thinker;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use repartee::config::{Config, TurnDetectionConfig, TurnModelSource};
use repartee::headroom::Load;
use repartee::server::{Reloader, Server};
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_media::{pcm, sound_file};
use repartee_testkit::scripted::{Script, ScriptedEngine};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

pub use own_address::own_address;

/// Longest wait of the tests.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Serves a small checkpoint under `tests/parity/fixtures`, until the task is aborted or the test ends.
pub async fn serve_checkpoint(name: &str) -> (SocketAddr, JoinHandle<std::io::Result<()>>) {
    serve_engine(Engine::start(fixture(name), &EngineConfig::default()).unwrap()).await
}

/// Source of the checkpoint of a fixture.
pub fn fixture(name: &str) -> Source {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/fixtures");
    Source::Folder(fixtures.join(name).join("checkpoint"))
}

/// Returns settings on a free port. Turns end by silences alone: a judgement takes real time, and audio of tests is faster.
pub fn config() -> Config {
    let turns = TurnDetectionConfig { model: TurnModelSource::Silence, ..TurnDetectionConfig::default() };
    Config { listen: ([127, 0, 0, 1], 0).into(), turns, ..Config::default() }
}

/// Serves an engine; returns the address and the running server.
pub async fn serve_engine(engine: Engine) -> (SocketAddr, JoinHandle<std::io::Result<()>>) {
    serve_engine_with(engine, config()).await
}

/// Serves an engine with settings of its server.
pub async fn serve_engine_with(engine: Engine, config: Config) -> (SocketAddr, JoinHandle<std::io::Result<()>>) {
    let engine = Arc::new(engine);
    let server = Server::bind(config, engine).await.unwrap();
    let (address, mut ready) = (server.local_addr(), server.ready());
    let task = tokio::spawn(server.run(std::future::pending()));
    ready.wait_for(|ready| *ready).await.unwrap();
    (address, task)
}

/// Connects a realtime client to a server, and reads `session.created`.
pub async fn connect(address: SocketAddr) -> Client {
    let (socket, _) = connect_async(format!("ws://{address}/v1/realtime")).await.unwrap();
    let mut client = Client { socket };
    client.expect("session.created").await;
    client
}

/// Running test server.
pub struct Running {
    /// Address that it listens on.
    pub address: SocketAddr,
    /// The scripted engine behind it.
    pub engine: Arc<ScriptedEngine>,
    /// Address of telephone calls over SIP; `None` if there are none.
    pub sip: Option<SocketAddr>,
    /// Address of the health listener; `None` if there is none.
    pub health: Option<SocketAddr>,
    /// Reloads its settings.
    pub reloader: Reloader,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Running {
    /// Starts a server with default settings.
    pub async fn start(script: Script) -> Self {
        Self::start_with(script, |_| {}).await
    }

    /// Starts a server with changed settings.
    pub async fn start_with(script: Script, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_calibrated(script, None, change).await
    }

    /// Like [`Self::start_with`], with the load of one call, without which `limits.headroom` refuses nobody.
    pub async fn start_calibrated(script: Script, load: Option<Load>, change: impl FnOnce(&mut Config)) -> Self {
        let engine = ScriptedEngine::new(script);
        let mut config = config();
        change(&mut config);
        let server = Server::bind(config, engine.clone()).await.unwrap();
        load.into_iter().for_each(|load| server.set_call_load(load));
        let (address, sip, health) = (server.local_addr(), server.sip_addr(), server.health_addr());
        let (stop, stopped) = oneshot::channel();
        let (mut ready, reloader) = (server.ready(), server.reloader());
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        ready.wait_for(|ready| *ready).await.unwrap();
        Self { address, engine, sip, health, reloader, stop: Some(stop), task }
    }

    /// Returns the URL of a realtime websocket.
    pub fn url(&self) -> String {
        format!("ws://{}/v1/realtime?model=gpt-realtime", self.address)
    }

    /// Connects a client, and reads `session.created`.
    pub async fn connect(&self) -> Client {
        let mut client = self.dial().await.unwrap();
        client.expect("session.created").await;
        client
    }

    /// Connects a client and reads nothing.
    pub async fn dial(&self) -> Result<Client, Error> {
        self.dial_with(&[]).await
    }

    /// Connects a client that also sends these headers.
    pub async fn dial_with(&self, headers: &[(&'static str, &str)]) -> Result<Client, Error> {
        let mut request = self.url().into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", "realtime".parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let (socket, response) = connect_async(request).await?;
        assert_eq!(response.headers()["sec-websocket-protocol"], "realtime");
        Ok(Client { socket })
    }

    /// Attaches a sideband client to the call with this id.
    pub async fn attach(&self, id: &str) -> Result<Client, Error> {
        self.attach_with(id, &[]).await
    }

    /// As [`Self::attach`], with these headers.
    pub async fn attach_with(&self, id: &str, headers: &[(&'static str, &str)]) -> Result<Client, Error> {
        let url = format!("ws://{}/v1/realtime?call_id={id}", self.address);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        Ok(Client { socket: connect_async(request).await?.0 })
    }

    /// Returns once this many sessions are open.
    pub async fn sessions(&self, count: usize) {
        let mut open = self.engine.open_sessions();
        timeout(PATIENCE, open.wait_for(|open| *open == count)).await.expect("sessions in time").unwrap();
    }

    /// Begins to stop the server.
    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Returns once the server has ended.
    pub async fn ended(self) {
        timeout(PATIENCE, self.task).await.expect("the server ends").unwrap().unwrap();
    }

    /// Sends a GET request; returns the status and the whole response.
    pub async fn get(&self, path: &str) -> (u16, String) {
        self.request(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address)).await
    }

    /// Sends a raw request; returns the status and the whole response.
    pub async fn request(&self, request: &str) -> (u16, String) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        timeout(PATIENCE, socket.read_to_string(&mut text)).await.expect("an answer in time").unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        (status, text)
    }
}

/// Websocket client of the tests.
#[derive(Debug)]
pub struct Client {
    /// Connection to the server.
    pub socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    /// Sends an event.
    pub async fn send(&mut self, event: Value) {
        self.send_text(event.to_string()).await;
    }

    /// Sends a text message.
    pub async fn send_text(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    /// Returns the next message; `None` at the end.
    pub async fn message(&mut self) -> Option<Message> {
        timeout(PATIENCE, self.socket.next()).await.expect("a message in time").and_then(Result::ok)
    }

    /// Returns the next event; the library answers pings before it.
    pub async fn event(&mut self) -> Value {
        loop {
            match self.message().await.expect("the connection lives") {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) => {}
                other => panic!("no event: {other:?}"),
            }
        }
    }

    /// Returns the next event, which must be of this type.
    pub async fn expect(&mut self, kind: &str) -> Value {
        let event = self.event().await;
        assert_eq!(event["type"], kind, "{event}");
        event
    }

    /// Returns all events up to the next of this type.
    pub async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.event().await;
            let found = event["type"] == kind;
            events.push(event);
            if found {
                return events;
            }
        }
    }

    /// Returns the next event, which must be an error with this code.
    pub async fn error(&mut self, code: &str) -> Value {
        let event = self.expect("error").await;
        assert_eq!(event["error"]["code"], code, "{event}");
        event["error"].clone()
    }

    /// Changes the session and reads the confirmation.
    pub async fn update(&mut self, session: Value) -> Value {
        self.send(json!({"type": "session.update", "session": session})).await;
        self.expect("session.updated").await["session"].clone()
    }

    /// Sends sound at 24 kHz in pieces of `piece` samples.
    pub async fn speak(&mut self, samples: &[f32], piece: usize) {
        for piece in samples.chunks(piece) {
            let audio = STANDARD.encode(pcm::encode_i16le(piece));
            self.send(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
        }
    }

    /// Asks a question by text and reads all events up to the end of the answer.
    pub async fn ask(&mut self, text: &str) -> Vec<Value> {
        let content = json!([{"type": "input_text", "text": text}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        self.send(json!({"type": "conversation.item.create", "item": item})).await;
        self.send(json!({"type": "response.create"})).await;
        self.until("response.done").await
    }
}

/// Types of events, with repetitions written once.
pub fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

/// Returns the event of this type.
pub fn find<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("{kind} in {:?}", kinds(events)))
}

/// Sound of all `response.output_audio.delta` events.
pub fn sound(events: &[Value]) -> Vec<f32> {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_audio.delta");
    let bytes: Vec<u8> = deltas.flat_map(|event| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap()).collect();
    pcm::decode_i16le(&bytes).unwrap()
}

/// A spoken question at 24 kHz, with silence around it.
pub fn question() -> Vec<f32> {
    let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/question.wav")).unwrap();
    let mut question = silence(500);
    question.extend(sound_file::read(&file[..], 24_000, PATIENCE).unwrap());
    question.extend(silence(1_000));
    question
}

/// Near silence of this length at 24 kHz.
pub fn silence(ms: usize) -> Vec<f32> {
    (0..ms * 24).map(|sample| if sample % 2 == 0 { 1e-4 } else { -1e-4 }).collect()
}
