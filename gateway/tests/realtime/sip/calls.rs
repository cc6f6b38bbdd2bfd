//! Calls: a question, an interruption, keys, hold, both ends.

use std::time::Duration;

use repartee_gateway_testkit::{Client, PATIENCE, Running, find, kinds, question};
use repartee_testkit::scripted::Script;
use serde_json::Value;
use tokio::time::{interval, timeout};

use super::telephone::{Law, Telephone, serve, serve_with};

/// Returns the id of the only running call.
pub async fn call_id(server: &Running) -> String {
    timeout(PATIENCE, running_call(server)).await.expect("a call in time")
}

async fn running_call(server: &Running) -> String {
    let mut clock = interval(Duration::from_millis(10));
    loop {
        clock.tick().await;
        let (_, response) = server.get("/v1/realtime/calls").await;
        let list: Value = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
        let call = list["data"].as_array().unwrap().iter().find(|call| call["ended"].is_null());
        if let Some(call) = call {
            assert_eq!(call["transport"], "sip");
            return call["id"].as_str().unwrap().to_owned();
        }
    }
}

/// Attaches a sideband to the only running call.
pub async fn sideband(server: &Running) -> Client {
    let mut client = server.attach(&call_id(server).await).await.unwrap();
    client.expect("session.created").await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn sip_questions_are_answered() {
    for law in [Law::Mu, Law::A] {
        let server = serve(Script { frames: 10, ..Script::default() }).await;
        let mut phone = Telephone::call(&server, "question", law).await;
        let mut controller = sideband(&server).await;
        phone.speak(&question()).await;
        phone.hear(700).await;
        let events = controller.until("output_audio_buffer.stopped").await;
        let seen = kinds(&events);
        for kind in ["input_audio_buffer.speech_started", "output_audio_buffer.started", "response.done"] {
            assert!(seen.contains(&kind), "{kind} in {seen:?}");
        }
        assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
        // The packets are one stream, whose time goes on through silence and speech.
        for pair in phone.packets.windows(2) {
            let [(sequence, timestamp, _), (next, then, _)] = pair else { unreachable!() };
            assert_eq!(*next, sequence.wrapping_add(1));
            assert_eq!(then.wrapping_sub(*timestamp) % 160, 0);
        }
        phone.request("BYE").await;
        assert!(phone.final_response().await.starts_with("SIP/2.0 200 "));
        server.sessions(0).await;
        let (_, metrics) = server.get("/metrics").await;
        assert!(metrics.contains("repartee_call_seconds_count{end=\"hangup\",transport=\"sip\"} 1\n"), "{metrics}");
        assert!(metrics.contains("repartee_ttfp_seconds_count 1"), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn greeting_is_spoken_before_the_caller() {
    let script = Script { frames: 10, ..Script::default() };
    let server = serve_with(script, |config| config.telephony.greeting = Some("Greet the caller.".to_owned())).await;
    let mut phone = Telephone::call(&server, "greeting", Law::Mu).await;
    // The caller says nothing.
    phone.hear(400).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn speech_interrupts_a_sip_answer() {
    // Four seconds, generated at once.
    let server = serve(Script { frames: 50, ..Script::default() }).await;
    let mut phone = Telephone::call(&server, "interruption", Law::Mu).await;
    let mut controller = sideband(&server).await;
    phone.speak(&question()).await;
    phone.hear(500).await;
    phone.speak(&question()).await;
    let events = controller.until("conversation.item.truncated").await;
    let heard_ms = find(&events, "conversation.item.truncated")["audio_end_ms"].as_u64().unwrap();
    assert!((300..3_000).contains(&heard_ms), "{heard_ms}");
    controller.until("output_audio_buffer.started").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sip_keys_are_events() {
    let server = serve(Script::default()).await;
    let mut phone = Telephone::call(&server, "keys", Law::Mu).await;
    let mut controller = sideband(&server).await;
    phone.press(11).await;
    let events = controller.until("input_audio_buffer.dtmf_event_received").await;
    assert_eq!(events.last().unwrap()["event"], "#");
    phone.press(5).await;
    let events = controller.until("input_audio_buffer.dtmf_event_received").await;
    assert_eq!(events.last().unwrap()["event"], "5", "once for each press");
}

#[tokio::test(flavor = "multi_thread")]
async fn held_sip_call_is_silent_until_resumed() {
    let server = serve(Script { frames: 25, ..Script::default() }).await;
    let mut phone = Telephone::call(&server, "hold", Law::Mu).await;
    let mut controller = sideband(&server).await;
    phone.speak(&question()).await;
    phone.hear(300).await;
    phone.invite("a=sendonly\r\n").await;
    let held = phone.final_response().await;
    assert!(held.contains("a=recvonly\r\n"), "{held}");
    phone.acknowledge(&held).await;
    // Packets that were on their way.
    while phone.has_sound_within(Duration::from_millis(100)).await {}
    assert!(!phone.has_sound_within(Duration::from_millis(300)).await, "a held call is silent");
    phone.take_waiting();
    let before = phone.audible_ms();
    phone.invite("").await;
    let resumed = phone.final_response().await;
    assert!(resumed.contains("a=sendrecv\r\n"), "{resumed}");
    phone.acknowledge(&resumed).await;
    // The rest of the answer waited.
    phone.hear(before + 500).await;
    controller.until("output_audio_buffer.stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hang_up_by_request_ends_a_sip_call() {
    let server = serve(Script::default()).await;
    let mut phone = Telephone::call(&server, "hangup", Law::Mu).await;
    let id = call_id(&server).await;
    let request = format!(
        "POST /v1/realtime/calls/{id}/hangup HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        server.address
    );
    assert_eq!(server.request(&request).await.0, 200);
    phone.ended().await;
    server.sessions(0).await;
}
