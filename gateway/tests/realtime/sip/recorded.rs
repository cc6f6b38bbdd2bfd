//! Recorded calls: a tone, then a file of each side.

use std::path::Path;
use std::time::Duration;

use repartee_gateway_testkit::{Running, question};
use repartee_media::sound_file;
use repartee_testkit::scripted::Script;
use repartee_testkit::signal::dominant_frequency;
use tokio::time::interval;

use super::calls::{call_id, sideband};
use super::telephone::{Law, Telephone, serve_with};

/// Waits until a recording has ended with this result.
pub async fn recorded(server: &Running, result: &str) {
    let mut clock = interval(Duration::from_millis(20));
    while !server.get("/metrics").await.1.contains(&format!("repartee_recordings_total{{result=\"{result}\"}} 1\n")) {
        clock.tick().await;
    }
}

/// Asserts that sound begins with the tone of recordings.
pub fn assert_tone(received: &[f32]) {
    let pitch = dominant_frequency(&received[..3_600], 8_000);
    assert!((pitch - 1_400.0).abs() < 20.0, "{pitch}");
}

/// Asserts that a call's recording has sound of both sides.
pub fn assert_both_sides(folder: &Path, id: &str) {
    for side in ["caller", "answers"] {
        let file = std::fs::read(folder.join(format!("{id}.{side}.wav"))).unwrap();
        let sound = sound_file::read(&file[..], 8_000, Duration::from_secs(60)).unwrap();
        let loud = sound.iter().filter(|sample| sample.abs() > 0.01).count();
        assert!(loud > 2_000, "{side}: {loud} of {}", sound.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_sip_call_has_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls");
    let server = serve_with(Script { frames: 10, ..Script::default() }, |config| {
        config.recording.folder = Some(path.clone());
    })
    .await;
    let mut phone = Telephone::call(&server, "recorded", Law::Mu).await;
    // The tone comes first.
    phone.hear(480).await;
    assert_tone(&phone.received);
    let id = call_id(&server).await;
    let mut controller = sideband(&server).await;
    phone.speak(&question()).await;
    controller.until("output_audio_buffer.stopped").await;
    phone.request("BYE").await;
    recorded(&server, "kept").await;
    assert_both_sides(&path, &id);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_folder_ends_the_recording_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve_with(Script { frames: 10, ..Script::default() }, |config| {
        config.recording.folder = Some(folder.path().to_owned());
        config.recording.mib = 0;
    })
    .await;
    let mut phone = Telephone::call(&server, "full", Law::Mu).await;
    let mut controller = sideband(&server).await;
    phone.speak(&question()).await;
    recorded(&server, "full").await;
    controller.until("output_audio_buffer.stopped").await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
