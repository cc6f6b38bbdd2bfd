//! Frozen scenes of callers in noise and of soft callers: the questions of `tests/questions`, a noise and a level. They were committed
//! before any noise reduction was chosen or written.

use std::f64::consts::TAU;

use anyhow::Result;
use repartee_testkit::random::Random;
use repartee_testkit::signal::level_db;

use crate::questions::Question;

/// Sample rate of the scenes, in Hz.
pub const RATE: u32 = 16_000;
/// Noise alone before the voice, in samples.
pub const BEFORE: usize = 3 * RATE as usize;
/// Noise alone behind the voice, in samples.
pub const AFTER: usize = 3 * RATE as usize;
/// Level of a voice beside a noise, in dBFS.
const VOICE_DB: f32 = -26.0;
/// Level of the room behind a soft or a clean voice, in dBFS.
const ROOM_DB: f32 = -75.0;

/// Noise of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoomNoise {
    /// Gaussian samples, with all frequencies alike.
    White,
    /// Steady noise below some 500 Hz, as of a fan, with a hum of 120 Hz.
    Fan,
    /// Noise of a street, which swells and ebbs within seconds.
    Street,
    /// Six other people at once.
    Babble,
}

/// Noises of the scenes, each with every ratio of [`SNRS_DB`].
pub const NOISES: [RoomNoise; 4] = [RoomNoise::White, RoomNoise::Fan, RoomNoise::Street, RoomNoise::Babble];
/// Levels of the voice above the noise, in dB.
pub const SNRS_DB: [f32; 3] = [15.0, 8.0, 2.0];
/// Levels of voices without a noise, in dBFS.
pub const LEVELS_DB: [f32; 5] = [-26.0, -40.0, -45.0, -50.0, -55.0];

/// Sound beside the voice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoiseScene {
    /// A voice this many dB above a noise.
    Noisy(RoomNoise, f32),
    /// A voice of this level in dBFS, in a quiet room.
    Quiet(f32),
}

impl std::fmt::Display for NoiseScene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Noisy(noise, snr_db) => write!(f, "{noise:?} {snr_db} dB below the voice"),
            Self::Quiet(level_db) => write!(f, "voice of {level_db} dBFS"),
        }
    }
}

/// Returns the scenes: each noise with each ratio, then each level without a noise.
pub fn scenes() -> impl Iterator<Item = NoiseScene> {
    let noisy = NOISES.into_iter().flat_map(|noise| SNRS_DB.map(|snr_db| NoiseScene::Noisy(noise, snr_db)));
    noisy.chain(LEVELS_DB.map(NoiseScene::Quiet))
}

/// A voice with the sound around it.
#[derive(Debug)]
pub struct NoisySound {
    /// Samples at [`RATE`].
    pub samples: Vec<f32>,
    /// The voice's samples alone, from [`BEFORE`] on.
    pub voice: Vec<f32>,
}

/// Makes the sound of the question at `index` of `voices`, which are samples of all questions at [`RATE`].
pub fn sound(scene: NoiseScene, voices: &[Vec<f32>], index: usize) -> NoisySound {
    let mut random = Random::new(1 + index as u64);
    let (voice_db, noise, noise_db) = match scene {
        NoiseScene::Noisy(noise, snr_db) => (VOICE_DB, Some(noise), VOICE_DB - snr_db),
        NoiseScene::Quiet(level_db) => (level_db, None, ROOM_DB),
    };
    let mut voice = trimmed(&voices[index]).to_vec();
    scale_to(&mut voice, voice_db);
    let length = BEFORE + voice.len() + AFTER;
    let mut samples = match noise {
        None | Some(RoomNoise::White) => (0..length).map(|_| gaussian(&mut random)).collect(),
        Some(RoomNoise::Fan) => fan(length, &mut random),
        Some(RoomNoise::Street) => street(length, &mut random),
        Some(RoomNoise::Babble) => babble(length, voices, index, &mut random),
    };
    scale_to(&mut samples, noise_db);
    samples[BEFORE..].iter_mut().zip(&voice).for_each(|(sample, voice)| *sample = (*sample + voice).clamp(-1.0, 1.0));
    NoisySound { samples, voice }
}

/// Reads the samples of every question at [`RATE`].
pub fn voices(questions: &[Question]) -> Result<Vec<Vec<f32>>> {
    let read = |question: &Question| -> Result<Vec<f32>> {
        let minute = std::time::Duration::from_secs(60);
        Ok(repartee_media::sound_file::read(&std::fs::read(question.path())?, RATE, minute)?)
    };
    questions.iter().map(read).collect()
}

/// Samples from the first to the last loud one.
fn trimmed(samples: &[f32]) -> &[f32] {
    let is_loud = |sample: &f32| sample.abs() > 0.02;
    let first = samples.iter().position(is_loud).unwrap_or(0);
    let last = samples.iter().rposition(is_loud).unwrap_or(samples.len().saturating_sub(1));
    &samples[first..samples.len().min(last + 1)]
}

fn scale_to(samples: &mut [f32], db: f32) {
    let gain = 10_f32.powf((db - level_db(samples)) / 20.0);
    samples.iter_mut().for_each(|sample| *sample *= gain);
}

/// Returns a number with a mean of 0 and a deviation of 1, nearly Gaussian.
fn gaussian(random: &mut Random) -> f32 {
    ((0..12).map(|_| random.unit()).sum::<f64>() - 6.0) as f32
}

/// White noise through two low-pass filters of `frequency` Hz.
fn low_noise(length: usize, frequency: f64, random: &mut Random) -> Vec<f32> {
    let share = 1.0 - (-TAU * frequency / f64::from(RATE)).exp() as f32;
    let mut stages = [0.0_f32; 2];
    let mut next = || {
        let mut sample = gaussian(random);
        for stage in &mut stages {
            *stage += share * (sample - *stage);
            sample = *stage;
        }
        sample
    };
    (0..length).map(|_| next()).collect()
}

fn fan(length: usize, random: &mut Random) -> Vec<f32> {
    let mut noise = low_noise(length, 500.0, random);
    scale_to(&mut noise, -20.0);
    let hum = |at: usize| 0.05 * (TAU * 120.0 * at as f64 / f64::from(RATE)).sin() as f32;
    noise.iter_mut().enumerate().for_each(|(at, sample)| *sample += hum(at));
    noise
}

/// Low and high noise whose level moves by 10 dB within three seconds.
fn street(length: usize, random: &mut Random) -> Vec<f32> {
    let (mut low, mut high) = (low_noise(length, 200.0, random), low_noise(length, 2_000.0, random));
    scale_to(&mut low, -20.0);
    scale_to(&mut high, -28.0);
    let phase = random.unit();
    let gain = |at: usize| {
        let swell = (TAU * (at as f64 / (3.0 * f64::from(RATE)) + phase)).sin();
        10_f64.powf(swell * 5.0 / 20.0) as f32
    };
    low.iter().zip(&high).enumerate().map(|(at, (low, high))| gain(at) * (low + high)).collect()
}

/// Other questions, each repeated from a random place.
fn babble(length: usize, voices: &[Vec<f32>], but: usize, random: &mut Random) -> Vec<f32> {
    let mut sum = vec![0.0; length];
    for number in 0..6 {
        let mut voice = trimmed(&voices[(but + 1 + 7 * number) % voices.len()]).to_vec();
        scale_to(&mut voice, -20.0);
        let from = random.below(voice.len());
        sum.iter_mut().zip(voice.iter().cycle().skip(from)).for_each(|(sum, sample)| *sum += sample);
    }
    sum
}
