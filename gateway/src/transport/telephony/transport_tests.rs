use std::pin::Pin;

use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::{Instant as Time, advance};

use super::*;

type Incoming = Pin<Box<dyn Stream<Item = Result<Message, axum::Error>> + Send>>;

/// A call under a virtual clock, with the provider's ends.
struct Line {
    transport: TelephonyTransport<Incoming>,
    to_server: mpsc::Sender<Message>,
    from_server: mpsc::Receiver<Message>,
}

/// Sound at 24 kHz.
fn tone(ms: usize) -> Vec<f32> {
    (0..ms * 24).map(|i| (i as f32 * 0.1).sin() * 0.5).collect()
}

impl Line {
    fn new() -> Self {
        let (to_server, incoming) = mpsc::channel::<Message>(8);
        let (sink, from_server) = mpsc::channel::<Message>(64);
        let incoming = stream::unfold(incoming, |mut incoming| async move {
            incoming.recv().await.map(|message| (Ok(message), incoming))
        });
        let sink = futures_util::sink::unfold(sink, |sink: mpsc::Sender<Message>, message| async move {
            sink.send(message).await.map_err(axum::Error::new)?;
            Ok(sink)
        });
        let start = StreamStart { stream_sid: "MZ1".to_owned(), ..StreamStart::default() };
        let halves = (Box::pin(incoming) as Incoming, Box::pin(sink));
        let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
        let (transport, writer) = TelephonyTransport::new(halves, start, 24_000, Duration::from_secs(10), metrics);
        tokio::spawn(writer);
        Self { transport, to_server, from_server }
    }

    /// Runs the transport for this long; returns the events, and what the provider got with its times.
    async fn run(&mut self, ms: u64) -> (Vec<TransportEvent>, Vec<(u64, Value)>) {
        let (mut events, mut messages, begun) = (Vec::new(), Vec::new(), Time::now());
        for _ in 0..ms {
            let next = tokio::time::timeout(Duration::ZERO, self.transport.next(true));
            if let Ok(event) = next.await {
                events.push(event);
                continue;
            }
            tokio::task::yield_now().await;
            while let Ok(message) = self.from_server.try_recv() {
                let at = begun.elapsed().as_millis() as u64;
                messages.push((at, serde_json::from_str(message.to_text().unwrap()).unwrap()));
            }
            advance(Duration::from_millis(1)).await;
        }
        (events, messages)
    }

    async fn send(&self, message: Value) {
        self.to_server.send(Message::text(message.to_string())).await.unwrap();
    }
}

fn is_sound(message: &Value) -> bool {
    message["event"] == "media"
}

#[tokio::test(start_paused = true)]
async fn sound_leaves_at_the_pace_of_the_clock() {
    let mut line = Line::new();
    line.transport.push_audio(1, &tone(1_000)).unwrap();
    line.transport.end_audio(1).unwrap();
    let (events, messages) = line.run(500).await;
    let times: Vec<u64> = messages.iter().filter(|(_, message)| is_sound(message)).map(|(at, _)| *at).collect();
    assert!((23..=26).contains(&times.len()), "a frame each 20 ms: {times:?}");
    assert!(times.windows(2).all(|pair| (19..=21).contains(&(pair[1] - pair[0]))), "{times:?}");
    let marks = messages.iter().filter(|(_, message)| message["event"] == "mark").count();
    assert!((4..=5).contains(&marks), "a mark each 100 ms: {messages:?}");
    assert!(matches!(events[0], TransportEvent::Playout(PlayoutReport::Started { response: 1 })), "{events:?}");
    let first = events.iter().any(|event| matches!(event, TransportEvent::FirstAudible { response: 1, .. }));
    assert!(first, "{events:?}");
    let (events, _) = line.run(700).await;
    let drained =
        |event: &TransportEvent| matches!(event, TransportEvent::Playout(PlayoutReport::Drained { response: 1 }));
    assert!(events.iter().any(drained), "{events:?}");
    assert_eq!(line.transport.heard(), None, "nothing plays");
}

#[tokio::test(start_paused = true)]
async fn marks_move_the_heard_position() {
    let mut line = Line::new();
    line.transport.push_audio(1, &tone(2_000)).unwrap();
    let (_, messages) = line.run(500).await;
    let (_, unconfirmed) = line.transport.heard().unwrap();
    assert!((300..=400).contains(&unconfirmed.as_millis()), "{unconfirmed:?}");
    let marks: Vec<Value> =
        messages.into_iter().filter(|(_, message)| message["event"] == "mark").map(|(_, message)| message).collect();
    line.send(json!({"event": "mark", "streamSid": "MZ1", "mark": marks[1]["mark"]})).await;
    line.run(2).await;
    let (response, heard) = line.transport.heard().unwrap();
    assert!(response == 1 && (200..=210).contains(&heard.as_millis()), "the second mark stands at 200 ms: {heard:?}");
}

#[tokio::test(start_paused = true)]
async fn clearing_stops_sound_here_and_there() {
    let mut line = Line::new();
    line.transport.push_audio(1, &tone(2_000)).unwrap();
    line.run(200).await;
    assert!(line.transport.pause_audio());
    let (_, paused) = line.run(100).await;
    // What was due before the pause.
    assert!(paused.iter().filter(|(_, message)| is_sound(message)).count() <= 1, "{paused:?}");
    line.transport.clear_audio();
    let (_, messages) = line.run(200).await;
    let kinds: Vec<_> = messages.iter().map(|(_, message)| message["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["clear"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_provider_ends_the_call() {
    let mut line = Line::new();
    let begun = Time::now();
    loop {
        if matches!(line.transport.next(true).await, TransportEvent::Closed) {
            break;
        }
    }
    assert_eq!(begun.elapsed(), SILENT_AFTER);
}
