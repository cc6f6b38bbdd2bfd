//! Speech of the callers: wav files as 20 ms frames, encoded once for all callers.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use opus::{Application, Bitrate, Channels, Encoder};

use crate::measure::level::{audible_end, first_audible};
use crate::mulaw::{self, TELEPHONE_RATE};
use crate::sample_rate::{RATE, duration_of};

/// Duration of a frame.
pub const FRAME: Duration = Duration::from_millis(20);
/// Samples per frame.
pub const FRAME_SAMPLES: usize = RATE as usize / 50;
/// Samples per frame at the telephone's rate.
const NARROW_SAMPLES: usize = TELEPHONE_RATE as usize / 50;
/// Largest Opus packet, in bytes.
const MAX_PACKET: usize = 1_000;
/// Longest file, in seconds.
const MAX_SECONDS: usize = 600;
/// Half the width of the resampler's kernel, in samples of the lower rate.
const KERNEL: f64 = 12.0;

/// A 20 ms frame of the microphone, encoded for each transport.
#[derive(Debug, Clone)]
pub struct Frame {
    /// An Opus packet, for WebRTC.
    pub opus: Bytes,
    /// 16-bit PCM in base64, for the websocket.
    pub pcm: String,
    /// Mu-law at 8 kHz, for the telephone.
    pub mulaw: Bytes,
}

/// An utterance, as frames and samples.
#[derive(Debug)]
pub struct Utterance {
    /// Encoded frames up to the one in which the speech ends.
    pub frames: Vec<Frame>,
    /// Time from the beginning to the first audible sample.
    pub first_audible: Duration,
    /// Time from the beginning to the end of the last audible sample.
    pub speech_end: Duration,
    /// Samples at [`RATE`].
    pub samples: Vec<f32>,
}

impl Utterance {
    /// Encodes samples at [`RATE`]. Trailing silence is cut: the microphone sends silence after the speech.
    ///
    /// # Errors
    /// No sample is audible, or the encoder fails.
    pub fn new(samples: &[f32]) -> Result<Self> {
        let (first, end) = first_audible(samples).zip(audible_end(samples)).context("no sound is audible")?;
        let samples = samples[..end].to_vec();
        let mut microphone = Microphone::new()?;
        // The whole is converted at once, so that frames have no seams.
        let narrow = resample(&samples, RATE, TELEPHONE_RATE);
        let mut narrow = narrow.chunks(NARROW_SAMPLES);
        let frames = samples.chunks(FRAME_SAMPLES);
        let frames = frames.map(|frame| microphone.encode(frame, narrow.next().unwrap_or_default()));
        let frames = frames.collect::<Result<_>>()?;
        let (first_audible, speech_end) = (duration_of(first as u64), duration_of(end as u64));
        Ok(Self { frames, first_audible, speech_end, samples })
    }

    /// Loads an utterance from a wav file.
    ///
    /// # Errors
    /// The file cannot be read, is longer than ten minutes, or is silent.
    pub fn load(path: &Path) -> Result<Self> {
        read_wav(path).and_then(|samples| Self::new(&samples)).with_context(|| path.display().to_string())
    }
}

/// Encodes 20 ms of silence, as an encoder sends it in steady state.
///
/// # Errors
/// The encoder fails.
pub fn silence() -> Result<Frame> {
    let mut microphone = Microphone::new()?;
    microphone.encode(&[], &[])?;
    microphone.encode(&[], &[])
}

/// Opus encoder of a caller.
struct Microphone(Encoder);

impl Microphone {
    fn new() -> Result<Self> {
        let mut encoder = Encoder::new(RATE, Channels::Mono, Application::Voip)?;
        encoder.set_bitrate(Bitrate::Bits(32_000))?;
        encoder.set_inband_fec(true)?;
        encoder.set_packet_loss_perc(10)?;
        Ok(Self(encoder))
    }

    /// Encodes a frame, and the same at the telephone's rate, padded with silence.
    fn encode(&mut self, samples: &[f32], narrow: &[f32]) -> Result<Frame> {
        let mut frame = samples.to_vec();
        frame.resize(FRAME_SAMPLES, 0.0);
        let opus = self.0.encode_vec_float(&frame, MAX_PACKET)?.into();
        let mut mulaw: Vec<u8> = narrow.iter().map(|sample| mulaw::encode(*sample)).collect();
        mulaw.resize(NARROW_SAMPLES, mulaw::encode(0.0));
        Ok(Frame { opus, pcm: STANDARD.encode(pcm16(&frame)), mulaw: mulaw.into() })
    }
}

/// Converts samples to 16-bit little-endian PCM.
pub fn pcm16(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|sample| ((sample.clamp(-1.0, 1.0) * 32_767.0) as i16).to_le_bytes()).collect()
}

/// Converts 16-bit little-endian PCM to samples.
pub fn from_pcm16(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_768.0).collect()
}

/// Reads the first channel of a wav file, resampled to [`RATE`].
fn read_wav(path: &Path) -> Result<Vec<f32>> {
    let mut wav = hound::WavReader::open(path)?;
    let spec = wav.spec();
    ensure!((8_000..=192_000).contains(&spec.sample_rate), "{} samples a second", spec.sample_rate);
    let most = MAX_SECONDS * spec.sample_rate as usize * usize::from(spec.channels);
    ensure!(wav.len() as usize <= most, "more than {MAX_SECONDS} s");
    let channels = usize::from(spec.channels.max(1));
    let samples: Vec<f32> = match spec.sample_format {
        hound::SampleFormat::Float => wav.samples::<f32>().step_by(channels).collect::<Result<_, _>>()?,
        hound::SampleFormat::Int => {
            let scale = 1.0 / (1_i64 << (spec.bits_per_sample - 1)) as f32;
            wav.samples::<i32>()
                .step_by(channels)
                .map(|sample| sample.map(|s| s as f32 * scale))
                .collect::<Result<_, _>>()?
        }
    };
    Ok(resample(&samples, spec.sample_rate, RATE))
}

/// Resamples from one rate to another with a windowed sinc.
fn resample(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
    if from == to {
        return samples.to_vec();
    }
    let step = f64::from(from) / f64::from(to);
    // Cutoff relative to the input's rate: the lower of both rates.
    let cutoff = (1.0 / step).min(1.0);
    let half = KERNEL / cutoff;
    let kernel = |distance: f64| {
        let window = 0.5 + 0.5 * (std::f64::consts::PI * distance / half).cos();
        let x = std::f64::consts::PI * distance * cutoff;
        cutoff * window * if x.abs() < 1e-9 { 1.0 } else { x.sin() / x }
    };
    let length = (samples.len() as f64 / step) as usize;
    (0..length)
        .map(|n| {
            let at = n as f64 * step;
            let from = (at - half).ceil().max(0.0) as usize;
            let until = ((at + half).floor() as usize + 1).min(samples.len());
            (from..until).map(|i| f64::from(samples[i]) * kernel(at - i as f64)).sum::<f64>() as f32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sine(hz: f32, rate: u32, count: usize) -> Vec<f32> {
        (0..count).map(|i| 0.5 * (i as f32 * hz / rate as f32 * std::f32::consts::TAU).sin()).collect()
    }

    #[test]
    fn speech_end_is_end_of_sound() {
        let sound = [vec![0.0; 2_400], vec![0.2; 4_800], vec![0.0; 12_000]].concat();
        let utterance = Utterance::new(&sound).unwrap();
        assert_eq!(utterance.first_audible, Duration::from_millis(100));
        assert_eq!(utterance.speech_end, Duration::from_millis(300));
        assert_eq!(utterance.frames.len(), 15);
        assert!(Utterance::new(&[0.0; 4_800]).is_err());
    }

    #[test]
    fn resampling_keeps_pitch_and_level() {
        for rate in [8_000, 16_000, 44_100, 48_000] {
            let found = resample(&sine(440.0, rate, rate as usize), rate, RATE);
            let expected = sine(440.0, RATE, RATE as usize);
            assert!(found.len().abs_diff(RATE as usize) <= 1);
            let middle = 2_000..22_000;
            let error = middle.map(|i| (found[i] - expected[i]).abs()).fold(0.0, f32::max);
            assert!(error < 0.01, "{rate}: {error}");
        }
    }

    #[test]
    fn wav_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stereo.wav");
        let spec = hound::WavSpec {
            channels: 2,
            sample_rate: 16_000,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut wav = hound::WavWriter::create(&path, spec).unwrap();
        for sample in sine(300.0, 16_000, 8_000) {
            wav.write_sample((sample * 32_767.0) as i16).unwrap();
            wav.write_sample(0_i16).unwrap();
        }
        wav.finalize().unwrap();
        let utterance = Utterance::load(&path).unwrap();
        assert!(utterance.speech_end.abs_diff(Duration::from_millis(500)) <= Duration::from_millis(10));
        let error = Utterance::load(Path::new("Cargo.toml")).unwrap_err();
        assert!(format!("{error:#}").starts_with("Cargo.toml: "), "{error:#}");
    }
}
