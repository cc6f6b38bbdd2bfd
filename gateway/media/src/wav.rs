//! Decoder and encoder of mono wav files.

use std::io::{Cursor, Read};
use std::time::Duration;

pub use hound::Error as WriteError;
use thiserror::Error;

use crate::pcm::to_i16;
use crate::resample::{RATES, ResampleError, Resampler};

/// Samples that are decoded or resampled at once: some milliseconds of work.
const PIECE: usize = 1 << 16;

/// Error of reading a wav file.
#[derive(Debug, Error)]
pub enum WavError {
    /// Data that is not a wav file.
    #[error("this is not a wav file: {0}")]
    Format(#[from] hound::Error),
    /// Sample rate that cannot be resampled.
    #[error(transparent)]
    Rate(#[from] ResampleError),
    /// File without samples.
    #[error("the wav file holds no audio")]
    Empty,
    /// File over the length limit.
    #[error("the wav file holds {seconds} s of audio; the limit is {limit} s")]
    TooLong {
        /// Length of the file in seconds.
        seconds: u64,
        /// Maximum length in seconds.
        limit: u64,
    },
    /// The caller gave up.
    #[error("the decoding was abandoned")]
    Abandoned,
}

/// Decoded wav file.
#[derive(Debug, Clone, PartialEq)]
pub struct Wav {
    /// Mono samples in -1..1: the mean of the channels.
    pub samples: Vec<f32>,
    /// Sample rate in Hz.
    pub rate: u32,
}

/// Decodes a wav file of any format, at most `max_duration` long, at its own sample rate.
pub fn decode(source: impl Read, max_duration: Duration) -> Result<Wav, WavError> {
    decode_in_pieces(source, max_duration, &mut || true)
}

fn decode_in_pieces(
    source: impl Read,
    max_duration: Duration,
    pause: &mut dyn FnMut() -> bool,
) -> Result<Wav, WavError> {
    let mut reader = hound::WavReader::new(source)?;
    let spec = reader.spec();
    // Checks the header before reading: the samples may not fit into memory.
    let seconds = u64::from(reader.duration()) / u64::from(spec.sample_rate.max(1));
    if seconds > max_duration.as_secs() {
        return Err(WavError::TooLong { seconds, limit: max_duration.as_secs() });
    }
    let samples = match spec.sample_format {
        hound::SampleFormat::Float => mono(reader.samples::<f32>(), spec.channels, pause)?,
        hound::SampleFormat::Int => {
            let full_scale = 2f32.powi(i32::from(spec.bits_per_sample) - 1);
            let samples = reader.samples::<i32>().map(|sample| Ok(sample? as f32 / full_scale));
            mono(samples, spec.channels, pause)?
        }
    };
    if samples.is_empty() {
        return Err(WavError::Empty);
    }
    Ok(Wav { samples, rate: spec.sample_rate })
}

/// Decodes a wav file of any format, at most `max_duration` long, to mono samples at `rate`.
pub fn read(source: impl Read, rate: u32, max_duration: Duration) -> Result<Vec<f32>, WavError> {
    read_in_pieces(source, rate, max_duration, || true)
}

/// Like [`read`], but calls `pause` after each piece of work, and gives up if it returns false.
pub fn read_in_pieces(
    source: impl Read,
    rate: u32,
    max_duration: Duration,
    mut pause: impl FnMut() -> bool,
) -> Result<Vec<f32>, WavError> {
    let wav = decode_in_pieces(source, max_duration, &mut pause)?;
    // Averages neighbours to bring studio rates into range: speech has no content at frequencies that would alias.
    let factor = wav.rate.div_ceil(*RATES.end()).max(1);
    let mut filter = Resampler::new(wav.rate / factor, rate)?;
    let mut samples = Vec::new();
    for piece in average(&wav.samples, factor as usize).chunks(PIECE) {
        samples.extend_from_slice(filter.convert(piece)?);
        if !pause() {
            return Err(WavError::Abandoned);
        }
    }
    samples.extend(filter.flush()?);
    Ok(samples)
}

/// Collects the means of the channels.
fn mono(
    samples: impl Iterator<Item = Result<f32, hound::Error>>,
    channels: u16,
    pause: &mut dyn FnMut() -> bool,
) -> Result<Vec<f32>, WavError> {
    let channels = usize::from(channels.max(1));
    let (mut means, mut sum, mut summed) = (Vec::new(), 0.0, 0);
    for sample in samples {
        sum += sample?;
        summed += 1;
        if summed == channels {
            means.push(sum / channels as f32);
            (sum, summed) = (0.0, 0);
            if means.len() % PIECE == 0 && !pause() {
                return Err(WavError::Abandoned);
            }
        }
    }
    Ok(means)
}

fn average(samples: &[f32], group: usize) -> Vec<f32> {
    samples.chunks_exact(group).map(|group| group.iter().sum::<f32>() / group.len() as f32).collect()
}

/// Encodes samples to a mono 16-bit wav file.
pub fn encode(samples: &[f32], rate: u32) -> Result<Vec<u8>, hound::Error> {
    let sample_format = hound::SampleFormat::Int;
    let spec = hound::WavSpec { channels: 1, sample_rate: rate, bits_per_sample: 16, sample_format };
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut bytes, spec)?;
    for sample in samples {
        writer.write_sample(to_i16(*sample))?;
    }
    writer.finalize()?;
    Ok(bytes.into_inner())
}

/// Creates the header of a streamed mono 16-bit wav file: its lengths are the maximum values, which readers treat as "to the
/// end".
pub fn stream_header(rate: u32) -> [u8; 44] {
    const CHANNELS: u16 = 1;
    const BYTES: u16 = 2;
    let unknown = u32::MAX.to_le_bytes();
    let mut header = [0; 44];
    let mut at = 0;
    let fields: [&[u8]; 13] = [
        b"RIFF",
        &unknown,
        b"WAVE",
        b"fmt ",
        &16u32.to_le_bytes(),
        // PCM.
        &1u16.to_le_bytes(),
        &CHANNELS.to_le_bytes(),
        &rate.to_le_bytes(),
        &(rate * u32::from(BYTES)).to_le_bytes(),
        &BYTES.to_le_bytes(),
        &(8 * BYTES).to_le_bytes(),
        b"data",
        &unknown,
    ];
    for field in fields {
        header[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    header
}

#[cfg(test)]
mod tests {
    use repartee_testkit::random::Random;

    use super::*;

    #[test]
    fn written_file_reads_back() {
        let samples: Vec<f32> = (0..2_400).map(|n| (n as f32 * 0.05).sin() * 0.5).collect();
        let bytes = encode(&samples, 24_000).unwrap();
        let read = read(&bytes[..], 24_000, Duration::from_secs(1)).unwrap();
        assert!(samples.iter().zip(&read).all(|(a, b)| (a - b).abs() < 1e-4) && read.len() == samples.len());
    }

    #[test]
    fn stream_header_matches_file_except_lengths() {
        let mut file = encode(&[0.5; 300], 24_000).unwrap();
        for length in [4..8, 40..44] {
            file[length].fill(0xff);
        }
        assert_eq!(stream_header(24_000), file[..44]);
    }

    #[test]
    fn reader_may_give_up_between_pieces() {
        let file = encode(&vec![0.5; 4 * PIECE], 24_000).unwrap();
        for wanted in 0..8 {
            let mut pieces = 0;
            let mut pause = || {
                pieces += 1;
                pieces <= wanted
            };
            let read = read_in_pieces(&file[..], 16_000, Duration::from_secs(60), &mut pause);
            assert!(matches!(read, Err(WavError::Abandoned)), "{read:?}");
            assert_eq!(pieces, wanted + 1, "nothing is done after the end");
        }
        let whole = read_in_pieces(&file[..], 16_000, Duration::from_secs(60), || true).unwrap();
        assert_eq!(whole, read(&file[..], 16_000, Duration::from_secs(60)).unwrap());
    }

    /// Reads mutated wav files: each is read or refused.
    #[test]
    fn broken_files_never_panic() {
        let mut random = Random::new(1);
        let longest = Duration::from_secs(5);
        let seeds = [encode(&[0.5; 300], 8_000), encode(&[0.5; 300], 48_000)].map(Result::unwrap);
        let (mut taken, mut refused) = (0, 0);
        for round in 0..10_000 {
            let mut bytes = seeds[round % seeds.len()].clone();
            for _ in 0..1 + random.below(4) {
                // Mostly in the header.
                let at = if random.below(4) > 0 { random.below(44) } else { random.below(bytes.len()) };
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random.below(256) as u8][random.below(6)];
            }
            bytes.truncate(bytes.len() - if random.below(3) == 0 { random.below(bytes.len()) } else { 0 });
            match read(&bytes[..], 16_000, longest) {
                Ok(samples) => {
                    assert!(samples.len() <= 16_000 * 6, "no more than the longest");
                    taken += 1;
                }
                Err(_) => refused += 1,
            }
        }
        assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
    }

    #[test]
    fn too_long_file_is_refused_by_its_header() {
        let mut bytes = encode(&[0.0; 48_000], 8_000).unwrap();
        bytes.truncate(100);
        let refused = read(&bytes[..], 16_000, Duration::from_secs(5)).unwrap_err();
        assert!(matches!(refused, WavError::TooLong { seconds: 6, limit: 5 }));
        assert!(matches!(read(&b"RIFF"[..], 16_000, Duration::from_secs(5)), Err(WavError::Format(_))));
    }
}
