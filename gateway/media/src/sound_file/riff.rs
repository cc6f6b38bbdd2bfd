//! Reader of wav files as the world writes them: RIFF, RF64 and BW64, streamed with unknown lengths, chunks of odd length with
//! and without a pad byte.

use super::error::SoundFileError;
use super::sink::{SoundSink, check_format};
use crate::pcm::{decode_alaw, decode_mulaw};

/// Name of the container in errors.
const WAV: &str = "wav";
/// Length of a chunk's header: name and length.
const HEADER: usize = 8;
/// Frames that are decoded at once.
const BLOCK: usize = 1_024;

/// Encoding of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Samples.
    Samples(SampleFormat),
    /// Packets of MPEG audio, layer III.
    Mp3,
}

/// Format of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleFormat {
    /// Unsigned bytes.
    Unsigned8,
    /// Signed little-endian integers of this many bytes. Fewer valid bits are the upper ones.
    Signed(usize),
    Float32,
    Float64,
    ALaw,
    MuLaw,
}

impl SampleFormat {
    fn bytes(self) -> usize {
        match self {
            Self::Unsigned8 | Self::ALaw | Self::MuLaw => 1,
            Self::Signed(bytes) => bytes,
            Self::Float32 => 4,
            Self::Float64 => 8,
        }
    }

    /// Decodes samples, one after another.
    fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::Unsigned8 => bytes.iter().map(|byte| (f32::from(*byte) - 128.0) / 128.0).collect(),
            Self::ALaw => decode_alaw(bytes),
            Self::MuLaw => decode_mulaw(bytes),
            Self::Signed(length) => bytes.chunks_exact(length).map(signed).collect(),
            Self::Float32 => {
                let (samples, _) = bytes.as_chunks::<4>();
                samples.iter().map(|sample| f32::from_le_bytes(*sample)).collect()
            }
            Self::Float64 => {
                let (samples, _) = bytes.as_chunks::<8>();
                samples.iter().map(|sample| f64::from_le_bytes(*sample) as f32).collect()
            }
        }
    }
}

/// Decodes a little-endian integer of 2 to 4 bytes, scaled to -1..1.
fn signed(bytes: &[u8]) -> f32 {
    let mut padded = [0; 4];
    padded[4 - bytes.len()..].copy_from_slice(bytes);
    // 2 to the 31st power.
    (f64::from(i32::from_le_bytes(padded)) / 2_147_483_648.0) as f32
}

/// Parsed wav file.
#[derive(Debug)]
pub(super) struct WaveFile<'a> {
    pub encoding: Encoding,
    pub rate: u32,
    pub channels: usize,
    /// Contents of the data chunk.
    pub data: &'a [u8],
}

fn damaged(problem: impl Into<String>) -> SoundFileError {
    SoundFileError::Damaged { container: WAV, problem: problem.into() }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// True if a chunk seems to begin at `at`: a printable name, and a length that the file has room for.
fn is_chunk(file: &[u8], at: usize) -> bool {
    let named = file.get(at..at + 4).is_some_and(|name| name.iter().all(|byte| (0x20..0x7f).contains(byte)));
    named && u32_at(file, at + 4).is_some_and(|length| length as usize <= file.len() - at - HEADER)
}

/// Reads the chunks of a file that begins with RIFF, RF64 or BW64. The lengths in the first header are ignored, because writers
/// of streams do not know them.
pub(super) fn parse(file: &[u8]) -> Result<WaveFile<'_>, SoundFileError> {
    let (mut at, mut format, mut long_length) = (12, None, None);
    while let Some(name) = file.get(at..at + 4) {
        let begin = at + HEADER;
        let Some(claimed) = u32_at(file, at + 4) else { break };
        let left = file.len() - begin;
        if name == b"data" {
            let format = format.ok_or_else(|| damaged("its data come before their format"))?;
            let length = data_length(file, begin, claimed, long_length);
            return wave(format, &file[begin..begin + length]);
        }
        let length = claimed as usize;
        if length > left {
            return Err(damaged(format!("its chunk `{}` is longer than the file", String::from_utf8_lossy(name))));
        }
        let contents = &file[begin..begin + length];
        match name {
            b"fmt " => format = Some(contents),
            b"ds64" => {
                long_length = contents.get(8..16).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
            }
            _ => {}
        }
        at = begin + length;
        // An odd chunk has a pad byte, which some writers leave out.
        if length % 2 == 1 && !is_chunk(file, at) {
            at += 1;
        }
    }
    Err(damaged("it has no data"))
}

/// Length of the data that begin at `begin`. A length of 0, the maximum and any that the file has no room for mean "to the end".
fn data_length(file: &[u8], begin: usize, claimed: u32, long_length: Option<u64>) -> usize {
    let left = file.len() - begin;
    let claimed = match (claimed, long_length) {
        (u32::MAX, Some(long)) => usize::try_from(long).unwrap_or(usize::MAX),
        (claimed, _) => claimed as usize,
    };
    match claimed {
        0 if is_chunk(file, begin) => 0,
        0 => left,
        claimed => claimed.min(left),
    }
}

/// Reads the format chunk.
fn wave<'a>(format: &[u8], data: &'a [u8]) -> Result<WaveFile<'a>, SoundFileError> {
    // Tag, channels, rate, bytes a second, bytes a frame, bits a sample; then the extension.
    let fields = (u16_at(format, 0), u16_at(format, 2), u32_at(format, 4), u16_at(format, 12), u16_at(format, 14));
    let (Some(mut tag), Some(channels), Some(rate), Some(frame), Some(bits)) = fields else {
        return Err(damaged("its format chunk is too short"));
    };
    // Extensible: the tag is the beginning of the sub-format's GUID.
    if tag == 0xfffe {
        tag = u16_at(format, 24).ok_or_else(|| damaged("its extensible format chunk is too short"))?;
    }
    let (channels, frame) = (usize::from(channels), usize::from(frame));
    check_format(rate, channels)?;
    let least = usize::from(bits).div_ceil(8);
    // The frame may have more bytes than the valid bits need: 24 of 32 bits.
    let container = match frame / channels {
        bytes if frame % channels == 0 && (least.max(1)..=8).contains(&bytes) => bytes,
        _ => least,
    };
    let named = |codec: String| SoundFileError::Codec { container: WAV, codec };
    let format = match (tag, container) {
        (1, 1) => SampleFormat::Unsigned8,
        (1, 2..=4) => SampleFormat::Signed(container),
        (3, 4) => SampleFormat::Float32,
        (3, 8) => SampleFormat::Float64,
        (6, 1) => SampleFormat::ALaw,
        (7, 1) => SampleFormat::MuLaw,
        (0x55, _) => return Ok(WaveFile { encoding: Encoding::Mp3, rate, channels, data }),
        (1, _) => return Err(named(format!("integers of {bits} bits"))),
        (3, _) => return Err(named(format!("floating-point numbers of {bits} bits"))),
        (2, _) => return Err(named("Microsoft ADPCM".to_owned())),
        (0x11, _) => return Err(named("IMA ADPCM".to_owned())),
        (0x31, _) => return Err(named("GSM 6.10".to_owned())),
        (tag, _) => return Err(named(format!("the encoding {tag:#06x}"))),
    };
    Ok(WaveFile { encoding: Encoding::Samples(format), rate, channels, data })
}

/// Decodes the samples; an incomplete last frame is dropped.
pub(super) fn decode(
    wave: &WaveFile<'_>,
    format: SampleFormat,
    sink: &mut SoundSink<'_>,
) -> Result<(), SoundFileError> {
    // Known before anything is decoded.
    sink.check_samples((wave.data.len() / (wave.channels * format.bytes())) as u64, wave.rate)?;
    for block in wave.data.chunks(BLOCK * wave.channels * format.bytes()) {
        sink.push(WAV, &format.decode(block), wave.rate, wave.channels)?;
    }
    Ok(())
}
