//! The network beside torch on the same weights, and its state.

use super::*;
use crate::testdata::interruption;
use crate::voice_detector::RATE;

/// Probabilities of an interruption after each frame, in thousandths, by torch: the recipe's step `export` prints them.
const YEAH: [u32; 23] =
    [471, 764, 854, 690, 424, 441, 356, 356, 377, 420, 408, 340, 276, 225, 205, 240, 390, 223, 130, 118, 133, 137, 135];
const WAIT: [u32; 40] = [
    628, 820, 752, 618, 555, 598, 607, 698, 665, 595, 514, 530, 569, 593, 618, 641, 666, 739, 732, 739, 829, 870, 851,
    850, 876, 900, 903, 905, 921, 928, 947, 959, 946, 943, 959, 967, 974, 979, 982, 980,
];

/// Probabilities after each frame of a voice that begins with the sound.
fn probabilities(sound: &[f32]) -> Vec<f32> {
    let mut network = InterruptionNet::default();
    network.begin(0);
    sound.chunks_exact(HOP).map(|frame| network.push(frame).unwrap()).collect()
}

#[test]
fn probabilities_are_those_of_torch() {
    for (name, expected) in [("yeah-adam", &YEAH[..]), ("caller-wait", &WAIT[..])] {
        let found = probabilities(&interruption(name, RATE));
        assert!(expected.len() > 10 && found.len() >= expected.len());
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let expected = *expected as f32 / 1_000.0;
            assert!((found - expected).abs() < 0.005, "{name}, frame {at}: {found}, torch {expected}");
        }
    }
}

#[test]
fn late_begin_hears_the_frames_before() {
    let sound = interruption("yeah-adam", RATE);
    let frames: Vec<&[f32]> = sound.chunks_exact(HOP).collect();
    let mut network = InterruptionNet::default();
    for frame in &frames[..10] {
        assert_eq!(network.push(frame), None, "no voice is judged");
    }
    network.begin(10);
    let found: Vec<f32> = frames[10..].iter().map(|frame| network.push(frame).unwrap()).collect();
    assert_eq!(found, probabilities(&sound)[10..]);
    network.end();
    assert_eq!(network.push(frames[0]), None);
}

#[test]
fn broken_samples_are_silence() {
    for broken in [f32::NAN, f32::INFINITY, 1e30] {
        let mut network = InterruptionNet::default();
        network.begin(0);
        let found = [broken, 0.0].map(|value| network.push(&[value; HOP]).unwrap());
        assert!(found.iter().all(|probability| (0.0..=1.0).contains(probability)), "{broken}: {found:?}");
    }
}
