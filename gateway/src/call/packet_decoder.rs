//! Opus packets of a websocket: they arrive in order and without loss, so they need a decoder and no jitter buffer.

use repartee_media::opus::{OpusDecoder, OpusError, RATES};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ErrorBody, ErrorKind};

/// Decoding rate for models whose input rate Opus does not support, in Hz.
const FALLBACK_RATE: u32 = 48_000;

/// Decoder of one call's Opus packets.
#[derive(Debug)]
pub(super) struct PacketDecoder {
    rate: u32,
    /// Created with the first packet.
    decoder: Option<OpusDecoder>,
}

impl PacketDecoder {
    pub fn new(model_rate: u32) -> Self {
        Self { rate: if RATES.contains(&model_rate) { model_rate } else { FALLBACK_RATE }, decoder: None }
    }

    /// Decodes one packet; returns samples and their rate. An error unless the session's input `format` is Opus.
    pub fn decode(&mut self, format: AudioFormat, packet: &[u8]) -> Result<(Vec<f32>, u32), ErrorBody> {
        let refuse = |message: String| ErrorBody::invalid(ErrorKind::InvalidAudio, message);
        if format != AudioFormat::Opus {
            let message = "binary messages are Opus packets: set session.audio.input.format to audio/opus first, or send \
                           base64-encoded audio in input_audio_buffer.append";
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
