//! Tests of the noise reducer.

use repartee_testkit::signal::level_db;

use super::NoiseReducer;
use crate::testdata;
use crate::turn_grid_sounds::Noise;

const RATE: usize = 16_000;

/// Output for `sound`, in pieces of `size` samples, and the reducer after it.
fn reduced(sound: &[f32], most_db: f32, size: usize) -> (Vec<f32>, NoiseReducer) {
    let (mut reducer, mut out) = (NoiseReducer::new(most_db), Vec::new());
    for piece in sound.chunks(size) {
        let mut piece = piece.to_vec();
        reducer.process(&mut piece);
        out.extend(piece);
    }
    reducer.flush(&mut out);
    (out, reducer)
}

/// A question at its own level, with a second of silence before it.
fn voice() -> Vec<f32> {
    [vec![0.0; RATE], testdata::question("how-deep-ocean", RATE as u32)].concat()
}

/// Level of the difference, relative to `sound`, in dB.
fn change_db(sound: &[f32], out: &[f32]) -> f32 {
    let difference: Vec<f32> = sound.iter().zip(out).map(|(a, b)| a - b).collect();
    level_db(&difference) - level_db(sound)
}

#[test]
fn steady_noise_is_softened_within_a_second() {
    for noise in [Noise::White, Noise::Pink, Noise::Line, Noise::Hum50] {
        for most_db in [6.0, 12.0] {
            let sound = noise.samples(RATE as u32, 4 * RATE, -40.0, 1);
            let (out, _) = reduced(&sound, most_db, 320);
            let removed = level_db(&sound[RATE..]) - level_db(&out[RATE..]);
            assert!(removed > 0.7 * most_db && removed < most_db + 0.5, "{noise:?}: {removed} of {most_db} dB");
        }
    }
}

#[test]
fn clean_voices_hardly_change() {
    let sound = voice();
    let change = change_db(&sound, &reduced(&sound, 12.0, 320).0);
    assert!(change < -20.0, "{change} dB");
}

#[test]
fn voices_in_noise_stand_out_more() {
    let (voice, noise) = (voice(), Noise::White.samples(RATE as u32, 5 * RATE, -40.0, 1));
    let spoken = RATE..voice.len();
    let sound: Vec<f32> = voice.iter().zip(&noise).map(|(voice, noise)| voice + noise).collect();
    let (out, _) = reduced(&sound, 12.0, 320);
    let (before, after) =
        (change_db(&voice[spoken.clone()], &sound[spoken.clone()]), change_db(&voice[spoken.clone()], &out[spoken]));
    assert!(after < before - 3.0, "{before} to {after} dB");
}

#[test]
fn pieces_of_any_size_leave_every_sample() {
    let sound = Noise::Pink.samples(RATE as u32, 10_007, -30.0, 1);
    let outputs = [1, 37, 160, 4_000].map(|size| reduced(&sound, 12.0, size).0);
    assert!(outputs.iter().all(|out| out.len() == sound.len() && *out == outputs[0]));
}

#[test]
fn flushed_sound_continues_without_a_seam() {
    let sound = voice();
    let (mut reducer, mut out) = (NoiseReducer::new(12.0), Vec::new());
    for piece in sound.chunks(3_001) {
        let mut piece = piece.to_vec();
        reducer.process(&mut piece);
        reducer.flush(&mut piece);
        out.extend(piece);
    }
    assert_eq!(out.len(), sound.len());
    let change = change_db(&sound, &out);
    assert!(change < -20.0, "{change} dB");
}

#[test]
fn broken_samples_leave_silence_and_sound() {
    let mut sound = voice();
    sound[20_000..20_005].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -f32::MAX]);
    let (out, _) = reduced(&sound, 12.0, 320);
    assert!(out.iter().all(|sample| sample.is_finite()));
    assert!(out[..RATE - 320].iter().all(|sample| *sample == 0.0), "silence stays silent");
    let change = change_db(&sound[30_000..], &out[30_000..]);
    assert!(change < -20.0, "{change} dB");
}

/// Six people at once, each from another place on.
fn six_voices(length: usize, seed: usize) -> Vec<f32> {
    let names =
        ["capital-of-canada", "favorite-food", "how-deep-ocean", "name-thomas", "sixty-minus-seventeen", "tell-a-joke"];
    let mut sum = vec![0.0; length];
    for (number, name) in names.into_iter().enumerate() {
        let voice = testdata::question(name, RATE as u32);
        let level = 10_f32.powf(level_db(&voice) / 20.0);
        let from = (seed * 9_973 + number * 20_011) % voice.len();
        sum.iter_mut().zip(voice.iter().cycle().skip(from)).for_each(|(sum, sample)| *sum += 0.01 * sample / level);
    }
    sum
}

#[test]
fn many_voices_are_left_as_they_are() {
    for seed in 1..4 {
        let sound = six_voices(8 * RATE, seed);
        let (out, reducer) = reduced(&sound, 12.0, 320);
        assert!(!reducer.is_reducing());
        let change = change_db(&sound[3 * RATE..], &out[3 * RATE..]);
        assert!(change < -12.0, "{change} dB");
        let steady = Noise::Line.samples(RATE as u32, 8 * RATE, -40.0, seed as u64);
        assert!(reduced(&steady, 12.0, 320).1.is_reducing());
    }
}
