//! Turns by the acoustics of the sound, beside the probabilities of a network.

use super::*;
use crate::acoustics::Acoustics;

/// Voice by the network from frame 10 on: two syllables up to frame 40, then sound of one level.
struct Steady(usize);

impl VoiceDetector for Steady {
    fn frame_len(&self) -> usize {
        256
    }

    fn probability(&mut self, _: &[f32]) -> f32 {
        self.0 += 1;
        if self.0 > 10 { 0.9 } else { 0.1 }
    }

    fn acoustics(&self) -> Option<Acoustics> {
        let frame = self.0 - 1;
        let is_pitched = (10..22).contains(&frame) || (28..40).contains(&frame);
        let level_db = if is_pitched { -20.0 } else { -50.0 };
        let above_floor_db = if is_pitched { 30.0 } else { 0.0 };
        Some(Acoustics {
            level_db,
            above_floor_db,
            above_near_floor_db: above_floor_db,
            is_pitched,
            ..Acoustics::SILENCE
        })
    }
}

fn steady() -> TurnDetector<Steady> {
    TurnDetector::new(Steady(0), TurnSettings::default())
}

/// Boundaries in `ms` of sound, by frames of 16 ms.
fn boundaries(turns: &mut TurnDetector<Steady>, ms: usize) -> Vec<(bool, u64)> {
    let events = turns.push(&vec![0.0; ms * 16]).into_iter();
    let boundary = |event| match event {
        TurnEvent::SpeechStarted { audio_start_ms } => (true, audio_start_ms / 16),
        TurnEvent::SpeechStopped { audio_end_ms } => (false, audio_end_ms / 16),
        _ => panic!("{event:?}"),
    };
    events.map(boundary).collect()
}

#[test]
fn turn_ends_without_evidence_of_a_voice() {
    // 82 frames are 1300 ms, and 113 are 1800 ms.
    assert_eq!(boundaries(&mut steady(), 5_000), [(true, 0), (false, 40 + 82)], "and none begins after it");
    let mut turns = steady();
    turns.configure(TurnSettings { silence_duration_ms: 1_000, ..TurnSettings::default() });
    assert_eq!(boundaries(&mut turns, 5_000), [(true, 0), (false, 40 + 113)]);
    let ended = turns.take_decisions().last().map(|decision| (decision.kind, decision.reason));
    assert_eq!(ended, Some((DecisionKind::TurnEnded, DecisionReason::NoVoice)));
}

#[test]
fn voices_beside_an_echo_need_no_evidence() {
    let mut turns = steady();
    turns.set_echo_level(Some(EchoLevel::NONE));
    assert_eq!(boundaries(&mut turns, 4_800), [(true, 0)], "an echo hides what proves a voice");
    turns.set_echo_level(None);
    assert_eq!(boundaries(&mut turns, 4_800), [(false, 300 + 82)]);
}

#[test]
fn playback_switches_off_the_fill() {
    let after = |plays| {
        let mut detector = Earshot::default();
        detector.set_playing(plays);
        (0..20).map(|_| detector.probability(&[0.0; 256])).collect::<Vec<_>>()
    };
    let mut network = earshot::Detector::default_boxed();
    let unfilled: Vec<_> = (0..20).map(|_| network.predict_f32(&[0.0; 256])).collect();
    assert_eq!(after(true), unfilled);
    assert_ne!(after(false), unfilled);
}
