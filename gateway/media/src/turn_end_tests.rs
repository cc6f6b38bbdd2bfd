//! Ends of turns with short silences, beside held sounds of a person, and over a whole telephone leg: the turn ends within the set silence
//! and a second, and nothing opens on the sounds of the line.

use std::f64::consts::TAU;

use repartee_testkit::random::Random;
use repartee_testkit::signal::level_db;

use super::pcm;
use super::resample::Resampler;
use super::turn_grid_sounds::{Noise, recording};
use super::vad::{RATE, TurnDetector, TurnEvent, TurnSettings};

/// Silences that a caller may set, in ms.
const SILENCES_MS: [u64; 4] = [100, 150, 200, 500];
const VOICES: [&str; 3] = ["capital-of-france", "how-are-you", "month-after-august"];
/// Level of voices and held sounds, in dBFS.
const VOICE_DB: f32 = -24.0;
/// Time beyond the set silence at which a turn has ended.
const STOPS_MS: u64 = 1_000;
/// Earliest begin of a turn before its voice, in ms.
const EARLIEST_MS: u64 = 450;

/// Turns of sound at the detector's rate, in ms.
fn turns(heard: &[f32], silence_duration_ms: u64) -> Vec<(u64, Option<u64>)> {
    let (mut detector, mut turns) = (TurnDetector::default(), Vec::new());
    detector.configure(TurnSettings { silence_duration_ms, ..TurnSettings::default() });
    for event in heard.chunks(320).flat_map(|packet| detector.push(packet)) {
        match event {
            TurnEvent::SpeechStarted { audio_start_ms } => turns.push((audio_start_ms, None)),
            TurnEvent::SpeechStopped { audio_end_ms } => turns.last_mut().unwrap().1 = Some(audio_end_ms),
            _ => {}
        }
    }
    turns
}

/// Faults of `turns`, whose voices are within `voices`, in ms: turns elsewhere, voices without a turn, and ends that come late.
fn faults(turns: &[(u64, Option<u64>)], voices: &[(u64, u64)], silence_ms: u64) -> Vec<String> {
    let within =
        |at: u64| voices.iter().position(|(begin, end)| (begin.saturating_sub(EARLIEST_MS)..*end).contains(&at));
    let mut faults = Vec::new();
    for (from, to) in turns {
        match within(*from) {
            None => faults.push(format!("opens at {from}")),
            Some(voice) if to.is_none_or(|to| to > voices[voice].1 + silence_ms + STOPS_MS) => {
                faults.push(format!("of {from} ends at {to:?} for {:?}", voices[voice]));
            }
            Some(_) => {}
        }
    }
    let missed = (0..voices.len()).filter(|voice| !turns.iter().any(|(from, _)| within(*from) == Some(*voice)));
    faults.extend(missed.map(|voice| format!("voice {:?} is missed", voices[voice])));
    faults
}

fn levelled(mut samples: Vec<f32>, db: f32) -> Vec<f32> {
    let gain = 10_f32.powf((db - level_db(&samples)) / 20.0);
    samples.iter_mut().for_each(|sample| *sample *= gain);
    samples
}

/// Held sound of a person.
#[derive(Debug, Clone, Copy)]
enum Held {
    /// The vowel of "so".
    Vowel,
    /// A hum with closed lips.
    Hum,
}

impl Held {
    /// Samples of `ms` at [`RATE`]: harmonics of a pitch that wavers as a person's does, within formants.
    fn samples(self, ms: usize, pitch: f64, seed: u64) -> Vec<f32> {
        let formants: &[(f64, f64, f64)] = match self {
            Self::Vowel => &[(500.0, 90.0, 1.0), (900.0, 110.0, 0.6), (2_500.0, 200.0, 0.1)],
            Self::Hum => &[(250.0, 80.0, 1.0), (1_000.0, 200.0, 0.05)],
        };
        let gain =
            |hz: f64| formants.iter().map(|(at, width, gain)| gain / (1.0 + ((hz - at) / width).powi(2))).sum::<f64>();
        let mut random = Random::new(seed + 11);
        let (mut phase, mut drift) = (0.0, 0.0);
        let length = ms * RATE as usize / 1_000;
        (0..length)
            .map(|at| {
                // Jitter of a percent from period to period, and a slow drift.
                drift += 2e-4 * (random.unit() - 0.5) - 1e-4 * drift;
                let vibrato = 0.006 * (TAU * 5.0 * at as f64 / f64::from(RATE)).sin();
                let now = pitch * (1.0 + vibrato + drift);
                phase += now / f64::from(RATE);
                let harmonics = (1..=30).map(f64::from).take_while(|k| k * now < 7_000.0);
                let sum: f64 = harmonics.map(|k| gain(k * now) / k.sqrt() * (TAU * k * phase).sin()).sum();
                let edge = (at.min(length - at) as f64 / (0.03 * f64::from(RATE))).min(1.0);
                (sum * edge) as f32
            })
            .collect()
    }
}

#[test]
fn held_sounds_end_turns_in_time() {
    let mut found = Vec::new();
    for silence_ms in SILENCES_MS {
        for held in [Held::Vowel, Held::Hum] {
            for (seed, ms, pitch) in [(0, 700, 110.0), (1, 1_500, 130.0), (2, 3_000, 190.0)] {
                for joined in [false, true] {
                    let held_sound = levelled(held.samples(ms, pitch, seed), VOICE_DB);
                    let voice = levelled(recording(VOICES[seed as usize], RATE), VOICE_DB);
                    let sound = if joined { [voice, held_sound].concat() } else { held_sound };
                    let mut sent = Noise::Pink.samples(RATE, 32_000 + sound.len() + 64_000, -70.0, seed);
                    sent[32_000..].iter_mut().zip(&sound).for_each(|(sample, voice)| *sample += voice);
                    let voices = [(2_000, 2_000 + sound.len() as u64 / 16)];
                    let turns = turns(&sent, silence_ms);
                    let mut faults = faults(&turns, &voices, silence_ms);
                    // A hum of a person may be no turn at all.
                    faults.retain(|fault| joined || !fault.ends_with("is missed"));
                    if !faults.is_empty() {
                        found.push(format!(
                            "{silence_ms} ms, {held:?} of {ms} ms, joined {joined}: {}",
                            faults.join(", ")
                        ));
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "{} of 48:\n{}", found.len(), found.join("\n"));
}

/// Tones of a telephone network: frequencies, and seconds on and off.
type Tones = (&'static [f64], f64, f64);
/// Ring-back and busy tone of North America, of most of Europe, and of the United Kingdom.
const NETWORKS: [(Tones, Tones); 3] = [
    ((&[440.0, 480.0], 2.0, 4.0), (&[480.0, 620.0], 0.5, 0.5)),
    ((&[425.0], 1.0, 4.0), (&[425.0], 0.48, 0.48)),
    ((&[400.0, 450.0], 0.4, 0.2), (&[400.0], 0.375, 0.375)),
];
const LINE_RATE: u32 = 8_000;
/// Levels of the line's noise, in dBFS.
const LINES_DB: [f32; 3] = [-65.0, -55.0, -48.0];

fn tones((frequencies, on, off): Tones, seconds: f64) -> Vec<f32> {
    let length = (seconds * f64::from(LINE_RATE)) as usize;
    let at = |at: usize| {
        let time = at as f64 / f64::from(LINE_RATE);
        let sounds = time % (on + off) < on;
        let sum: f64 = frequencies.iter().map(|hz| (TAU * hz * time).sin()).sum();
        if sounds { (0.1 * sum / (frequencies.len() as f64).sqrt()) as f32 } else { 0.0 }
    };
    (0..length).map(at).collect()
}

#[test]
fn telephone_legs_have_turns_for_voices_alone() {
    let mut found = Vec::new();
    for silence_ms in [100, 200, 500, 700] {
        for (network, (ring, busy)) in NETWORKS.into_iter().enumerate() {
            for (line, line_db) in LINES_DB.into_iter().enumerate() {
                for is_mu in [true, false] {
                    let voice = |at: usize| levelled(recording(VOICES[at % VOICES.len()], LINE_RATE), VOICE_DB);
                    let pause = |seconds: usize| vec![0.0; seconds * LINE_RATE as usize];
                    let parts = [
                        tones(ring, 12.0),
                        pause(1),
                        voice(network),
                        pause(4),
                        voice(network + 1),
                        pause(4),
                        tones(busy, 8.0),
                    ];
                    let ms = |parts: &[Vec<f32>]| parts.iter().map(|part| part.len() as u64).sum::<u64>() / 8;
                    let voices = [(ms(&parts[..2]), ms(&parts[..3])), (ms(&parts[..4]), ms(&parts[..5]))];
                    let mut sent = parts.concat();
                    let noise = Noise::Line.samples(LINE_RATE, sent.len(), line_db, (7 * network + line) as u64);
                    sent.iter_mut().zip(noise).for_each(|(sample, noise)| *sample += noise);
                    let coded = match is_mu {
                        true => pcm::decode_mulaw(&pcm::encode_mulaw(&sent)),
                        false => pcm::decode_alaw(&pcm::encode_alaw(&sent)),
                    };
                    let heard = Resampler::new(LINE_RATE, RATE).unwrap().push(&coded).unwrap();
                    let faults = faults(&turns(&heard, silence_ms), &voices, silence_ms);
                    if !faults.is_empty() {
                        found.push(format!(
                            "{silence_ms} ms, network {network}, line {line_db} dBFS, mu-law {is_mu}: {}",
                            faults.join(", ")
                        ));
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "{} of 72:\n{}", found.len(), found.join("\n"));
}
