//! Echoes of every delay, drift, callers, losses and broken samples.

use super::*;
use crate::level::rms;
use crate::testdata;

/// An answer and 1 s of silence, at a level of 0.1.
fn playback() -> Vec<f32> {
    levelled("answer-harbour", 1.0)
}

pub(crate) fn levelled(name: &str, gain: f32) -> Vec<f32> {
    let mut samples = testdata::interruption(name, RATE);
    let level = rms(&samples);
    samples.iter_mut().for_each(|sample| *sample *= 0.1 * gain / level);
    samples
}

/// Echo of `played` after `delay` samples, with a client whose clock leads by `drift`, and a little noise.
pub(crate) fn echo(played: &[f32], delay: usize, gain: f32, drift: f64) -> Vec<f32> {
    let mut samples = PlayedSamples::default();
    samples.push(played, 0);
    let mut noise = repartee_testkit::random::Random::new(5);
    (0..played.len())
        .map(|at| {
            let at = at as f64 * (1.0 + drift) - delay as f64;
            let path = [(0.0, 0.8), (350.0, 0.4), (980.0, 0.3)];
            let heard: f32 = path.iter().map(|(delay, gain)| gain * samples.at(at - delay)).sum();
            gain * heard + 1e-3 * (noise.unit() as f32 - 0.5)
        })
        .collect()
}

/// Output for `input` beside `played`, without the delay of the output.
fn cancelled(played: &[f32], input: &[f32]) -> Vec<f32> {
    let (mut canceller, mut out) = (EchoCanceller::new(), Vec::new());
    for (number, (played, input)) in played.chunks(320).zip(input.chunks(320)).enumerate() {
        canceller.push_playback(played, 320 * number as i64);
        canceller.process(input, &mut out, &mut Vec::new());
    }
    out.drain(..BLOCK);
    out
}

/// Decibels by which `out` is softer than `input` in the seconds `from` to `to`.
fn removed(input: &[f32], out: &[f32], from: f32, to: f32) -> f32 {
    let range = (from * RATE as f32) as usize..(to * RATE as f32) as usize;
    20.0 * (rms(&input[range.clone()]) / rms(&out[range]).max(1e-6)).log10()
}

#[test]
fn echo_of_every_delay_is_removed() {
    let played = playback();
    for delay in [0, 20, 60, 110, 200, 320, 450, 600, 700] {
        let input = echo(&played, delay * 16, 0.5, 0.0);
        let (mut canceller, mut out) = (EchoCanceller::new(), Vec::new());
        canceller.push_playback(&played, 0);
        canceller.process(&input, &mut out, &mut Vec::new());
        let found = canceller.delay().unwrap_or(usize::MAX) / 16;
        assert!(found.abs_diff(delay.max(10)) <= 30, "{found} instead of {delay} ms");
        let removed = removed(&input, &out[BLOCK..], 2.0, 4.0);
        assert!(removed > 25.0, "{removed} dB after {delay} ms");
    }
}

#[test]
fn drifting_clocks_are_followed() {
    let played = playback();
    for drift in [-5e-4, 5e-4] {
        let input = echo(&played, 4_000, 0.5, drift);
        let out = cancelled(&played, &input);
        let removed = removed(&input, &out, 3.0, 5.0);
        assert!(removed > 25.0, "{removed} dB at {drift}");
    }
}

#[test]
fn caller_beside_an_echo_stays() {
    let played = playback();
    let mut input = echo(&played, 2_000, 0.3, 0.0);
    let caller = levelled("caller-wait", 1.0);
    let from = 3 * RATE as usize;
    input[from..].iter_mut().zip(&caller).for_each(|(sample, voice)| *sample += voice);
    let out = cancelled(&played, &input);
    let to = (from + caller.len()).min(out.len());
    let change = 20.0 * (rms(&out[from..to]) / rms(&caller[..to - from])).log10();
    assert!(change.abs() < 3.0, "{change} dB");
}

#[test]
fn silence_stays_silence() {
    let played = playback();
    assert!(cancelled(&played, &vec![0.0; played.len()]).iter().all(|sample| *sample == 0.0));
}

#[test]
fn sound_without_playback_passes() {
    let input = levelled("caller-wait", 1.0);
    let out = cancelled(&vec![0.0; input.len()], &input);
    let apart = out.iter().zip(&input).map(|(out, input)| (out - input).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-5, "{apart}");
}

#[test]
fn caller_with_headphones_stays() {
    let played = playback();
    let mut input = echo(&played, 0, 0.0, 0.0);
    let caller = levelled("caller-wait", 0.3);
    let from = 5 * RATE as usize / 2;
    input[from..].iter_mut().zip(&caller).for_each(|(sample, voice)| *sample += voice);
    let out = cancelled(&played, &input);
    let to = (from + caller.len()).min(out.len());
    let change = 20.0 * (rms(&out[from..to]) / rms(&caller[..to - from])).log10();
    assert!(change.abs() < 3.0, "{change} dB");
}

#[test]
fn lost_packets_count_as_nothing() {
    let played = playback();
    let mut aired = played.clone();
    aired.chunks_mut(320).skip(3).step_by(31).for_each(|packet| packet.fill(0.0));
    let mut input = echo(&aired, 2_000, 0.5, 0.0);
    input.chunks_mut(320).skip(7).step_by(29).for_each(|packet| packet.fill(0.0));
    let removed = removed(&input, &cancelled(&played, &input), 2.0, 4.0);
    assert!(removed > 20.0, "{removed} dB");
}

#[test]
fn broken_samples_leave_it_working() {
    let played = playback();
    let mut input = echo(&played, 2_000, 0.5, 0.0);
    let broken = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -f32::MAX];
    input[8_000..8_005].copy_from_slice(&broken);
    let mut far = played.clone();
    far[9_000..9_005].copy_from_slice(&broken);
    let out = cancelled(&far, &input);
    assert!(out.iter().all(|sample| sample.is_finite()));
    let removed = removed(&input, &out, 2.5, 4.0);
    assert!(removed > 20.0, "{removed} dB");
}

#[test]
fn pieces_of_any_size_give_the_same_output() {
    let played = playback();
    let input = echo(&played, 2_000, 0.5, 0.0);
    let outputs = [37, 160, 4_000].map(|size| {
        let (mut canceller, mut out) = (EchoCanceller::new(), Vec::new());
        canceller.push_playback(&played, 0);
        input.chunks(size).for_each(|piece| canceller.process(piece, &mut out, &mut Vec::new()));
        assert_eq!(canceller.position(), input.len() as i64);
        out
    });
    assert!(outputs[0] == outputs[1] && outputs[1] == outputs[2]);
}
