use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_engine_api::SpeechEngine as _;
use repartee_realtime::SessionSetup;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{advance, interval, interval_at};

use super::*;
use crate::admission::ClientIdentity;
use crate::byte_budget::ByteBudget;
use crate::call::{self, CallEnd, CallLimits, CallServices};
use crate::metrics::Metrics;
use crate::transport::message_bytes::RESERVED;

/// Socket whose peer reads `takes` messages and then stops; `taken` holds the messages read.
#[derive(Clone)]
struct Peer {
    takes: usize,
    taken: Arc<Mutex<Vec<Message>>>,
}

impl Peer {
    fn new(takes: usize) -> Self {
        Self { takes, taken: Arc::default() }
    }

    /// Types of the events read.
    fn kinds(&self) -> Vec<String> {
        let taken = self.taken.lock().unwrap();
        let texts = taken.iter().filter_map(|message| message.to_text().ok());
        let events = texts.map(|text| serde_json::from_str::<Value>(text).unwrap());
        events.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }
}

impl Peer {
    /// Code of the last event read, which is an error.
    fn last_error(&self) -> String {
        let taken = self.taken.lock().unwrap();
        let texts = taken.iter().filter_map(|message| message.to_text().ok());
        let events: Vec<Value> = texts.filter_map(|text| serde_json::from_str(text).ok()).collect();
        events.last().unwrap()["error"]["code"].as_str().unwrap().to_owned()
    }
}

impl Sink<Message> for Peer {
    type Error = axum::Error;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
        if self.takes > 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), axum::Error> {
        self.takes -= 1;
        self.taken.lock().unwrap().push(message);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
        Poll::Ready(Ok(()))
    }
}

/// Stream of the peer's messages.
struct Incoming(mpsc::Receiver<Message>);

impl Stream for Incoming {
    type Item = Result<Message, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|message| message.map(Ok))
    }
}

fn event(event: &Value) -> Message {
    Message::text(event.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_stalled_socket_is_closed_after_10_s() {
    let (outbound, queue) = mpsc::channel(OUTBOUND_QUEUE);
    let start = Instant::now();
    let writer = tokio::spawn(write(Peer::new(3), queue, Duration::from_secs(10)));
    for _ in 0..8 {
        outbound.send(OutboundMessage::Event("error", "{}".into())).await.unwrap();
    }
    outbound.closed().await;
    writer.await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_slow_socket_stays_open() {
    let (outbound, queue) = mpsc::channel(OUTBOUND_QUEUE);
    let writer = tokio::spawn(write(Peer::new(9), queue, Duration::from_secs(10)));
    for _ in 0..8 {
        advance(Duration::from_secs(9)).await;
        outbound.send(OutboundMessage::Event("error", "{}".into())).await.unwrap();
    }
    drop(outbound);
    writer.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_pings_ends_the_call() {
    let (client, incoming) = mpsc::channel(1_000);
    let (mut transport, _writer) =
        WebSocketTransport::new((Incoming(incoming), Peer::new(0)), Arc::default(), 24_000, Timeouts::default());
    let ping = || Message::Ping(Bytes::from_static(&[0; 125]));
    // A ping a second, as some clients send, goes on for ever.
    for _ in 0..500 {
        client.send(ping()).await.unwrap();
        advance(Duration::from_secs(1)).await;
        assert!(timeout(Duration::from_millis(1), transport.next(true)).await.is_err());
    }
    for _ in 0..500 {
        client.send(ping()).await.unwrap();
    }
    let flooded = Instant::now();
    assert!(matches!(transport.next(true).await, TransportEvent::Closed));
    assert_eq!(flooded.elapsed(), Duration::ZERO, "not because of silence");
}

#[tokio::test(start_paused = true)]
async fn large_messages_are_held_until_the_next_wait() {
    let budget = ByteBudget::new(RESERVED as u64);
    let (client, incoming) = mpsc::channel(8);
    let bytes = Arc::new(MessageBytes::default());
    bytes.begin(budget.begin(ClientIdentity { address: [127, 0, 0, 1].into(), key: None }, None, 0));
    let (mut transport, _writer) =
        WebSocketTransport::new((Incoming(incoming), Peer::new(0)), bytes.clone(), 24_000, Timeouts::default());
    for length in [2 * FREE, 2 * FREE, 10] {
        bytes.add(length).unwrap();
        client.send(Message::text("x".repeat(length))).await.unwrap();
    }
    for length in [2 * FREE, 2 * FREE, 10] {
        let TransportEvent::Event(text) = transport.next(true).await else { panic!("an event") };
        assert_eq!((text.len(), budget.total()), (length, RESERVED));
        assert!(bytes.coming().is_none(), "what has come is not late");
        // While the call works on it, nothing is read.
        assert!(timeout(Duration::from_millis(1), transport.next(false)).await.is_err());
        assert!(budget.total() == RESERVED && transport.large.is_some());
    }
    assert!(timeout(Duration::from_millis(1), transport.next(true)).await.is_err());
    assert!(budget.total() == 0 && transport.large.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_silent_caller_is_pinged_then_closed() {
    let (client, incoming) = mpsc::channel(8);
    let (mut transport, writer) =
        WebSocketTransport::new((Incoming(incoming), Peer::new(0)), Arc::default(), 24_000, Timeouts::default());
    drop(writer);
    let (outbound, mut queue) = mpsc::channel(8);
    transport.outbound = outbound;
    let start = Instant::now();
    let listening = tokio::spawn(async move { transport.next(true).await });
    assert_eq!(queue.recv().await, Some(OutboundMessage::Ping));
    assert_eq!(start.elapsed(), Duration::from_secs(20));
    advance(Duration::from_secs(15)).await;
    client.send(Message::Pong(Bytes::new())).await.unwrap();
    assert_eq!(queue.recv().await, Some(OutboundMessage::Ping));
    assert_eq!(start.elapsed(), Duration::from_secs(55));
    // The second ping gets no pong.
    assert!(matches!(listening.await.unwrap(), TransportEvent::Closed));
    assert_eq!(start.elapsed(), Duration::from_secs(75));
}

#[tokio::test(start_paused = true)]
async fn large_events_wait_one_at_a_time() {
    let engine = ScriptedEngine::new(Script::default());
    let (client, incoming) = mpsc::channel(64);
    let (mut transport, writer) =
        WebSocketTransport::new((Incoming(incoming), Peer::new(0)), Arc::default(), 24_000, Timeouts::default());
    drop(writer);
    let (outbound, mut queue) = mpsc::channel(OUTBOUND_QUEUE);
    transport.outbound = outbound;
    let setup = setup(&engine);
    let (session, metrics) = (engine.open().unwrap(), Arc::new(Metrics::new(engine.info().frame).unwrap()));
    tokio::spawn(call::run(transport, session, setup, CallServices::new(metrics, None), pending(), pending()));
    let text = "word ".repeat((1 << 20) / 5);
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "user", "id": "large", "content": content});
    client.try_send(event(&json!({"type": "conversation.item.create", "item": item}))).unwrap();
    for _ in 0..OUTBOUND_QUEUE {
        client.try_send(event(&json!({"type": "conversation.item.retrieve", "item_id": "large"}))).unwrap();
    }
    // Nobody reads, so the call stands still.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (mut kinds, mut waiting) = (Vec::new(), 0);
    while let Ok(OutboundMessage::Event(kind, text)) = queue.try_recv() {
        kinds.push(kind);
        waiting += text.len();
    }
    assert!(waiting < 2 << 20, "{waiting} bytes wait: {kinds:?}");
    // A peer that reads gets all events in order.
    while kinds.len() < 3 + OUTBOUND_QUEUE {
        let Some(OutboundMessage::Event(kind, _)) = queue.recv().await else { panic!("{kinds:?}") };
        kinds.push(kind);
    }
    assert_eq!(kinds[..3], ["session.created", "conversation.item.added", "conversation.item.done"]);
    assert!(kinds[3..].iter().all(|kind| *kind == "conversation.item.retrieved"));
}

fn setup(engine: &ScriptedEngine) -> SessionSetup {
    SessionSetup {
        session_id: "sess_1".into(),
        stem: "s".into(),
        seed: 1,
        model: engine.info().clone(),
        delivery: Delivery::Unpaced,
        expires_at: None,
        configuration: None,
        warnings: Vec::new(),
    }
}

/// Runs a call of a client behind `peer`.
fn dial(
    engine: &ScriptedEngine,
    metrics: &Arc<Metrics>,
    peer: &Peer,
    limits: CallLimits,
) -> (mpsc::Sender<Message>, JoinHandle<CallEnd>) {
    let (client, incoming) = mpsc::channel(8);
    let (transport, writer) =
        WebSocketTransport::new((Incoming(incoming), peer.clone()), Arc::default(), 24_000, Timeouts::default());
    tokio::spawn(writer);
    let (setup, session) = (setup(engine), engine.open().unwrap());
    let services = CallServices { limits, ..CallServices::new(metrics.clone(), None) };
    let ended = call::run(transport, session, setup, services, pending(), pending());
    (client, tokio::spawn(ended))
}

/// Answers pings until the call ends; returns the reason of the end and the call's duration.
async fn answer_pings(
    client: &mpsc::Sender<Message>,
    mut ended: JoinHandle<CallEnd>,
    says: Duration,
) -> (CallEnd, Duration) {
    let start = Instant::now();
    let (mut pongs, mut words) = (interval(Duration::from_secs(5)), interval_at(start + says, says));
    loop {
        tokio::select! {
            biased;
            end = &mut ended => return (end.unwrap(), start.elapsed()),
            _ = pongs.tick() => {
                assert!(start.elapsed() < Duration::from_secs(7_200), "nothing ends the call");
                drop(client.try_send(Message::Pong(Bytes::new())));
            }
            _ = words.tick() => drop(client.try_send(event(&json!({"type": "input_audio_buffer.clear"})))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_longest_duration() {
    let engine = ScriptedEngine::new(Script::default());
    let metrics = Arc::new(Metrics::new(engine.info().frame).unwrap());
    let limits = CallLimits {
        max_duration: Some(Duration::from_secs(3_600)),
        idle_timeout: Some(Duration::from_secs(60)),
        ..CallLimits::default()
    };
    let peer = Peer::new(usize::MAX);
    let (client, ended) = dial(&engine, &metrics, &peer, limits);
    let (end, lasted) = answer_pings(&client, ended, Duration::from_secs(30)).await;
    assert_eq!((end, lasted), (CallEnd::Expired, Duration::from_secs(3_600)));
    assert_eq!(peer.last_error(), "session_expired");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_input_is_hung_up() {
    let engine = ScriptedEngine::new(Script::default());
    let metrics = Arc::new(Metrics::new(engine.info().frame).unwrap());
    let limits =
        CallLimits { max_duration: None, idle_timeout: Some(Duration::from_secs(60)), ..CallLimits::default() };
    // Pongs are not input; an event every 90 s comes too late.
    let peer = Peer::new(usize::MAX);
    let (client, ended) = dial(&engine, &metrics, &peer, limits);
    let (end, lasted) = answer_pings(&client, ended, Duration::from_secs(90)).await;
    assert_eq!((end, lasted), (CallEnd::Idle, Duration::from_secs(60)));
    assert_eq!(peer.last_error(), "session_idle");
    // A caller who is listening is not idle: the gate holds the answer back.
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let engine = ScriptedEngine::new(Script { gate: Some(gate.clone()), ..Script::default() });
    let (client, ended) = dial(&engine, &metrics, &Peer::new(usize::MAX), limits);
    client.try_send(event(&json!({"type": "response.create"}))).unwrap();
    let (end, lasted) = {
        let opening = async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            gate.add_permits(1_000);
            pending::<()>().await;
        };
        tokio::select! {
            ended = answer_pings(&client, ended, Duration::from_secs(10_000)) => ended,
            () = opening => unreachable!("it waits for ever"),
        }
    };
    assert_eq!((end, lasted), (CallEnd::Idle, Duration::from_secs(160)), "a minute after the answer");
}

/// Codec frames of each answer in the next test: more than all queues together hold.
const FRAMES: u64 = 400;

#[tokio::test(start_paused = true)]
async fn a_stalled_client_does_not_slow_others() {
    let engine = ScriptedEngine::new(Script { slots: 21, frames: FRAMES, ..Script::default() });
    let metrics = Arc::new(Metrics::new(engine.info().frame).unwrap());
    let call = |peer: &Peer| {
        let (client, ended) = dial(&engine, &metrics, peer, CallLimits::default());
        let content = json!([{"type": "input_text", "text": "Tell me everything."}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        client.try_send(event(&json!({"type": "conversation.item.create", "item": item}))).unwrap();
        client.try_send(event(&json!({"type": "response.create"}))).unwrap();
        (client, ended)
    };
    let start = Instant::now();
    let stalled = Peer::new(40);
    let (_stalled_client, stalled_ended) = call(&stalled);
    let others: Vec<_> = (0..20).map(|_| Peer::new(usize::MAX)).collect();
    let calls: Vec<_> = others.iter().map(call).collect();
    assert_eq!(stalled_ended.await.unwrap(), CallEnd::Unreachable);
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    // Paused time stands still while any task is busy: the other calls finished before it moved.
    let expected = others[0].kinds();
    assert_eq!(expected.last().map(String::as_str), Some("response.done"));
    let deltas = expected.iter().filter(|kind| *kind == "response.output_audio.delta").count() as u64;
    assert_eq!(deltas, FRAMES);
    for (other, (_, ended)) in others.iter().zip(&calls) {
        assert_eq!(other.kinds(), expected);
        assert!(!ended.is_finished());
    }
    // The stalled peer read the beginning of the same events, and the engine generated little more for it.
    assert_eq!(stalled.kinds(), expected[..40]);
    let made = *engine.frames().borrow() - 20 * FRAMES;
    let queued = (OUTBOUND_QUEUE + repartee_engine_api::EVENT_QUEUE + 40 + 16) as u64;
    assert!(made < queued, "{made} frames for a client that has read 40 events");
    drop(calls);
    let mut open = engine.open_sessions();
    open.wait_for(|open| *open == 0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_input_waits_is_pinged() {
    let (_client, incoming) = mpsc::channel(1);
    let peer = Peer::new(usize::MAX);
    let (mut transport, writer) =
        WebSocketTransport::new((Incoming(incoming), peer.clone()), Arc::default(), 24_000, Timeouts::default());
    let writer = tokio::spawn(writer);
    // The call takes no input for 10 s, and looks each second whether it may.
    for _ in 0..10 {
        assert!(timeout(Duration::from_secs(1), transport.next(false)).await.is_err());
    }
    drop(transport);
    writer.await.unwrap();
    let taken = peer.taken.lock().unwrap();
    assert_eq!(taken.len(), 5, "{taken:?}");
    assert!(taken.iter().all(|message| matches!(message, Message::Ping(_))));
}

/// Turns of the runtime until 1.28 s of sound that came in appends of this size are committed.
async fn turns_of_sound(append: Duration) -> usize {
    let engine = ScriptedEngine::new(Script::default());
    let metrics = Arc::new(Metrics::new(engine.info().frame).unwrap());
    let (client, incoming) = mpsc::channel(100);
    let peer = Peer::new(usize::MAX);
    let (transport, writer) =
        WebSocketTransport::new((Incoming(incoming), peer.clone()), Arc::default(), 24_000, Timeouts::default());
    tokio::spawn(writer);
    let (setup, session) = (setup(&engine), engine.open().unwrap());
    let call = call::run(transport, session, setup, CallServices::new(metrics, None), pending(), pending());
    let _call = tokio::spawn(call);
    // 48 bytes a millisecond.
    let audio = STANDARD.encode(vec![0; 48 * append.as_millis() as usize]);
    for _ in 0..1_280 / append.as_millis() {
        client.try_send(event(&json!({"type": "input_audio_buffer.append", "audio": audio}))).unwrap();
    }
    client.try_send(event(&json!({"type": "input_audio_buffer.commit"}))).unwrap();
    let mut turns = 0;
    while !peer.kinds().iter().any(|kind| kind == "input_audio_buffer.committed") {
        tokio::task::yield_now().await;
        turns += 1;
        assert!(turns < 1_000, "the turn was not committed: {:?}", peer.kinds());
    }
    turns
}

#[tokio::test(start_paused = true)]
async fn sound_needs_few_turns_of_the_runtime() {
    for append in [20, 80, 640] {
        let turns = turns_of_sound(Duration::from_millis(append)).await;
        // In each of them others run, so a caller of a busy server waits for as long as all of them.
        assert!(turns < 32, "{turns} turns for 64 pieces in appends of {append} ms");
        assert!(turns >= 7, "others had {turns} turns while a caller took 64 in appends of {append} ms");
    }
}
