//! Opus packets of a caller who does not come over WebRTC: in order and without losses, so that a decoder is all it takes.

use repartee_media::opus::{OpusDecoder, OpusError, RATES};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ErrorBody, ErrorKind};

/// Rate for models that hear at one that Opus cannot be decoded to.
const FALLBACK_RATE: u32 = 48_000;

/// The caller's packets.
#[derive(Debug)]
pub(super) struct Packets {
    rate: u32,
    /// Made with the first packet.
    decoder: Option<OpusDecoder>,
}

impl Packets {
    pub fn new(model_rate: u32) -> Self {
        Self { rate: if RATES.contains(&model_rate) { model_rate } else { FALLBACK_RATE }, decoder: None }
    }

    /// Decodes one packet in a session whose input has this format; samples and their rate.
    pub fn decode(&mut self, format: AudioFormat, packet: &[u8]) -> Result<(Vec<f32>, u32), ErrorBody> {
        let refuse = |message: String| ErrorBody::invalid(ErrorKind::InvalidAudio, message);
        if format != AudioFormat::Opus {
            let message = "binary messages are Opus packets: set session.audio.input.format to audio/opus first, or send \
                           base64-encoded sound in input_audio_buffer.append";
            return Err(refuse(message.into()));
        }
        let mut decode = || -> Result<Vec<f32>, OpusError> {
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                None => self.decoder.insert(OpusDecoder::new(self.rate)?),
            };
            decoder.decode(packet)
        };
        Ok((decode().map_err(|error| refuse(error.to_string()))?, self.rate))
    }
}
