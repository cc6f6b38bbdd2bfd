//! Base64 audio in events, in the session's input format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_media::pcm;
use repartee_media::resample::{ResampleError, Resampler};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ErrorBody, ErrorKind};

/// Maximum audio of an item that a client creates, in seconds. Models accept less; this bounds the memory.
const MAX_ITEM_S: u64 = 60;

/// Decodes base64 audio to samples in -1..1 at the format's rate.
///
/// # Errors
///
/// The text is not base64, a 16-bit sample is incomplete, or the format is Opus.
pub fn decode(audio: &str, format: AudioFormat) -> Result<Vec<f32>, ErrorBody> {
    let bytes = bytes(audio)?;
    match format {
        AudioFormat::Pcm { .. } => pcm::decode_i16le(&bytes).map_err(|error| refuse(error.to_string())),
        AudioFormat::Pcmu => Ok(pcm::decode_mulaw(&bytes)),
        AudioFormat::Pcma => Ok(pcm::decode_alaw(&bytes)),
        AudioFormat::Opus => Err(refuse("Opus packets are sent as binary messages, and items cannot hold them".into())),
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

/// Decodes the audio of an item to samples at `rate`, the model's input rate.
pub(super) fn item_audio(audio: &str, format: AudioFormat, rate: u32) -> Result<Vec<f32>, ErrorBody> {
    let samples = decode(audio, format)?;
    if samples.is_empty() {
        return Err(refuse("`audio` is empty".into()));
    }
    if samples.len() as u64 > MAX_ITEM_S * u64::from(format.rate()) {
        let message = format!("an item holds at most {MAX_ITEM_S} s of audio");
        return Err(ErrorBody::invalid(ErrorKind::AudioTooLong, message).with_param("audio"));
    }
    let convert = || -> Result<Vec<f32>, ResampleError> {
        let mut filter = Resampler::new(format.rate(), rate)?;
        let mut converted = filter.push(&samples)?;
        converted.extend(filter.flush()?);
        Ok(converted)
    };
    convert().map_err(|error| ErrorBody::server(ErrorKind::Internal, error.to_string()))
}

fn refuse(message: String) -> ErrorBody {
    ErrorBody::invalid(ErrorKind::InvalidAudio, message).with_param("audio")
}
