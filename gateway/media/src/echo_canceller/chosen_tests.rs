//! Scenes on which the constants were chosen: other voices, rooms, delays and levels than those that judge.

use super::tests::{echo, levelled};
use super::*;
use crate::echo_guard::EchoLevel;
use crate::vad::{TurnDetector, TurnEvent};

const ANSWERS: [&str; 2] = ["answer-harbour", "answer-bread"];
const CALLERS: [&str; 3] = ["caller-wait", "caller-else", "caller-sorry"];
/// Delay in ms, drift, true for a loudspeaker that distorts, and true for lost packets.
const PATHS: [(usize, f64, bool, bool); 7] = [
    (40, 0.0, false, false),
    (90, 4e-4, false, false),
    (150, 0.0, true, false),
    (240, -4e-4, false, true),
    (450, 2e-4, false, false),
    (560, 0.0, true, true),
    (660, -2e-4, true, false),
];
/// Gains of the echo: -26, -16, -6 and 2 dB.
const GAINS: [f32; 4] = [0.05, 0.16, 0.5, 1.25];
/// Begin of the caller, in ms.
const BEGIN: usize = 2_300;

/// Starts of turns in ms, for an answer and an optional caller with its gain.
fn turns(answer: &str, path: (usize, f64, bool, bool), gain: f32, caller: Option<(&[f32], f32)>) -> Vec<usize> {
    let (delay, drift, is_distorted, is_lossy) = path;
    let mut played = levelled(answer, 1.0);
    played.extend([0.0; RATE as usize]);
    let mut aired = played.clone();
    if is_distorted {
        aired.iter_mut().for_each(|sample| *sample = (5.0 * *sample).tanh() / 5.0);
    }
    if is_lossy {
        aired.chunks_mut(320).skip(11).step_by(47).for_each(|packet| packet.fill(0.0));
    }
    let mut input = echo(&aired, delay * 16, gain, drift);
    if let Some((caller, gain)) = caller {
        input[BEGIN * 16..].iter_mut().zip(caller).for_each(|(sample, voice)| *sample += gain * voice);
    }
    if is_lossy {
        input.chunks_mut(320).skip(5).step_by(53).for_each(|packet| packet.fill(0.0));
    }
    let (mut canceller, mut detector) = (EchoCanceller::new(), TurnDetector::default());
    detector.set_echo_level(Some(EchoLevel::NONE));
    let (mut begun, mut heard) = (Vec::new(), Vec::new());
    for (number, (played, input)) in played.chunks(320).zip(input.chunks(320)).enumerate() {
        canceller.push_playback(played, 320 * number as i64);
        heard.clear();
        canceller.process(input, &mut heard, &mut Vec::new());
        let events = detector.push(&heard);
        let starts = events.iter().filter(|event| matches!(event, TurnEvent::SpeechStarted { .. }));
        begun.extend(starts.map(|_| 20 * number));
    }
    begun
}

/// Echoes that open a turn of all, and callers as loud as the playback, 10 and 20 dB softer who are missed of all.
#[test]
#[ignore = "takes 20 s: the scenes on which the constants were chosen"]
fn chosen_echoes_and_callers_are_told_apart() {
    let (mut opened, mut echoes, mut missed, mut callers) = (0, 0, [0; 3], 0);
    for path in PATHS {
        for gain in GAINS {
            for answer in ANSWERS {
                echoes += 1;
                opened += usize::from(!turns(answer, path, gain, None).is_empty());
            }
            for (number, name) in CALLERS.into_iter().enumerate() {
                callers += 1;
                let caller = levelled(name, 1.0);
                for (missed, level) in missed.iter_mut().zip([1.0, 0.316, 0.1]) {
                    let begun = turns(ANSWERS[number % 2], path, gain, Some((&caller, level)));
                    let said = BEGIN..BEGIN + caller.len() / 16 + 200;
                    *missed += usize::from(!begun.first().is_some_and(|at| said.contains(at)));
                }
            }
        }
    }
    // What is reached so far; the aim is none.
    assert!(
        opened <= 3 && missed[0] <= 3 && missed[1] <= 4 && missed[2] <= 7,
        "{opened} of {echoes} open; {missed:?} of {callers} missed"
    );
}
