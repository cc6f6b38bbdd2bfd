//! Voices over an answer, judged by the network: playback that cannot pause, and commands.

use super::*;
use crate::testdata::{interruption, stop};

/// Turn events of `voice` after half a second, over an answer of `plays_ms` that can pause or not.
fn over_answer(voice: &[f32], policy: BargeInPolicy, pausable: bool, plays_ms: usize) -> Vec<TurnEvent> {
    let mut turns = TurnDetector::default().with_barge_in(policy);
    let noise = |at: usize| if at.is_multiple_of(2) { 3e-4 } else { -3e-4 };
    let mut sound: Vec<f32> = (0..32_000 + voice.len()).map(noise).collect();
    for (to, from) in sound[8_000..].iter_mut().zip(voice) {
        *to += 0.3 * from;
    }
    let mut events = Vec::new();
    for (number, piece) in sound.chunks(320).enumerate() {
        let plays = number * 20 < plays_ms;
        turns.set_echo_level(plays.then_some(EchoLevel::NONE));
        turns.set_pausable(plays && pausable);
        turns.set_unpausable(plays && !pausable);
        events.extend(turns.push(piece));
    }
    events
}

fn is_started(events: &[TurnEvent]) -> bool {
    events.iter().any(|event| matches!(event, TurnEvent::SpeechStarted { .. }))
}

#[test]
fn backchannels_start_no_turn_over_an_answer() {
    // The network is sure of these; `make bench-interruptions` counts those that it mistakes.
    for name in ["yeah-adam", "sure-lewis", "yeah-sarah"] {
        let voice = interruption(name, RATE);
        assert_eq!(over_answer(&voice, BargeInPolicy::Balanced, false, 5_000), [], "{name}");
        assert!(is_started(&over_answer(&voice, BargeInPolicy::Immediate, false, 5_000)), "{name}");
    }
}

#[test]
fn interruptions_keep_their_beginning() {
    for name in ["caller-wait", "caller-else", "caller-sorry"] {
        let events = over_answer(&interruption(name, RATE), BargeInPolicy::Balanced, false, 5_000);
        let Some(TurnEvent::SpeechStarted { audio_start_ms }) = events.first() else { panic!("{name}: {events:?}") };
        assert!((100..600).contains(audio_start_ms), "{name}: {events:?}");
    }
}

#[test]
fn a_command_starts_a_turn() {
    let stop = stop();
    for pausable in [false, true] {
        assert!(is_started(&over_answer(&stop, BargeInPolicy::Balanced, pausable, 5_000)), "pausable: {pausable}");
    }
    assert!(!is_started(&over_answer(&stop, BargeInPolicy::Immediate, true, 5_000)), "by its length a backchannel");
}

#[test]
fn undecided_voice_starts_a_turn_after_playback() {
    let voice = interruption("yeah-adam", RATE);
    // The answer ends inside the voice, and in the silence behind it that is too short for a decision.
    for plays_ms in [740, 940] {
        let events = over_answer(&voice, BargeInPolicy::Balanced, false, plays_ms);
        let Some(TurnEvent::SpeechStarted { audio_start_ms }) = events.first() else {
            panic!("{plays_ms}: {events:?}")
        };
        assert!((100..300).contains(audio_start_ms), "{plays_ms}: {events:?}");
    }
}

#[test]
fn unsure_voice_resumes_paused_playback_once() {
    let yeah = interruption("yeah-adam", RATE);
    // Twice and without a pause it goes on for longer than a backchannel, and still is none of which the network is sure.
    let voice = [&yeah[..], &yeah[..]].concat();
    let events = over_answer(&voice, BargeInPolicy::Patient, true, 5_000);
    let [TurnEvent::PossibleBargeIn { audio_ms: paused }, TurnEvent::BargeInDismissed { audio_ms: resumed }] =
        events[..]
    else {
        panic!("{events:?}")
    };
    assert!((100..600).contains(&(resumed - paused)), "{events:?}");
}
