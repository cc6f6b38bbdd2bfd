//! Sound of a caller in the model behind noise reduction, and the decisions that a client is told.

use futures_util::future::join_all;
use repartee_engine_api::Command;
use repartee_testkit::random::Random;
use repartee_testkit::scripted::Script;
use repartee_testkit::signal::level_db;
use serde_json::{Value, json};

use super::webrtc::Caller;
use repartee_gateway_testkit::{Running, kinds, question, silence};

/// Samples of a second at the caller's rate.
const SECOND: usize = 24_000;

/// Three seconds of steady noise of some -38 dBFS, and a question beside it.
fn noisy() -> Vec<f32> {
    let mut random = Random::new(7);
    let mut sound = vec![0.0; 3 * SECOND];
    sound.extend(question());
    sound.iter_mut().for_each(|sample| *sample += 0.045 * (random.unit() as f32 - 0.5));
    sound
}

/// Levels of noise alone and of the voice beside it in all that the engine got, in dBFS.
fn levels(server: &Running) -> [f32; 2] {
    let appended = server.engine.take_commands().into_iter();
    let heard: Vec<f32> = appended
        .flat_map(|command| if let Command::Append(samples) = command { samples } else { Vec::new() })
        .collect();
    let second = heard.len() * SECOND / noisy().len();
    [level_db(&heard[second..2 * second + second / 2]), level_db(&heard[4 * second..])]
}

/// Session that the client commits, with this noise reduction.
fn session(kind: Option<&str>) -> Value {
    let reduction = kind.map(|kind| json!({"type": kind}));
    json!({"audio": {"input": {"turn_detection": null, "noise_reduction": reduction}}})
}

/// Noise falls by about as much as the kind allows, and the voice stays.
fn check(plain: [f32; 2], near: [f32; 2], far: [f32; 2]) {
    let fall = |reduced: [f32; 2], part: usize| plain[part] - reduced[part];
    assert!((3.5..6.5).contains(&fall(near, 0)), "{plain:?} {near:?}");
    assert!((8.0..12.5).contains(&fall(far, 0)), "{plain:?} {far:?}");
    assert!(fall(near, 1).abs() < 1.5 && fall(far, 1).abs() < 2.0, "{plain:?} {near:?} {far:?}");
}

const KINDS: [Option<&str>; 3] = [None, Some("near_field"), Some("far_field")];

#[tokio::test]
async fn models_hear_reduced_noise_over_websockets() {
    let heard = KINDS.map(|kind| async move {
        let server = Running::start(Script::default()).await;
        let mut client = server.connect().await;
        client.update(session(kind)).await;
        client.speak(&noisy(), 480).await;
        client.send(json!({"type": "input_audio_buffer.commit"})).await;
        client.until("input_audio_buffer.committed").await;
        levels(&server)
    });
    let heard = join_all(heard).await;
    check(heard[0], heard[1], heard[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn models_hear_reduced_noise_over_webrtc() {
    let heard = KINDS.map(|kind| async move {
        let server = Running::start(Script::default()).await;
        let mut caller = Caller::dial(&server).await;
        caller.send(json!({"type": "session.update", "session": session(kind)})).await;
        caller.until("session.updated").await;
        caller.speak(&noisy()).await;
        caller.send(json!({"type": "input_audio_buffer.commit"})).await;
        caller.until("input_audio_buffer.committed").await;
        levels(&server)
    });
    let heard = join_all(heard).await;
    check(heard[0], heard[1], heard[2]);
}

/// Decisions among events, each with its reason.
fn decisions(events: &[Value]) -> Vec<(&str, &str)> {
    let made = events.iter().filter(|event| event["type"] == "repartee.decision");
    made.map(|event| (event["decision"].as_str().unwrap(), event["reason"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn decisions_are_told_where_asked_for() {
    let server = Running::start(Script::default()).await;
    for asks in [false, true] {
        let mut client = server.connect().await;
        let input = json!({"noise_reduction": {"type": "far_field"}});
        client.update(json!({"repartee": {"decisions": asks}, "audio": {"input": input}})).await;
        client.speak(&question(), 480).await;
        let events = client.until("response.done").await;
        if !asks {
            assert_eq!(decisions(&events), [], "{:?}", kinds(&events));
            continue;
        }
        // The voice makes the noise unsteady for a while, as the test of the steadiness shows.
        let mut made = decisions(&events);
        made.retain(|(_, reason)| !reason.ends_with("steady_noise"));
        let expected = [("noise_reduced", "far_field"), ("turn_started", "voice"), ("turn_paused", "silence")];
        assert_eq!(made[..3], expected, "{made:?}");
        assert_eq!(made.last(), Some(&("turn_ended", "silence")));
        let at = |wanted: &dyn Fn(&Value) -> bool| events.iter().position(wanted).unwrap();
        let ended = at(&|event| event["decision"] == "turn_ended");
        assert!(ended < at(&|event| event["type"] == "input_audio_buffer.speech_stopped"), "it precedes the event");
        assert!((500..520).contains(&events[ended]["silence_ms"].as_u64().unwrap()), "{}", events[ended]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn playback_and_voices_over_it_are_decided() {
    // Four seconds, which the caller interrupts once it is clear that no echo comes.
    let server = Running::start(Script { frames: 50, ..Script::default() }).await;
    let mut caller = Caller::dial(&server).await;
    caller.send(json!({"type": "session.update", "session": {"repartee": {"decisions": true}}})).await;
    caller.until("session.updated").await;
    caller.speak(&question()).await;
    caller.until("output_audio_buffer.started").await;
    caller.speak(&silence(2_000)).await;
    caller.speak(&question()).await;
    let events = caller.until("output_audio_buffer.cleared").await;
    let made = decisions(&events);
    // A pause in the question may end the first voice; then the second one interrupts.
    let at = |wanted: &str| made.iter().position(|(decision, _)| *decision == wanted).expect(wanted);
    assert!(at("echo_not_found") < at("playback_paused") && at("playback_paused") < at("interrupted"), "{made:?}");
    let interrupted = made[at("interrupted")].1;
    assert!(["voice_went_on", "voice_began_again"].contains(&interrupted), "{made:?}");
}
