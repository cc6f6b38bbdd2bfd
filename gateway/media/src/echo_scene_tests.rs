//! Echoes with and without the canceller, on a playback that cannot pause.

use std::time::{Duration, Instant};

use super::echo_canceller::EchoCanceller;
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

/// Starts of turns in the scene with the canceller, in ms.
fn cancelled_turns(scene: &EchoScene) -> Vec<u64> {
    let (mut turns, mut canceller) = (TurnDetector::default(), EchoCanceller::new());
    let (played, mut heard) = (playback(), Vec::new());
    let input = scene.input(&played);
    turns.set_echo_level(Some(EchoLevel::NONE));
    let mut begun = Vec::new();
    for (number, (played, input)) in (0..).zip(played.chunks_exact(PACKET).zip(input.chunks_exact(PACKET))) {
        canceller.push_playback(played, (PACKET * number) as i64);
        heard.clear();
        canceller.process(input, &mut heard, &mut Vec::new());
        let events = turns.push(&heard);
        let starts = events.iter().filter(|event| matches!(event, TurnEvent::SpeechStarted { .. }));
        begun.extend(starts.map(|_| 20 * number as u64));
    }
    begun
}

/// True if the first of the turns begins with the caller.
fn is_heard(turns: &[u64]) -> bool {
    let said = CALLER_MS as u64..(CALLER_MS + caller().len() / 16) as u64 + LATE_MS;
    turns.first().is_some_and(|begun| said.contains(begun))
}

#[test]
fn echo_interrupts_without_a_canceller() {
    let opened = EchoScene::alone().filter(|scene| !turns(scene).is_empty()).count();
    assert!(opened >= 5, "the scenes tell nothing: {opened} of 24 open a turn");
    let missed = EchoScene::double_talk().filter(|scene| !is_heard(&turns(scene))).count();
    assert!(missed >= 5, "the scenes tell nothing: {missed} of 24 callers are missed");
}

#[test]
fn cancelled_echoes_open_few_turns() {
    let opened: Vec<_> = EchoScene::alone()
        .map(|scene| (scene, cancelled_turns(&scene)))
        .filter(|(_, turns)| !turns.is_empty())
        .collect();
    // What is reached so far; the aim is none.
    assert!(opened.len() <= 3, "{} of 24 open a turn: {opened:#?}", opened.len());
}

#[test]
fn callers_beside_an_echo_are_heard() {
    let missed: Vec<_> = EchoScene::double_talk()
        .map(|scene| (scene, cancelled_turns(&scene)))
        .filter(|(_, turns)| !is_heard(turns))
        .collect();
    assert!(missed.len() <= 4, "{} of 24 callers are missed: {missed:#?}", missed.len());
}
