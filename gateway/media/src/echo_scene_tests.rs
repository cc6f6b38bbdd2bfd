//! Echoes without a canceller, on a playback that cannot pause.

use std::time::{Duration, Instant};

use super::echo_guard::{EchoGuard, EchoLevel};
use super::echo_scenes::{CALLER_MS, EchoScene, PACKET, caller, playback};
use super::vad::{RATE, TurnDetector, TurnEvent};

const MS: Duration = Duration::from_millis(1);
/// Longest time from the caller's last word to the event, in ms.
const LATE_MS: u64 = 200;

/// Starts of turns in the scene, in ms.
fn turns(scene: &EchoScene) -> Vec<u64> {
    let (mut turns, mut guard) = (TurnDetector::default(), EchoGuard::new(RATE));
    let (played, start) = (playback(), Instant::now());
    let input = scene.input(&played);
    guard.push_playback(&played, start);
    let mut begun = Vec::new();
    for (number, input) in (0..).zip(input.chunks_exact(PACKET)) {
        let now = start + (20 * number + 27) * MS;
        guard.push_input(input, RATE, now);
        turns.set_echo_level(guard.echo_level(now).or(Some(EchoLevel::NONE)));
        let events = turns.push(input);
        let starts = events.iter().filter(|event| matches!(event, TurnEvent::SpeechStarted { .. }));
        begun.extend(starts.map(|_| 20 * u64::from(number)));
    }
    begun
}

/// True if the first turn begins with the caller of the scene.
fn is_heard(scene: &EchoScene) -> bool {
    let said = CALLER_MS as u64..(CALLER_MS + caller().len() / 16) as u64 + LATE_MS;
    turns(scene).first().is_some_and(|begun| said.contains(begun))
}

#[test]
fn echo_interrupts_without_a_canceller() {
    let opened = EchoScene::alone().filter(|scene| !turns(scene).is_empty()).count();
    assert!(opened >= 5, "the scenes tell nothing: {opened} of 24 open a turn");
    let missed = EchoScene::double_talk().filter(|scene| !is_heard(scene)).count();
    assert!(missed >= 5, "the scenes tell nothing: {missed} of 24 callers are missed");
}
