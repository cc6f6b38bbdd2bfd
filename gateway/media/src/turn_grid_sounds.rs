//! Noises of a telephone line and of a room, for the grid of turns.

use std::f64::consts::TAU;

use repartee_testkit::random::Random;

use super::testdata;

/// Noise that no caller makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Digital silence.
    None,
    White,
    Pink,
    /// White noise of 300 to 3400 Hz, as a line without a caller has.
    Line,
    /// Mains of 50 Hz with harmonics.
    Hum50,
    /// Rectified mains of 100 Hz with harmonics.
    Hum100,
    /// Twelve people at once.
    Babble,
    /// 440 and 480 Hz, 2 s of 6.
    RingBack,
    /// 480 and 620 Hz, half of each second.
    Busy,
    /// Keys of 120 ms each.
    Dtmf,
    /// A melody of notes with four harmonics that decay.
    Music,
}

impl Noise {
    /// Every noise but silence.
    pub const ALL: [Self; 10] = [
        Self::White,
        Self::Pink,
        Self::Line,
        Self::Hum50,
        Self::Hum100,
        Self::Babble,
        Self::RingBack,
        Self::Busy,
        Self::Dtmf,
        Self::Music,
    ];

    /// Returns `samples` samples at `rate` Hz whose sounding parts have a root mean square of `level_db` dBFS.
    pub fn samples(self, rate: u32, samples: usize, level_db: f32, seed: u64) -> Vec<f32> {
        let tones = |frequencies: &[f64], amplitudes: &[f64]| -> Vec<f32> {
            let at = |i: usize| i as f64 / f64::from(rate);
            let sum = |t: f64| frequencies.iter().zip(amplitudes).map(|(f, a)| a * (TAU * f * t).sin()).sum::<f64>();
            (0..samples).map(|i| sum(at(i)) as f32).collect()
        };
        // Sounds for `on` of each `every` seconds.
        let gated = |sound: Vec<f32>, on: f64, every: f64| -> Vec<f32> {
            let at = |i: usize| (i as f64 / f64::from(rate)) % every;
            sound.into_iter().enumerate().map(|(i, sample)| if at(i) < on { sample } else { 0.0 }).collect()
        };
        let mut random = Random::new(seed + 1);
        let mut sound = match self {
            Self::None => return vec![0.0; samples],
            Self::White => (0..samples).map(|_| random.gaussian()).collect(),
            Self::Pink => pink(samples, &mut random),
            Self::Line => line(rate, samples, &mut random),
            Self::Hum50 => tones(&[50.0, 100.0, 150.0, 250.0, 350.0], &[1.0, 0.4, 0.3, 0.2, 0.1]),
            Self::Hum100 => tones(&[100.0, 200.0, 300.0, 400.0, 600.0], &[1.0, 0.6, 0.4, 0.2, 0.1]),
            Self::Babble => babble(rate, samples, &mut random),
            Self::RingBack => gated(tones(&[440.0, 480.0], &[1.0, 1.0]), 2.0, 6.0),
            Self::Busy => gated(tones(&[480.0, 620.0], &[1.0, 1.0]), 0.5, 1.0),
            Self::Dtmf => keys(rate, samples),
            Self::Music => melody(rate, samples),
        };
        let (energy, count) = sound
            .iter()
            .filter(|sample| **sample != 0.0)
            .fold((0.0, 0_usize), |(energy, count), sample| (energy + f64::from(sample * sample), count + 1));
        let gain = 10_f64.powf(f64::from(level_db) / 20.0) / (energy / count.max(1) as f64).sqrt();
        sound.iter_mut().for_each(|sample| *sample = (f64::from(*sample) * gain) as f32);
        sound
    }
}

/// Gaussian numbers of a seeded generator.
trait Gaussian {
    /// Returns a number with a mean of 0 and a deviation of 1, nearly Gaussian.
    fn gaussian(&mut self) -> f32;
}

impl Gaussian for Random {
    fn gaussian(&mut self) -> f32 {
        ((0..12).map(|_| self.unit()).sum::<f64>() - 6.0) as f32
    }
}

/// Sums octaves of noise that is held for 1, 2, 4, ... samples.
fn pink(samples: usize, random: &mut Random) -> Vec<f32> {
    let mut held = [0.0; 14];
    let mut next = |i: usize| {
        for (octave, held) in held.iter_mut().enumerate() {
            if i.is_multiple_of(1 << octave) {
                *held = random.gaussian();
            }
        }
        held.iter().sum()
    };
    (0..samples).map(&mut next).collect()
}

/// White noise through a high-pass filter of 300 Hz and a low-pass filter of 3400 Hz, each twice.
fn line(rate: u32, samples: usize, random: &mut Random) -> Vec<f32> {
    let pole = |frequency: f64| (-TAU * frequency / f64::from(rate)).exp() as f32;
    let (high, low) = (pole(300.0), pole(3_400.0));
    let (mut slow, mut smooth) = ([0.0_f32; 2], [0.0_f32; 2]);
    let mut next = || {
        let mut sample = random.gaussian();
        for (slow, smooth) in slow.iter_mut().zip(&mut smooth) {
            *slow = high * *slow + (1.0 - high) * sample;
            *smooth = low * *smooth + (1.0 - low) * (sample - *slow);
            sample = *smooth;
        }
        sample
    };
    (0..samples).map(|_| next()).collect()
}

/// Twelve recorded voices, each repeated from another place.
fn babble(rate: u32, samples: usize, random: &mut Random) -> Vec<f32> {
    const VOICES: [&str; 12] = [
        "capital-of-canada",
        "favorite-food",
        "football-game",
        "how-deep-ocean",
        "name-anna",
        "name-thomas",
        "repeat-garden",
        "repeat-lamp",
        "sixty-minus-seventeen",
        "spell-house",
        "tell-a-joke",
        "twelve-plus-thirty",
    ];
    let mut sum = vec![0.0; samples];
    for voice in VOICES {
        let voice = recording(voice, rate);
        let level = (voice.iter().map(|sample| sample * sample).sum::<f32>() / voice.len() as f32).sqrt();
        let from = random.below(voice.len());
        for (sum, sample) in sum.iter_mut().zip(voice.iter().cycle().skip(from)) {
            *sum += sample / level;
        }
    }
    sum
}

/// Reads a question at `rate`, without the silence around it.
pub(crate) fn recording(name: &str, rate: u32) -> Vec<f32> {
    let samples = testdata::question(name, rate);
    let loud = |sample: &f32| sample.abs() > 0.02;
    let first = samples.iter().position(loud).unwrap();
    let last = samples.iter().rposition(loud).unwrap();
    samples[first..=last].to_vec()
}

fn keys(rate: u32, samples: usize) -> Vec<f32> {
    const KEYS: [(f64, f64); 6] =
        [(697.0, 1_209.0), (770.0, 1_336.0), (852.0, 1_477.0), (941.0, 1_336.0), (697.0, 1_477.0), (941.0, 1_209.0)];
    (0..samples)
        .map(|i| {
            let time = i as f64 / f64::from(rate);
            let (low, high) = KEYS[(time / 0.37) as usize % KEYS.len()];
            if time % 0.37 < 0.12 { ((TAU * low * time).sin() + (TAU * high * time).sin()) as f32 } else { 0.0 }
        })
        .collect()
}

fn melody(rate: u32, samples: usize) -> Vec<f32> {
    const NOTES: [f64; 9] = [262.0, 330.0, 392.0, 523.0, 392.0, 330.0, 294.0, 349.0, 440.0];
    (0..samples)
        .map(|i| {
            let time = i as f64 / f64::from(rate);
            let (note, since) = (NOTES[(time / 0.35) as usize % NOTES.len()], time % 0.35);
            let harmonics = [1.0, 0.5, 0.3, 0.15].into_iter().zip(1..);
            let sum: f64 = harmonics.map(|(gain, n)| gain * (TAU * note * f64::from(n) * since).sin()).sum();
            (sum * (-2.0 * since).exp()) as f32
        })
        .collect()
}
