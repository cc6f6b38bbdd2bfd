use repartee_testkit::random::Random;
use repartee_testkit::signal::{chirp, sine};

use super::*;
use crate::pcm;
use crate::testdata::speech;

const FRAME: usize = 256;

/// Acoustics of each frame, all of which may be voices.
fn analyzed(sound: &[f32]) -> Vec<Acoustics> {
    let mut analyzer = AcousticAnalyzer::default();
    sound.chunks_exact(FRAME).map(|frame| analyzer.push(frame, 1.0)).collect()
}

fn noise(samples: usize, gain: f32) -> Vec<f32> {
    let mut random = Random::new(9);
    (0..samples).map(|_| gain * (random.unit() as f32 - 0.5)).collect()
}

#[test]
fn floors_follow_noise_that_begins() {
    let found = analyzed(&[vec![0.0; 16_384], noise(32_768, 0.1)].concat());
    let begin = 16_384 / FRAME;
    let above = |frames: usize, of: fn(&Acoustics) -> f32| of(&found[begin + frames]) > 9.0;
    assert!(above(FLOOR_FRAMES - 2, |frame| frame.above_floor_db));
    assert!(!above(FLOOR_FRAMES + SMOOTHED, |frame| frame.above_floor_db));
    assert!(above(NEAR_FLOOR_FRAMES - 2, |frame| frame.above_near_floor_db));
    assert!(!above(NEAR_FLOOR_FRAMES + SMOOTHED, |frame| frame.above_near_floor_db));
}

#[test]
fn voices_rise_above_noise_and_have_pitch() {
    let voice = speech("sentence");
    let sound: Vec<f32> = voice.iter().zip(noise(voice.len(), 0.02)).map(|(voice, noise)| voice + noise).collect();
    let found = analyzed(&sound);
    let share = |is: fn(&&Acoustics) -> bool| found.iter().filter(is).count() as f32 / found.len() as f32;
    assert!(share(|frame| frame.above_floor_db > 9.0) > 0.3);
    assert!(share(|frame| frame.is_pitched) > 0.3);
    assert!(share(|frame| frame.is_tone) < 0.05);
}

#[test]
fn silence_of_a_law_is_silence() {
    let silence = pcm::decode_alaw(&pcm::encode_alaw(&[0.0; 16_384]));
    assert!(silence.iter().all(|sample| *sample != 0.0));
    assert!(analyzed(&silence)[20..].iter().all(|frame| *frame == Acoustics::SILENCE));
}

#[test]
fn begin_of_a_tone_may_be_one() {
    let found = analyzed(&[vec![0.0; 4_096], sine(440.0, 16_000, 2_048)].concat());
    assert!(found[..16].iter().all(|frame| !frame.may_be_tone), "silence is none");
    assert!(found[16 + 3..].iter().all(|frame| frame.may_be_tone), "{found:?}");
    assert!(found[16 + 6..].iter().all(|frame| frame.is_tone), "{found:?}");
}

#[test]
fn rising_pitch_is_no_tone() {
    // As a voice's third harmonic rises within a syllable.
    let found = analyzed(&chirp(450.0, 900.0, 16_000, 8_192));
    assert!(found[4..].iter().all(|frame| !frame.is_tone), "{found:?}");
}

#[test]
fn keys_that_come_and_go_are_tones() {
    let low = sine(697.0, 16_000, 48_000);
    let keys: Vec<f32> = low.iter().zip(sine(1_209.0, 16_000, 48_000)).map(|(low, high)| 0.3 * (low + high)).collect();
    let keys: Vec<f32> = keys.iter().enumerate().map(|(i, tone)| if i % 6_000 < 1_920 { *tone } else { 0.0 }).collect();
    let sounds = keys.chunks_exact(FRAME).map(|frame| frame.iter().any(|sample| sample.abs() > 0.1));
    let missed = analyzed(&keys).into_iter().zip(sounds).filter(|(frame, sounds)| *sounds && !frame.is_tone).count();
    // Eight keys, of four frames before each is known.
    assert!(missed <= 8 * 4, "{missed} frames");
}
