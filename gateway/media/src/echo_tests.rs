//! Interruptions during an echo of our playback: echo guard and turn detector together, over a matrix of echoes and voices, on a
//! simulated clock. The echo guard's margins were chosen on these recordings; `make bench-interruptions` evaluates on others.

use std::time::{Duration, Instant};

use super::echo_guard::{EchoGuard, EchoLevel};
use super::testdata::speech;
use super::vad::{RATE, TurnDetector, TurnEvent};

/// Gains of the echo: from headphones to an automatic gain that makes it as loud as the playback.
const GAINS: [f32; 6] = [0.0, 0.03, 0.1, 0.3, 0.5, 1.0];
/// Delays of the echo, in ms.
const DELAYS: [usize; 3] = [40, 120, 320];
/// Levels of the caller, as a factor of the recording: up to 26 dB below the playback.
const VOICES: [f32; 4] = [1.0, 0.3, 0.1, 0.05];
/// Start of the caller's speech, in ms of playback.
const SPEAKS_AT: usize = 2_500;

/// Our playback: a sentence, three times.
fn playback() -> Vec<f32> {
    speech("sentence").repeat(3)
}

/// The echo of `playback` in a small room: the direct sound and two reflections.
fn echo(playback: &[f32], gain: f32, delay_ms: usize) -> Vec<f32> {
    let delay = delay_ms * 16;
    let at = |index: usize, delay: usize| index.checked_sub(delay).and_then(|from| playback.get(from)).unwrap_or(&0.0);
    (0..playback.len() + 8_000)
        .map(|index| {
            let sound = 0.8 * at(index, delay) + 0.4 * at(index, delay + 350) + 0.3 * at(index, delay + 980);
            gain * sound
        })
        .collect()
}

/// Starts of turns in `input`, in ms of playback. `guarded`: true to use the echo guard.
fn interruptions(playback: &[f32], input: &[f32], guarded: bool) -> Vec<u64> {
    let (mut turns, mut guard) = (TurnDetector::default(), EchoGuard::new(RATE));
    let start = Instant::now();
    guard.push_playback(playback, start);
    let mut begun = Vec::new();
    for (number, frame) in input.chunks_exact(320).enumerate() {
        let now = start + Duration::from_millis(20) * (number as u32 + 1);
        guard.push_input(frame, RATE, now);
        turns.set_echo_level(if guarded { guard.echo_level(now) } else { Some(EchoLevel::NONE) });
        let events = turns.push(frame);
        begun.extend(
            events.iter().filter(|event| matches!(event, TurnEvent::SpeechStarted { .. })).map(|_| number as u64 * 20),
        );
    }
    begun
}

/// Result for one echo: true if the echo alone interrupts (false interruption), and the voices that do not interrupt (missed).
fn outcome(gain: f32, delay: usize) -> (bool, Vec<f32>) {
    let (playback, caller) = (playback(), speech("question"));
    let echo = echo(&playback, gain, delay);
    let alone = !interruptions(&playback, &echo, true).is_empty();
    let missed = VOICES.into_iter().filter(|voice| {
        let mut input = echo.clone();
        for (sample, spoken) in input[SPEAKS_AT * 16..].iter_mut().zip(&caller) {
            *sample += voice * spoken;
        }
        let begun = interruptions(&playback, &input, true);
        let end = (SPEAKS_AT + caller.len() / 16 + 200) as u64;
        !begun.iter().any(|at| (SPEAKS_AT as u64..end).contains(at))
    });
    (alone, missed.collect())
}

#[test]
fn echo_alone_interrupts_without_the_guard() {
    let playback = playback();
    assert!(!interruptions(&playback, &echo(&playback, 0.3, 120), false).is_empty());
}

#[test]
fn echo_of_any_gain_does_not_interrupt() {
    for gain in GAINS {
        for delay in DELAYS {
            assert!(!outcome(gain, delay).0, "an echo of {gain} after {delay} ms");
        }
    }
}

#[test]
fn callers_interrupt_over_an_echo() {
    for delay in DELAYS {
        for (gain, most) in [(0.0, 1), (0.03, 1), (0.1, 2)] {
            let missed = outcome(gain, delay).1;
            assert!(missed.len() <= most, "an echo of {gain} after {delay} ms hides voices of {missed:?}");
        }
        let loud = outcome(0.3, delay).1;
        assert!(!loud.contains(&1.0), "an echo of 0.3 after {delay} ms hides voices of {loud:?}");
    }
}

/// Prints the matrix of results.
#[test]
#[ignore = "prints a table"]
fn table_of_echoes_and_voices() {
    println!("| echo | delay | false interruptions | missed voices, as a factor of the recording |");
    println!("|---|---|---|---|");
    for gain in GAINS {
        for delay in DELAYS {
            let (alone, missed) = outcome(gain, delay);
            println!("| {gain} | {delay} ms | {} | {missed:?} |", u8::from(alone));
        }
    }
}
