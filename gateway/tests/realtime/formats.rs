//! Audio over the websocket in every format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::SinkExt as _;
use repartee_media::opus::{OpusDecoder, OpusEncoder};
use repartee_media::pcm;
use repartee_media::resample::Resampler;
use repartee_testkit::scripted::{FRAME_SAMPLES, Script, VoiceTrace};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use repartee_gateway_testkit::{Client, Running, find, question};

/// Look-ahead of the Opus encoder: the end of a response that it withholds.
const LOOK_AHEAD_MS: f64 = 6.5;

/// Asserts that `sound` at 24 kHz holds an answer's five frames of the scripted voice in order, up to `end_ms`.
fn assert_whole(sound: &[f32], end_ms: f64, format: &Value) {
    let trace = VoiceTrace::of(sound).unwrap();
    assert!(trace.first_ms.abs() < 10.0 && (trace.last_ms - end_ms).abs() < 10.0, "{format}: {trace:?}");
    assert_eq!((trace.missing_ms, trace.added_ms), (0.0, 0.0), "{format}");
}

fn resampled(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
    let mut filter = Resampler::new(from, to).unwrap();
    let mut converted = filter.push(samples).unwrap();
    converted.extend(filter.flush().unwrap());
    converted
}

/// Bytes of all deltas.
fn bytes(events: &[Value]) -> Vec<u8> {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_audio.delta");
    deltas.flat_map(|event| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap()).collect()
}

fn heard_ms(events: &[Value]) -> u64 {
    let transcript = find(events, "response.output_audio_transcript.done")["transcript"].as_str().unwrap();
    transcript.trim_start_matches("I heard ").trim_end_matches(" ms.").parse().unwrap()
}

/// Reads all events up to the end of the answer, and the binary messages in between.
async fn listen(client: &mut Client) -> (Vec<Value>, Vec<Vec<u8>>) {
    let (mut events, mut packets) = (Vec::new(), Vec::new());
    loop {
        match client.message().await.unwrap() {
            Message::Binary(packet) => packets.push(packet.to_vec()),
            message => {
                let event: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
                let last = event["type"] == "response.done";
                events.push(event);
                if last {
                    return (events, packets);
                }
            }
        }
    }
}

#[tokio::test]
async fn every_format_carries_the_same_turn_both_ways() {
    let server = Running::start(Script::default()).await;
    let mut turns = Vec::new();
    for (format, rate) in [
        (json!({"type": "audio/pcm", "rate": 24_000}), 24_000),
        (json!({"type": "audio/pcm", "rate": 16_000}), 16_000),
        (json!({"type": "audio/pcm", "rate": 44_100}), 44_100),
        (json!({"type": "audio/pcmu"}), 8_000),
        (json!({"type": "audio/pcma"}), 8_000),
    ] {
        let mut client = server.connect().await;
        let session =
            client.update(json!({"audio": {"input": {"format": format}, "output": {"format": format}}})).await;
        assert_eq!(session["audio"]["input"]["format"], format);
        assert_eq!(session["audio"]["output"]["format"], format);
        let write = |samples: &[f32]| match format["type"].as_str().unwrap() {
            "audio/pcmu" => pcm::encode_mulaw(samples),
            "audio/pcma" => pcm::encode_alaw(samples),
            _ => pcm::encode_i16le(samples),
        };
        let read = |bytes: &[u8]| match format["type"].as_str().unwrap() {
            "audio/pcmu" => pcm::decode_mulaw(bytes),
            "audio/pcma" => pcm::decode_alaw(bytes),
            _ => pcm::decode_i16le(bytes).unwrap(),
        };
        for piece in resampled(&question(), 24_000, rate).chunks(rate as usize / 50) {
            let audio = STANDARD.encode(write(piece));
            client.send(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
        }
        let events = client.until("response.done").await;
        turns.push(heard_ms(&events));
        let sound = resampled(&read(&bytes(&events)), rate, 24_000);
        assert!(sound.len().abs_diff(5 * FRAME_SAMPLES) < 10, "{format}: {} samples", sound.len());
        assert_whole(&sound, 400.0, &format);
        assert_eq!(find(&events, "response.done")["response"]["audio"]["output"]["format"], format);
    }
    assert!(turns.iter().all(|turn| turn.abs_diff(turns[0]) <= 100), "{turns:?}");
}

#[tokio::test]
async fn opus_goes_both_ways_in_binary_messages() {
    let server = Running::start(Script::default()).await;
    let mut reference = server.connect().await;
    reference.speak(&question(), 480).await;
    let reference_ms = heard_ms(&reference.until("response.done").await);
    let mut client = server.connect().await;
    let format = json!({"type": "audio/opus"});
    let session = client.update(json!({"audio": {"input": {"format": format}, "output": {"format": format}}})).await;
    assert_eq!(session["audio"]["input"]["format"], format);
    let mut encoder = OpusEncoder::new(24_000).unwrap();
    for frame in question().chunks_exact(480) {
        let packet = encoder.encode(frame).unwrap().payload;
        client.socket.send(Message::Binary(packet)).await.unwrap();
    }
    let (events, packets) = listen(&mut client).await;
    assert!(heard_ms(&events).abs_diff(reference_ms) <= 100, "{} and {reference_ms} as PCM", heard_ms(&events));
    assert!(events.iter().all(|event| event["type"] != "response.output_audio.delta"));
    assert_eq!(packets.len(), 5 * FRAME_SAMPLES / 480);
    let mut decoder = OpusDecoder::new(24_000).unwrap();
    let sound: Vec<f32> = packets.iter().flat_map(|packet| decoder.decode(packet).unwrap()).collect();
    assert_whole(&sound, 400.0 - LOOK_AHEAD_MS, &format);
    // A malformed packet is an error, and the connection stays open.
    client.socket.send(Message::binary(vec![0xff; 4])).await.unwrap();
    client.error("invalid_audio").await;
    client.update(json!({})).await;
}

#[tokio::test]
async fn a_voice_of_any_rate_sounds_the_same() {
    // No Opus encoder has this rate, and no frame of 20 ms at 24 kHz has a whole number of its samples.
    let server = Running::start(Script { output_rate: 44_100, ..Script::default() }).await;
    for rate in [24_000, 44_100] {
        let mut client = server.connect().await;
        let format = json!({"type": "audio/pcm", "rate": rate});
        client.update(json!({"audio": {"output": {"format": format}}})).await;
        client.send(json!({"type": "response.create"})).await;
        let samples = pcm::decode_i16le(&bytes(&client.until("response.done").await)).unwrap();
        assert_eq!(samples.len(), rate as usize * 400 / 1_000, "converted once, to the last sample");
        assert_whole(&resampled(&samples, rate, 24_000), 400.0, &format);
    }
    let mut client = server.connect().await;
    let format = json!({"type": "audio/opus"});
    client.update(json!({"audio": {"output": {"format": format}}})).await;
    client.send(json!({"type": "response.create"})).await;
    let (_, packets) = listen(&mut client).await;
    let mut decoder = OpusDecoder::new(24_000).unwrap();
    let sound: Vec<f32> = packets.iter().flat_map(|packet| decoder.decode(packet).unwrap()).collect();
    assert_whole(&sound, 400.0 - LOOK_AHEAD_MS, &format);
}

#[tokio::test]
async fn a_response_may_set_its_own_format() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    let output = json!({"format": {"type": "audio/pcmu"}});
    client.send(json!({"type": "response.create", "response": {"audio": {"output": output}}})).await;
    let events = client.until("response.done").await;
    assert_eq!(bytes(&events).len(), 5 * FRAME_SAMPLES / 3);
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("response.done").await;
    assert_eq!(bytes(&events).len(), 5 * FRAME_SAMPLES * 2);
}
