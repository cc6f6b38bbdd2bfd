//! Decisions of the turn detector, with their reasons.

use super::*;
use crate::endpointing::PauseModel;
use crate::testdata::{interruption, stop};

/// Voice from frame 10 on, for this many frames.
struct VoiceFor(usize, usize);

impl VoiceDetector for VoiceFor {
    fn frame_len(&self) -> usize {
        256
    }

    fn probability(&mut self, _: &[f32]) -> f32 {
        self.1 += 1;
        if (11..=10 + self.0).contains(&self.1) { 0.9 } else { 0.1 }
    }
}

type Made = (DecisionKind, DecisionReason);

const STARTED: Made = (DecisionKind::TurnStarted, DecisionReason::Voice);

fn detector(frames: usize) -> TurnDetector<VoiceFor> {
    let settings = TurnSettings { pause_ms: Some(200), ..TurnSettings::default() };
    TurnDetector::new(VoiceFor(frames, 0), settings)
}

fn made<D: VoiceDetector>(turns: &mut TurnDetector<D>) -> Vec<Made> {
    turns.take_decisions().map(|decision| (decision.kind, decision.reason)).collect()
}

#[test]
fn turns_end_by_silence_with_its_length() {
    let mut turns = detector(40);
    turns.push(&vec![0.0; 32_000]);
    let decisions: Vec<_> = turns.take_decisions().collect();
    let [started, paused, ended] = decisions[..] else { panic!("{decisions:?}") };
    assert_eq!((started.kind, started.voice), (DecisionKind::TurnStarted, Some(Duration::from_millis(64))));
    let silence = |decision: Decision| (decision.reason, decision.silence.unwrap().as_millis(), decision.audio_ms);
    assert_eq!(paused.kind, DecisionKind::TurnPaused);
    assert_eq!(silence(paused), (DecisionReason::Silence, 208, 50 * 16 + 208));
    assert_eq!(ended.kind, DecisionKind::TurnEnded);
    assert_eq!(silence(ended), (DecisionReason::Silence, 512, 50 * 16 + 512));
    assert_eq!(made(&mut turns), [], "each only once");
}

#[test]
fn turns_end_by_the_model_or_their_length() {
    let mut turns = detector(40).with_turn_model(PauseModel::SmartTurn);
    turns.configure(TurnSettings {
        eagerness: Some(Eagerness::Medium),
        pause_ms: Some(200),
        ..TurnSettings::default()
    });
    turns.push(&vec![0.0; 256 * 64]);
    let question = turns.next_query().unwrap();
    turns.on_prediction(question.id, Some(0.9));
    let ended = turns.take_decisions().last().unwrap();
    assert_eq!((ended.kind, ended.reason), (DecisionKind::TurnEnded, DecisionReason::Model));
    assert_eq!(ended.probability, Some(0.9));
    let mut turns = detector(1_000).with_longest_turn(Duration::from_secs(1));
    turns.push(&vec![0.0; 24_000]);
    assert_eq!(made(&mut turns)[..2], [STARTED, (DecisionKind::TurnEnded, DecisionReason::LongestTurn)]);
}

/// Decisions about `voice` after half a second, over an answer that can pause or not.
fn over_answer(voice: &[f32], policy: BargeInPolicy, pausable: bool, plays_ms: usize) -> Vec<Decision> {
    let mut turns = TurnDetector::default().with_barge_in(policy);
    let noise = |at: usize| if at.is_multiple_of(2) { 3e-4 } else { -3e-4 };
    let mut sound: Vec<f32> = (0..32_000 + voice.len()).map(noise).collect();
    for (to, from) in sound[8_000..].iter_mut().zip(voice) {
        *to += 0.3 * from;
    }
    let mut decisions = Vec::new();
    for (number, piece) in sound.chunks(320).enumerate() {
        let plays =
            number * 20 < plays_ms && !decisions.iter().any(|made: &Decision| made.kind == DecisionKind::Interrupted);
        turns.set_echo_level(plays.then_some(EchoLevel::NONE));
        turns.set_pausable(plays && pausable);
        turns.set_unpausable(plays && !pausable);
        turns.push(piece);
        decisions.extend(turns.take_decisions());
    }
    decisions
}

#[test]
fn backchannels_are_dismissed_with_their_probability() {
    let voice = interruption("yeah-adam", RATE);
    for pausable in [true, false] {
        let decisions = over_answer(&voice, BargeInPolicy::Balanced, pausable, 5_000);
        let dismissed = decisions.last().unwrap();
        assert_eq!((dismissed.kind, dismissed.reason), (DecisionKind::VoiceDismissed, DecisionReason::VoiceEnded));
        assert!(dismissed.probability.unwrap() < 0.35, "{dismissed:?}");
        assert_eq!(decisions[0].kind == DecisionKind::PlaybackPaused, pausable, "{decisions:?}");
    }
}

#[test]
fn interruptions_tell_what_decided() {
    let reason = |voice: &[f32], policy, pausable, plays_ms| {
        let decisions = over_answer(voice, policy, pausable, plays_ms);
        let made = decisions.iter().find(|made| made.voice.is_some() && made.kind != DecisionKind::PlaybackPaused);
        made.map(|made| (made.kind, made.reason)).unwrap_or_else(|| panic!("{decisions:?}"))
    };
    let (wait, command) = (interruption("caller-wait", RATE), stop());
    let interrupted = |reason| (DecisionKind::Interrupted, reason);
    let immediate = BargeInPolicy::Immediate;
    assert_eq!(reason(&wait, immediate, false, 5_000), interrupted(DecisionReason::Voice));
    assert_eq!(reason(&wait, immediate, true, 5_000), interrupted(DecisionReason::VoiceWentOn));
    assert_eq!(reason(&command, BargeInPolicy::Balanced, true, 5_000), interrupted(DecisionReason::NetworkAtEnd));
    let backchannel = interruption("yeah-adam", RATE);
    let after = (DecisionKind::TurnStarted, DecisionReason::PlaybackEnded);
    assert_eq!(reason(&backchannel, BargeInPolicy::Balanced, false, 740), after);
}
