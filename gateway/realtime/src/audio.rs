//! Base64 audio in events, in the session's input format.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_media::pcm;
use repartee_media::resample::{ResampleError, Resampler};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ErrorBody, ErrorKind};

/// Maximum audio of an item that a client creates, in seconds. Models accept less; this bounds the memory.
const MAX_ITEM_S: u64 = 60;
/// Samples that are resampled at once: some milliseconds of work.
const PIECE: usize = 1 << 16;

/// Decodes base64 audio to samples in -1..1 at the format's rate.
///
/// # Errors
///
/// The text is not base64, a 16-bit sample is incomplete, or the format is Opus.
pub fn decode(audio: &str, format: AudioFormat) -> Result<Vec<f32>, ErrorBody> {
    samples(&bytes(audio)?, format)
}

fn samples(bytes: &[u8], format: AudioFormat) -> Result<Vec<f32>, ErrorBody> {
    match format {
        AudioFormat::Pcm { .. } => pcm::decode_i16le(bytes).map_err(|error| refuse(error.to_string())),
        AudioFormat::Pcmu => Ok(pcm::decode_mulaw(bytes)),
        AudioFormat::Pcma => Ok(pcm::decode_alaw(bytes)),
        AudioFormat::Opus => Err(opus()),
    }
}

/// Decodes base64 audio to bytes.
///
/// # Errors
///
/// The text is not base64.
pub fn bytes(audio: &str) -> Result<Vec<u8>, ErrorBody> {
    STANDARD.decode(audio).map_err(|error| refuse(format!("`audio` is not base64: {error}")))
}

/// Audio that came at once, decoded from base64 but not to samples: samples take two to four times its memory.
#[derive(Debug)]
pub struct EncodedAudio {
    bytes: Vec<u8>,
    /// Bytes that are decoded.
    at: usize,
    format: AudioFormat,
}

impl EncodedAudio {
    /// Decodes base64; [`Self::next`] decodes the rest.
    ///
    /// # Errors
    ///
    /// As of [`decode`].
    pub fn new(audio: &str, format: AudioFormat) -> Result<Self, ErrorBody> {
        let bytes = bytes(audio)?;
        let Some(width) = width(format) else { return Err(opus()) };
        if !bytes.len().is_multiple_of(width) {
            return Err(refuse(pcm::OddLength(bytes.len()).to_string()));
        }
        Ok(Self { bytes, at: 0, format })
    }

    /// Rate of the samples, in Hz.
    pub fn rate(&self) -> u32 {
        self.format.rate()
    }

    /// Duration of what is not decoded yet.
    pub fn duration(&self) -> Duration {
        let width = width(self.format).unwrap_or(1);
        let samples = (self.bytes.len() - self.at) / width;
        Duration::from_secs_f64(samples as f64 / f64::from(self.rate().max(1)))
    }

    /// Returns the next samples, at most `most`, in -1..1; none at the end.
    pub fn next(&mut self, most: usize) -> Vec<f32> {
        let end = self.bytes.len().min(self.at + most.saturating_mul(width(self.format).unwrap_or(1)));
        let piece = &self.bytes[self.at..end];
        self.at = end;
        // The constructor has checked format and length.
        samples(piece, self.format).unwrap_or_default()
    }
}

/// Decodes the audio of an item to samples at `rate`, the model's input rate, in pieces: gives up if `pause`, which it
/// calls after each, returns false.
pub(super) fn item_audio(
    audio: &str,
    format: AudioFormat,
    rate: u32,
    pause: &mut dyn FnMut() -> bool,
) -> Result<Vec<f32>, ErrorBody> {
    // Checked before the memory is taken; four letters are three bytes.
    let most = MAX_ITEM_S * u64::from(format.rate());
    let bytes = audio.len() as u64 / 4 * 3;
    if bytes > most * width(format).unwrap_or(1) as u64 + 3 {
        return Err(too_long());
    }
    let samples = decode(audio, format)?;
    if samples.is_empty() {
        return Err(refuse("`audio` is empty".into()));
    }
    if samples.len() as u64 > most {
        return Err(too_long());
    }
    let internal = |error: ResampleError| ErrorBody::server(ErrorKind::Internal, error.to_string());
    let mut filter = Resampler::new(format.rate(), rate).map_err(internal)?;
    let mut converted = Vec::new();
    for piece in samples.chunks(PIECE) {
        converted.extend_from_slice(filter.convert(piece).map_err(internal)?);
        if !pause() {
            return Err(ErrorBody::server(ErrorKind::Internal, "nobody waits for this audio any more"));
        }
    }
    converted.extend(filter.flush().map_err(internal)?);
    Ok(converted)
}

fn too_long() -> ErrorBody {
    let message = format!("an item holds at most {MAX_ITEM_S} s of audio");
    ErrorBody::invalid(ErrorKind::AudioTooLong, message).with_param("audio")
}

/// Bytes of a sample; `None` for Opus.
fn width(format: AudioFormat) -> Option<usize> {
    match format {
        AudioFormat::Pcm { .. } => Some(2),
        AudioFormat::Pcmu | AudioFormat::Pcma => Some(1),
        AudioFormat::Opus => None,
    }
}

fn opus() -> ErrorBody {
    refuse("Opus packets are sent as binary messages, and items cannot hold them".into())
}

fn refuse(message: String) -> ErrorBody {
    ErrorBody::invalid(ErrorKind::InvalidAudio, message).with_param("audio")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_equal_the_whole() {
        let audio = STANDARD.encode((0..1_000_u16).flat_map(u16::to_le_bytes).collect::<Vec<_>>());
        for format in [AudioFormat::default(), AudioFormat::Pcmu, AudioFormat::Pcma] {
            let mut encoded = EncodedAudio::new(&audio, format).unwrap();
            let pieces = std::iter::from_fn(|| Some(encoded.next(37)).filter(|piece| !piece.is_empty()));
            assert_eq!(pieces.flatten().collect::<Vec<_>>(), decode(&audio, format).unwrap());
        }
        let odd = STANDARD.encode([0; 3]);
        let errors = [odd.as_str(), "no base64!"].map(|audio| EncodedAudio::new(audio, AudioFormat::default()).err());
        assert_eq!(errors, [odd.as_str(), "no base64!"].map(|audio| decode(audio, AudioFormat::default()).err()));
        assert!(EncodedAudio::new(&audio, AudioFormat::Opus).is_err());
    }

    #[test]
    fn long_audio_of_an_item_is_not_decoded() {
        // A minute of mu-law, and a second more that is no base64.
        let minute = "AAAA".repeat(8_000 * 60 / 3);
        let decoded = item_audio(&minute, AudioFormat::Pcmu, 16_000, &mut || true).unwrap();
        assert_eq!(decoded.len(), 16_000 * 60);
        let error = item_audio(&(minute + &"?".repeat(12_000)), AudioFormat::Pcmu, 16_000, &mut || true).unwrap_err();
        assert_eq!(error.code.as_deref(), Some("input_audio_too_long"));
    }
}
