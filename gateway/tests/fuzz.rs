//! Client input never causes a panic or growth. Inputs are mutations of a saved corpus, drawn from a fixed seed.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

#[path = "fuzz/corpora.rs"]
mod corpora;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, EngineUsage, Event, FinishReason, SpeechEngine as _};
use repartee_media::vad::TurnEvent;
use repartee_protocol::{ClientMessage, ServerMessage};
use repartee_realtime::{Delivery, Effect, RealtimeSession, SessionInput, SessionSetup};
use repartee_testkit::fuzz::{assert_bounded, mutation};
use repartee_testkit::memory::{CountScope, CountingAllocator, MemoryGrowth};
use repartee_testkit::random::Random;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use repartee_gateway_testkit::Running;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Changes a value somewhere in an event, but not the whole event.
fn transform(value: &mut Value, depth: usize, donor: &Value, random: &mut Random) {
    let odd = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(0.5),
        json!(""),
        json!("root"),
        json!("item_s_7"),
        json!("audio"),
        json!("none"),
        json!([]),
        json!({}),
        json!([null, {}, "x"]),
        json!({"type": "audio/opus"}),
        json!("ü".repeat(3_000)),
    ];
    let deeper = depth == 0 || random.below(8) > 0;
    match value {
        Value::Object(fields) if deeper && !fields.is_empty() => {
            let key = fields.keys().nth(random.below(fields.len())).unwrap().clone();
            match random.below(8) {
                // An event without its type is rejected at once, so the type is rarely changed.
                _ if key == "type" && random.below(8) > 0 => {}
                0 => drop(fields.remove(&key)),
                1 => {
                    let moved = fields.remove(&key).unwrap();
                    fields.insert(random.choose(&["type", "id", "item", "session", "x"]).to_string(), moved);
                }
                _ => transform(&mut fields[&key], depth + 1, donor, random),
            }
        }
        Value::Array(items) if deeper && !items.is_empty() => {
            let index = random.below(items.len());
            match random.below(6) {
                0 => drop(items.remove(index)),
                1 => items.push(items[index].clone()),
                _ => transform(&mut items[index], depth + 1, donor, random),
            }
        }
        value if random.below(3) == 0 => *value = donor.clone(),
        value => *value = random.choose(&odd).clone(),
    }
}

/// Realtime session whose engine answers at once.
struct FuzzSession {
    core: RealtimeSession,
    now: Instant,
    received_ms: u64,
    /// Ids of all items that were ever in the history.
    items: Vec<String>,
}

impl FuzzSession {
    fn new(delivery: Delivery) -> Self {
        let model = ScriptedEngine::new(Script::default()).info().clone();
        let setup = SessionSetup {
            session_id: "sess_1".into(),
            stem: "s".into(),
            seed: 7,
            model,
            delivery,
            expires_at: None,
            configuration: None,
            warnings: Vec::new(),
        };
        Self { core: RealtimeSession::new(setup).0, now: Instant::now(), received_ms: 0, items: Vec::new() }
    }

    fn input(&mut self, input: SessionInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.core.handle(input, self.now) {
                match effect {
                    Effect::Send(message) => {
                        let message = read_back(&message);
                        if message["type"] == "conversation.item.added" {
                            self.items.extend(message["item"]["id"].as_str().map(str::to_owned));
                        }
                    }
                    Effect::Engine(Command::Respond(respond) | Command::BeginSpeculation { respond, .. }) => {
                        let response = respond.response;
                        inputs.push(SessionInput::Engine(Event::SegmentFinished {
                            response,
                            reason: FinishReason::Stop,
                            usage: EngineUsage::default(),
                        }));
                        let samples = vec![0.1; 1_920];
                        inputs.push(SessionInput::Engine(Event::Audio { response, frame: 0, samples, stamps: None }));
                        inputs.push(SessionInput::Engine(Event::Text { response, text: "One two three.".into() }));
                    }
                    _ => {}
                }
            }
            if inputs.is_empty() && self.core.has_pending_event() {
                inputs.push(SessionInput::PendingEvent);
            }
        }
    }

    /// Ends the turn and deletes every item: the rest of the memory belongs to the session itself.
    fn empty(&mut self) {
        self.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: self.received_ms }));
        let mut events = vec![json!({"type": "input_audio_buffer.clear"})];
        let mut session = json!({"type": "realtime"});
        for setting in
            ["instructions", "tools", "tool_choice", "prompt", "tracing", "include", "audio", "max_output_tokens"]
        {
            session[setting] = Value::Null;
        }
        events.push(json!({"type": "session.update", "session": session}));
        let items = std::mem::take(&mut self.items);
        events.extend(items.iter().map(|id| json!({"type": "conversation.item.delete", "item_id": id})));
        for event in events {
            self.input(SessionInput::Client(ClientMessage::parse(&event.to_string()).unwrap()));
        }
    }

    /// Sends other input of a caller between the fuzzed events.
    fn live(&mut self, random: &mut Random) {
        let ms = self.received_ms;
        match random.below(6) {
            0 => self.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: ms.saturating_sub(300) })),
            1 => self.input(SessionInput::Turn(TurnEvent::Paused { audio_end_ms: ms })),
            2 => self.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: ms })),
            _ => {
                self.input(SessionInput::Audio(vec![0.1; 320]));
                self.received_ms += 20;
                self.now += Duration::from_millis(20);
            }
        }
    }
}

/// Checks that the types that wrote a message can read it. Returns it as a client sees it.
fn read_back(message: &ServerMessage) -> Value {
    let text = serde_json::to_string(message).unwrap();
    assert!(serde_json::from_str::<ServerMessage>(&text).is_ok(), "{text}");
    serde_json::from_str(&text).unwrap()
}

fn corpus() -> Vec<String> {
    include_str!("../testdata/fuzz/events.jsonl").lines().map(str::to_owned).collect()
}

/// Waits until no other test of this binary runs: one of them counts the memory of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    // Two tests panic on purpose.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fuzz_events(count: usize, seed: u64) {
    let _alone = alone();
    let (corpus, mut random) = (corpus(), Random::new(seed));
    let bytes: Vec<Vec<u8>> = corpus.iter().map(|text| text.clone().into_bytes()).collect();
    let values: Vec<Value> = corpus.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let mut talks = [FuzzSession::new(Delivery::Paced), FuzzSession::new(Delivery::Unpaced)];
    let (inputs, mut growth, mut understood) = (corpus.len() + count, MemoryGrowth::begin(CountScope::Thread), 0);
    for round in 0..inputs {
        // A full history would refuse further items.
        if round % 1_000 == 0 || round == inputs / 4 {
            talks.iter_mut().for_each(FuzzSession::empty);
        }
        if round == inputs / 4 {
            growth = MemoryGrowth::begin(CountScope::Thread);
        }
        let mut text = random.choose(&corpus).clone();
        if round < corpus.len() {
            text.clone_from(&corpus[round]);
        } else if random.below(3) > 0 {
            let mut value = random.choose(&values).clone();
            for _ in 0..=random.below(2) {
                transform(&mut value, 0, random.choose(&values), &mut random);
            }
            text = value.to_string();
        } else {
            text = String::from_utf8_lossy(&mutation(&bytes, &mut random)).into_owned();
        }
        let talk = &mut talks[round % 2];
        let survived = catch_unwind(AssertUnwindSafe(|| match ClientMessage::parse(&text) {
            Ok(message) => {
                talk.input(SessionInput::Client(message));
                true
            }
            Err(error) => {
                assert!(error.message.len() < 1_000, "an error is for a person: {}", error.message.len());
                talk.input(SessionInput::Refused(*error));
                false
            }
        }));
        assert!(survived.is_ok(), "this input is worth a place in the corpus:\n{text}");
        understood += usize::from(survived.unwrap());
        talk.live(&mut random);
    }
    // Most inputs should pass the parser, or nothing behind it is tested.
    assert!(understood > count / 3, "{understood} of {count} were events");
    talks.iter_mut().for_each(FuzzSession::empty);
    assert_bounded(&growth, inputs - inputs / 4);
}

#[test]
fn mutated_events_neither_panic_nor_grow() {
    fuzz_events(10_000, 0x5eed);
}

#[test]
#[ignore = "takes minutes: for the long suite"]
fn a_million_events_neither_panic_nor_grow() {
    fuzz_events(1_000_000, 0xfeed);
}

fn frames() -> Vec<Vec<u8>> {
    let lines = include_str!("../testdata/fuzz/frames.txt").lines().filter(|line| !line.starts_with('#'));
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let hex = lines.map(|line| line.bytes().filter(u8::is_ascii_hexdigit).collect::<Vec<_>>());
    hex.map(|digits| digits.chunks_exact(2).map(byte).collect()).collect()
}

/// Opens a raw websocket, writes `input` and leaves once the server has read it or closed; true after a handshake.
async fn write_frames(server: &Running, input: &[u8]) -> bool {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let request = format!(
        "GET /v1/realtime HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: \
         13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.address
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    // The server may close while this side still writes.
    let _ = socket.write_all(input).await;
    let _ = socket.shutdown().await;
    let mut rest = Vec::new();
    timeout(repartee_gateway_testkit::PATIENCE, socket.read_to_end(&mut rest)).await.expect("the server lets go").ok();
    rest.starts_with(b"HTTP/1.1 101 ")
}

/// Close frame of a client.
const CLOSE: [u8; 6] = [0x88, 0x80, 0, 0, 0, 0];

async fn fuzz_frames(count: usize, seed: u64) {
    const A_CONNECTION: usize = 20;
    let script = Script { slots: 8, ..Script::default() };
    let server = Running::start_with(script, |config| config.limits.opens_per_minute = u32::MAX).await;
    let (corpus, mut random) = (frames(), Random::new(seed));
    let (connections, mut entered) = (count / A_CONNECTION, 0);
    for frame in &corpus {
        write_frames(&server, frame).await;
    }
    // The server remembers as many ended calls, and no more.
    const REMEMBERED: usize = 4_096;
    for _ in 0..REMEMBERED {
        write_frames(&server, &CLOSE).await;
    }
    let mut growth = MemoryGrowth::begin(CountScope::Process);
    for connection in 0..connections {
        if connection == connections / 4 {
            growth = MemoryGrowth::begin(CountScope::Process);
        }
        let mut input = Vec::new();
        for _ in 0..A_CONNECTION {
            let is_whole = random.below(3) == 0;
            input.extend(if is_whole { random.choose(&corpus).clone() } else { mutation(&corpus, &mut random) });
        }
        entered += usize::from(write_frames(&server, &input).await);
        server.sessions(0).await;
        // The script's own log is no growth of the server.
        server.engine.take_commands();
    }
    assert_eq!(entered, connections, "the others were not even read");
    assert_bounded(&growth, connections - connections / 4);
    // The next client is still served.
    let mut client = server.connect().await;
    client.ask("hello").await;
}

/// Runs the test without others beside it: the server's work has threads of its own, so all memory counts.
fn fuzz_frames_alone(count: usize, seed: u64) {
    let _alone = alone();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(fuzz_frames(count, seed));
}

#[test]
fn mutated_frames_neither_panic_nor_grow() {
    fuzz_frames_alone(10_000, 0x5eed);
}

#[test]
#[ignore = "takes minutes: for the long suite"]
fn a_million_frames_neither_panic_nor_grow() {
    fuzz_frames_alone(1_000_000, 0xfeed);
}
