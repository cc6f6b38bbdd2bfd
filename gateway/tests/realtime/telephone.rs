//! Telephone calls: a provider's side of Media Streams against the real server, with sidebands.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee::config::Secret;
use repartee::headroom::Load;
use repartee_engine_api::Command;
use repartee_media::opus::FRAME;
use repartee_media::pcm;
use repartee_media::resample::Resampler;
use repartee_testkit::scripted::Script;
use ring::hmac;
use serde_json::{Value, json};
use tokio::time::interval;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};

use repartee_gateway_testkit::{Client, Running, find, kinds, question};

use crate::sip::recorded;

/// Path of the streams.
pub const PATH: &str = "/v1/telephony/media-stream";
const CALL: &str = "CA0123456789abcdef0123456789abcdef";

/// A provider's side of a call.
pub struct Provider {
    client: Client,
    /// Sound that came, at 8 kHz, and is not cleared.
    pub received: Vec<f32>,
    /// Messages that came, but for sound.
    messages: Vec<Value>,
}

impl Provider {
    pub async fn dial(server: &Running, headers: &[(&'static str, &str)]) -> Result<Client, Error> {
        let mut request = format!("ws://{}{PATH}", server.address).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        Ok(Client { socket: connect_async(request).await?.0 })
    }

    /// Begins a call with these parameters.
    async fn call(server: &Running, parameters: Value) -> Self {
        Self::call_with(server, &[], parameters).await
    }

    /// Begins a call with these headers of the request, and these parameters.
    pub async fn call_with(server: &Running, headers: &[(&'static str, &str)], parameters: Value) -> Self {
        let mut client = Self::dial(server, headers).await.unwrap();
        client.send(json!({"event": "connected", "protocol": "Call", "version": "1.0.0"})).await;
        client.send(start(parameters)).await;
        Self { client, received: Vec::new(), messages: Vec::new() }
    }

    /// Speaks sound at 24 kHz in real time; marks come back once their sound has played.
    async fn speak(&mut self, samples: &[f32]) {
        let narrow = Resampler::new(24_000, 8_000).unwrap().convert(samples).unwrap().to_vec();
        let mut clock = interval(FRAME);
        for piece in narrow.chunks(160) {
            clock.tick().await;
            let payload = STANDARD.encode(pcm::encode_mulaw(piece));
            let media = json!({"track": "inbound", "chunk": "1", "timestamp": "20", "payload": payload});
            self.send(json!({"event": "media", "media": media})).await;
        }
    }

    async fn send(&mut self, mut message: Value) {
        message["streamSid"] = json!("MZ1");
        self.client.send(message).await;
    }

    /// Reads the next message; answers marks, which a line without delay has played.
    async fn next(&mut self) -> Value {
        let message = self.client.event().await;
        assert_eq!(message["streamSid"], "MZ1", "{message}");
        match message["event"].as_str().unwrap() {
            "media" => {
                let bytes = STANDARD.decode(message["media"]["payload"].as_str().unwrap()).unwrap();
                assert_eq!(bytes.len(), 160, "20 ms");
                self.received.extend(pcm::decode_mulaw(&bytes));
            }
            "mark" => {
                let mark = message["mark"].clone();
                self.messages.push(message.clone());
                self.send(json!({"event": "mark", "mark": mark})).await;
            }
            _ => self.messages.push(message.clone()),
        }
        message
    }

    /// Reads until this much sound has come.
    pub async fn listen(&mut self, ms: usize) {
        while self.received.len() < ms * 8 {
            self.next().await;
        }
    }
}

/// Signs the request of a stream, as the provider does with the account's token.
pub fn sign(token: &str, url: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, token.as_bytes());
    STANDARD.encode(hmac::sign(&key, url.as_bytes()))
}

fn start(parameters: Value) -> Value {
    let format = json!({"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1});
    json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": {"streamSid": "MZ1",
        "accountSid": "AC1", "callSid": CALL, "tracks": ["inbound"], "customParameters": parameters,
        "mediaFormat": format}})
}

/// Attaches a sideband to the call, which begins soon.
async fn sideband(server: &Running) -> (Client, Value) {
    server.sessions(1).await;
    loop {
        if let Ok(mut client) = server.attach(CALL).await {
            let created = client.expect("session.created").await;
            return (client, created);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn telephone_questions_are_answered() {
    let server = Running::start(Script { frames: 10, ..Script::default() }).await;
    let mut caller = Provider::call(&server, json!({"instructions": "Be brief."})).await;
    let (mut controller, created) = sideband(&server).await;
    assert_eq!(created["session"]["instructions"], "Be brief.");
    caller.speak(&question()).await;
    caller.listen(800).await;
    let events = controller.until("output_audio_buffer.stopped").await;
    let seen = kinds(&events);
    for kind in ["input_audio_buffer.speech_started", "output_audio_buffer.started", "response.done"] {
        assert!(seen.contains(&kind), "{kind} in {seen:?}");
    }
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    assert!(!seen.contains(&"response.output_audio.delta"), "sound is on the line");
    // Every 100 ms, and after the last sound.
    while caller.messages.len() < 8 {
        caller.next().await;
    }
    assert!(caller.messages.iter().all(|message| message["event"] == "mark"), "{:?}", caller.messages);
    let loud = caller.received.iter().filter(|sample| sample.abs() > 0.01).count();
    assert!(loud > 3_000, "the scripted voice arrived: {loud} samples");
    caller.send(json!({"event": "stop", "stop": {"accountSid": "AC1", "callSid": CALL}})).await;
    server.sessions(0).await;
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_call_seconds_count{end=\"hangup\",transport=\"telephone\"} 1\n"), "{metrics}");
    assert!(metrics.contains("repartee_ttfp_seconds_count 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn speech_clears_the_sound_at_the_provider() {
    // Four seconds, generated at once.
    let server = Running::start(Script { frames: 50, ..Script::default() }).await;
    let mut caller = Provider::call(&server, json!({})).await;
    let (mut controller, _) = sideband(&server).await;
    caller.speak(&question()).await;
    caller.listen(500).await;
    caller.speak(&question()).await;
    let events = controller.until("conversation.item.truncated").await;
    while caller.messages.iter().all(|message| message["event"] != "clear") {
        caller.next().await;
    }
    let received_ms = (caller.received.len() / 8) as u64;
    let heard_ms = find(&events, "conversation.item.truncated")["audio_end_ms"].as_u64().unwrap();
    assert!((400..=received_ms).contains(&heard_ms) && received_ms < 4_000, "{heard_ms} of {received_ms}");
    controller.until("output_audio_buffer.started").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn greetings_and_keys_reach_the_session() {
    let server = Running::start(Script::default()).await;
    // The script of docs/telephone.md.
    let page = include_str!("../../../docs/telephone.md");
    assert!(page.contains(&format!("<Stream url=\"wss://voice.example{PATH}\">")));
    let parameters: serde_json::Map<String, Value> = page
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.trim().strip_prefix("<Parameter name=\"")?.split_once("\" value=\"")?;
            Some((name.to_owned(), json!(rest.strip_suffix("\" />")?)))
        })
        .collect();
    let mut caller = Provider::call(&server, json!(parameters)).await;
    let (mut controller, created) = sideband(&server).await;
    assert_eq!(created["session"]["instructions"], parameters["instructions"]);
    caller.listen(400).await;
    controller.until("output_audio_buffer.stopped").await;
    let greeted = server.engine.commands().into_iter().any(|command| matches!(command, Command::Respond(_)));
    assert!(greeted, "the greeting is a response");
    caller.send(json!({"event": "dtmf", "dtmf": {"track": "inbound_track", "digit": "#"}})).await;
    let events = controller.until("input_audio_buffer.dtmf_event_received").await;
    assert_eq!(events.last().unwrap()["event"], "#");
    let request = format!(
        "POST /v1/realtime/calls/{CALL}/hangup HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        server.address
    );
    assert_eq!(server.request(&request).await.0, 200);
    loop {
        match caller.client.message().await {
            Some(Message::Close(frame)) => break assert_eq!(frame.unwrap().reason.as_str(), "the call was hung up"),
            Some(_) => {}
            None => panic!("closed without a reason"),
        }
    }
    server.sessions(0).await;
    // An unknown voice costs nothing else.
    let _caller = Provider::call(&server, json!({"instructions": "Be brief.", "voice": "nobody"})).await;
    let (_, created) = sideband(&server).await;
    assert_eq!(created["session"]["instructions"], "Be brief.");
    assert_ne!(created["session"]["audio"]["output"]["voice"], "nobody");
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_stream_has_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start_with(Script::default(), |config| {
        config.recording.folder = Some(folder.path().to_owned());
        config.telephony.greeting = Some("Greet the caller.".to_owned());
    })
    .await;
    let mut caller = Provider::call(&server, json!({})).await;
    let (mut controller, _) = sideband(&server).await;
    // The tone, and the greeting.
    caller.listen(900).await;
    recorded::assert_tone(&caller.received);
    caller.speak(&question()).await;
    controller.until("output_audio_buffer.stopped").await;
    drop(caller);
    server.sessions(0).await;
    recorded::recorded(&server, "kept").await;
    recorded::assert_both_sides(folder.path(), CALL);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_streams_are_closed_with_a_reason() {
    let server = Running::start(Script::default()).await;
    let mut wide = start(json!({}));
    wide["start"]["mediaFormat"] = json!({"encoding": "audio/x-l16", "sampleRate": 16000, "channels": 1});
    let mut nameless = start(json!({}));
    nameless["start"]["streamSid"] = json!("");
    for (message, reason) in [
        (wide.to_string(), "only audio/x-mulaw at 8000 Hz"),
        (nameless.to_string(), "no streamSid"),
        ("hello".to_owned(), "not of the Media Streams protocol"),
        (json!({"event": "start"}).to_string(), "not of the Media Streams protocol"),
        (json!({"event": "media", "media": {"payload": 7}}).to_string(), "not of the Media Streams protocol"),
    ] {
        let mut client = Provider::dial(&server, &[]).await.unwrap();
        client.send_text(message.clone()).await;
        let Some(Message::Close(Some(frame))) = client.message().await else { panic!("{message} is accepted") };
        assert!(frame.reason.contains(reason), "{message}: {}", frame.reason);
    }
    server.sessions(0).await;
    // Within a call unreadable messages are errors, until there are too many.
    let mut caller = Provider::call(&server, json!({})).await;
    let (mut controller, _) = sideband(&server).await;
    for message in ["{", "[]", "{\"event\": \"media\", \"media\": {\"payload\": \"!\"}}", "{\"event\": \"later\"}"] {
        caller.client.send_text(message).await;
    }
    caller.send(json!({"event": "dtmf", "dtmf": {"digit": "5"}})).await;
    let events = controller.until("input_audio_buffer.dtmf_event_received").await;
    assert_eq!(events.iter().filter(|event| event["type"] == "error").count(), 3, "{events:?}");
    for _ in 0..20 {
        caller.client.send_text("{").await;
    }
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn telephone_calls_take_headroom() {
    let load = Load { ticks: 0.6, processors: 0.0 };
    let server = Running::start_calibrated(Script::default(), Some(load), |_| {}).await;
    let _caller = Provider::call(&server, json!({})).await;
    server.sessions(1).await;
    let Err(Error::Http(response)) = Provider::dial(&server, &[]).await else { panic!("a second call is admitted") };
    assert_eq!(response.status(), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_id_are_registered_apart() {
    let server = Running::start(Script::default()).await;
    let first = Provider::call(&server, json!({"instructions": "First."})).await;
    let (_controller, created) = sideband(&server).await;
    assert_eq!(created["session"]["instructions"], "First.");
    let _second = Provider::call(&server, json!({"instructions": "Second."})).await;
    server.sessions(2).await;
    let mut again = server.attach(CALL).await.unwrap();
    assert_eq!(again.expect("session.created").await["session"]["instructions"], "First.");
    drop(first);
    server.sessions(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_streams_need_no_key() {
    let server = Running::start_with(Script::default(), |config| {
        config.api_keys = repartee::auth::KeySet::parse("sk-telephone-0123456789abcdef0123").unwrap();
        config.telephony.secret = Some(Secret::new("token of the account"));
    })
    .await;
    let sign = |url: &str| sign("token of the account", url);
    let refused = async |headers: &[(&'static str, &str)]| match Provider::dial(&server, headers).await {
        Err(Error::Http(response)) => response.status().as_u16(),
        other => panic!("{:?}", other.map(|_| "connected")),
    };
    assert_eq!(refused(&[]).await, 401);
    assert_eq!(
        refused(&[("x-twilio-signature", &sign("wss://elsewhere.example/v1/telephony/media-stream"))]).await,
        401
    );
    // A proxy on this machine is trusted, and TLS ends there.
    let signature = sign(&format!("wss://{}{PATH}", server.address));
    let mut signed = Provider::dial(&server, &[("x-twilio-signature", &signature)]).await.unwrap();
    signed.send(start(json!({}))).await;
    server.sessions(1).await;
    // The signature opens no other path, and the operator's key controls the call.
    let (status, _) = server.get("/v1/models").await;
    assert_eq!(status, 401);
    let key = ("authorization", "Bearer sk-telephone-0123456789abcdef0123");
    let mut controller = loop {
        if let Ok(client) = server.attach_with(CALL, &[key]).await {
            break client;
        }
        tokio::task::yield_now().await;
    };
    controller.expect("session.created").await;
    drop(signed);
    server.sessions(0).await;
    Provider::dial(&server, &[key]).await.unwrap();
}
