//! Spectral similarity of a sound and its recording; surrounding silence does not count.
//!
//! A speech recogniser compares words, but an inaudible change can alter its transcript of unclear speech. So the
//! comparison is spectral: both sounds are cut into stretches of 10 ms, and as many as possible are paired in order
//! (longest common subsequence); the mel spectra of a pair differ by little. After a codec and a receiver that
//! stretches sound to absorb jitter, nearly all stretches have a pair; with another sentence of the same voice, three
//! quarters, by its silence and vowels.

use std::f32::consts::TAU;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use repartee_media::sound_file;
use repartee_media::wav;

/// Threshold for the same sound: a codec and an even network leave 0.95; with a tenth cut out, at most 0.9.
pub const SIMILAR: f64 = 0.92;
/// Largest mean difference of the bands of a pair, in dB.
const PAIR_DB: f32 = 5.0;
/// Floor of a band, in dBFS; anything below is silence.
const FLOOR_DB: f32 = -65.0;
/// Level at which a recording begins and ends, in dBFS.
const LOUD_DB: f32 = -45.0;
const BANDS: usize = 24;
/// Longest recording to read.
const MAX_DURATION: Duration = Duration::from_secs(600);
/// Outer edges of the bands in Hz; a voice has little energy beyond them.
const EDGES_HZ: (f32, f32) = (100.0, 7_000.0);
/// Stretches per second.
const STRETCHES: u32 = 100;
/// Windows per second without overlap; also the spacing of spectral lines in Hz.
const WINDOWS: u32 = 40;

/// Mono sound with its sample rate.
#[derive(Debug, Clone)]
pub struct Sound {
    /// Samples in -1..1.
    pub samples: Vec<f32>,
    /// Sample rate in Hz.
    pub rate: u32,
}

impl Sound {
    /// Reads a wav file of at most ten minutes.
    pub fn read(path: &Path) -> Result<Self> {
        let named = || path.display().to_string();
        let file = std::fs::read(path).with_context(named)?;
        let wav = sound_file::decode(&file[..], MAX_DURATION).with_context(named)?;
        Ok(Self { samples: wav.samples, rate: wav.rate })
    }

    /// Writes a 16-bit wav file.
    pub fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, wav::encode(&self.samples, self.rate)?).with_context(|| path.display().to_string())
    }

    /// True if all samples equal those of `other`, up to 16-bit rounding and clipping.
    pub fn has_samples_of(&self, other: &Self) -> bool {
        let near = |(a, b): (&f32, &f32)| (a - b.clamp(-1.0, 1.0)).abs() < 1.5 / 32_768.0;
        self.rate == other.rate
            && self.samples.len() == other.samples.len()
            && self.samples.iter().zip(&other.samples).all(near)
    }

    /// Returns the duration in milliseconds.
    pub fn milliseconds(&self) -> f64 {
        self.samples.len() as f64 * 1_000.0 / f64::from(self.rate)
    }
}

/// Returns the share of stretches of the longer sound, from its first loud moment to its last, that have a pair in the
/// other: 1 for the same sound, 0 if one is silent.
pub fn spectral_similarity(said: &Sound, heard: &Sound) -> f64 {
    let (said, heard) = (spectra(said), spectra(heard));
    let mut best = vec![0_usize; heard.len() + 1];
    for stretch in &said {
        // Best length one row above and one column before.
        let mut corner = 0;
        for (column, other) in heard.iter().enumerate() {
            let above = best[column + 1];
            let pair = usize::from(difference(stretch, other) < PAIR_DB);
            best[column + 1] = above.max(best[column]).max(corner + pair);
            corner = above;
        }
    }
    let longer = said.len().max(heard.len());
    if longer == 0 { 0.0 } else { best[heard.len()] as f64 / longer as f64 }
}

type Spectrum = [f32; BANDS];

fn difference(a: &Spectrum, b: &Spectrum) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / BANDS as f32
}

/// Computes a spectrum every 10 ms, from the first loud moment to the last.
fn spectra(sound: &Sound) -> Vec<Spectrum> {
    let (step, length) = ((sound.rate / STRETCHES) as usize, (sound.rate / WINDOWS) as usize);
    let windows: Vec<_> = sound.samples.windows(length).step_by(step).collect();
    let is_loud = |window: &&[f32]| decibels(window.iter().map(|x| x * x).sum::<f32>() / length as f32) > LOUD_DB;
    let (Some(first), Some(last)) = (windows.iter().position(is_loud), windows.iter().rposition(is_loud)) else {
        return Vec::new();
    };
    let shape: Vec<f32> = (0..length).map(|i| 0.5 - 0.5 * (TAU * i as f32 / length as f32).cos()).collect();
    let turns: Vec<(f32, f32)> = (0..length).map(|i| (TAU * i as f32 / length as f32).sin_cos()).collect();
    let lines = lines();
    let scale = shape.iter().sum::<f32>().powi(-2);
    windows[first..=last]
        .iter()
        .map(|window| {
            let shaped: Vec<f32> = window.iter().zip(&shape).map(|(x, weight)| x * weight).collect();
            let mut bands = [0.0; BANDS];
            for &(line, band) in &lines {
                let (mut re, mut im) = (0.0, 0.0);
                for (i, x) in shaped.iter().enumerate() {
                    let (sin, cos) = turns[i * line % length];
                    (re, im) = (re + x * cos, im - x * sin);
                }
                bands[band] += (re * re + im * im) * scale;
            }
            bands.map(|power| decibels(power).max(FLOOR_DB))
        })
        .collect()
}

/// Returns the lines of a spectrum, one every 40 Hz, each with its band.
fn lines() -> Vec<(usize, usize)> {
    let (low, high) = (mel(EDGES_HZ.0), mel(EDGES_HZ.1));
    let band = |line: &u32| (mel((line * WINDOWS) as f32) - low) / (high - low) * BANDS as f32;
    let inside = (1..).skip_while(|line| band(line) < 0.0).take_while(|line| band(line) < BANDS as f32);
    inside.map(|line| (line as usize, band(&line) as usize)).collect()
}

/// Mel scale, up to a factor.
fn mel(hz: f32) -> f32 {
    (1.0 + hz / 700.0).ln()
}

fn decibels(power: f32) -> f32 {
    10.0 * (power + 1e-12).log10()
}

#[cfg(test)]
mod tests {
    use repartee_testkit::random::Random;

    use super::*;
    use crate::questions;

    /// Reads the sound of a question, 16 kHz.
    fn speech(file: &str) -> Sound {
        Sound::read(&questions::named(file).unwrap().path()).unwrap()
    }

    /// Applies `change` to each 20 ms frame of `sound`.
    fn framed(sound: &Sound, change: impl Fn(usize, Vec<f32>) -> Vec<f32>) -> Sound {
        let frames = sound.samples.chunks(sound.rate as usize / 50).enumerate();
        Sound { samples: frames.flat_map(|(n, frame)| change(n, frame.to_vec())).collect(), rate: sound.rate }
    }

    fn with_silence(sound: &Sound) -> Sound {
        let silence = vec![0.0; sound.rate as usize];
        Sound { samples: [&silence[..], &sound.samples, &silence].concat(), rate: sound.rate }
    }

    #[test]
    fn rate_and_surrounding_silence_keep_similarity() {
        let sound = speech("capital-of-france.wav");
        assert!(spectral_similarity(&sound, &with_silence(&sound)) > 0.99);
        let mut filter = repartee_media::resample::Resampler::new(sound.rate, 48_000).unwrap();
        let mut samples = filter.push(&sound.samples).unwrap();
        samples.extend(filter.flush().unwrap());
        let other_rate = spectral_similarity(&sound, &Sound { samples, rate: 48_000 });
        assert!(other_rate > 0.97, "{other_rate}");
    }

    #[test]
    fn one_short_hole_stays_similar() {
        let sound = speech("capital-of-france.wav");
        let torn = framed(&sound, |n, frame| if n == 40 { [vec![0.0; 900], frame].concat() } else { frame });
        let similarity = spectral_similarity(&sound, &torn);
        assert!((SIMILAR..0.99).contains(&similarity), "{similarity}");
    }

    #[test]
    fn damaged_or_other_sound_is_not_similar() {
        let sound = speech("capital-of-france.wav");
        let length = sound.samples.len();
        let mut random = Random::new(1);
        let mut noise = move || random.unit() as f32 - 0.5;
        let plain = |samples: Vec<f32>| Sound { samples, rate: sound.rate };
        let others = [
            ("cut off", plain(sound.samples[..length * 2 / 3].to_vec())),
            ("every tenth frame left out", framed(&sound, |n, frame| if n % 10 == 5 { Vec::new() } else { frame })),
            ("every second frame silent", framed(&sound, |n, frame| if n % 2 == 0 { vec![0.0; 320] } else { frame })),
            ("noise", plain(sound.samples.iter().map(|sample| sample + 0.1 * noise()).collect())),
            ("too fast", plain(sound.samples.iter().copied().step_by(2).collect())),
            ("twice", plain([&sound.samples[..], &sound.samples].concat())),
            ("silence", plain(vec![0.0; length])),
            ("nothing", plain(Vec::new())),
            ("something else", speech("month-before-may.wav")),
        ];
        for (what, other) in others {
            let similarity = spectral_similarity(&sound, &other);
            assert!(similarity < SIMILAR, "{what}: {similarity}");
        }
    }
}
