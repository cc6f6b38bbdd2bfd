//! The transport of one call, as the call's task sees it: what it takes and what it reports.

use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_engine_api::ResponseId;
use repartee_protocol::ErrorBody;
use repartee_protocol::session::AudioFormat;
use repartee_realtime::{Delivery, PlayoutReport};
use tokio::sync::mpsc;

/// The transport of one call: moves bytes and plays audio, knows nothing of turns.
pub trait Transport: Send {
    /// Who knows what the caller has heard.
    const DELIVERY: Delivery;
    /// Its name in metrics and logs.
    const NAME: &'static str;

    /// The next event. With `accept_input` false only the playout clock runs. Cancel safe.
    fn next(&mut self, accept_input: bool) -> impl Future<Output = TransportEvent> + Send;

    /// When the caller last sent an event or sound; `None` before. Signs of life alone do not count.
    fn last_input(&self) -> Option<Instant>;

    /// Whether the caller was ever reached.
    fn was_connected(&self) -> bool {
        true
    }

    /// The queue of messages to the caller. Closed once the caller is out of reach.
    fn outbound(&self) -> mpsc::Sender<OutboundMessage>;

    /// A response begins to have audio; `format` holds where audio is part of the events.
    fn begin_audio(&mut self, response: ResponseId, format: AudioFormat) -> Result<(), TransportError>;

    /// Takes samples of a response at the model's output rate. A transport without a playout clock returns the bytes of a delta.
    fn push_audio(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, TransportError>;

    /// A response has no more audio; returns the bytes of the last delta, if the transport sends deltas.
    fn end_audio(&mut self, response: ResponseId) -> Result<Vec<u8>, TransportError>;

    /// Frames of the audio pushed last, where audio goes out as Opus packets: one message each. What writes the message encodes it.
    fn take_frames(&mut self) -> Vec<OpusFrame> {
        Vec::new()
    }

    /// Holds back what plays until [`Self::resume_audio`], for a bounded time; whether anything was playing that is held back now.
    /// Without a playout clock nothing happens.
    fn pause_audio(&mut self) -> bool {
        false
    }

    /// Goes on where a pause began, if there is one.
    fn resume_audio(&mut self) {}

    /// Drops audio that was not played yet.
    fn clear_audio(&mut self);

    /// Drops the audio of one response that was not played yet; that of others plays on.
    fn clear_response(&mut self, _: ResponseId) {}

    /// Whether it takes more audio now.
    fn has_room(&self) -> bool;

    /// How much of the response being played has reached the ear, by estimate.
    fn heard(&self) -> Option<(ResponseId, Duration)>;
}

/// An internal error in the handling of audio.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The resampler refused.
    #[error(transparent)]
    Resample(#[from] repartee_media::resample::ResampleError),
    /// The codec refused.
    #[error(transparent)]
    Opus(#[from] repartee_media::opus::OpusError),
    /// The playout clock refused.
    #[error(transparent)]
    Playout(#[from] repartee_media::playout::PushError),
}

/// What a transport reports.
#[derive(Debug)]
pub enum TransportEvent {
    /// A client event as text.
    Event(String),
    /// A message that cannot be a client event.
    Invalid(ErrorBody),
    /// A message so large that nothing can be read after it.
    TooLarge(ErrorBody),
    /// Input audio as one Opus packet.
    OpusPacket(Bytes),
    /// Input audio, decoded.
    Audio {
        /// Mono samples in -1..1.
        samples: Vec<f32>,
        /// Samples a second.
        rate: u32,
    },
    /// A report of the playout clock.
    Playout(PlayoutReport),
    /// The first audible packet of a response was sent.
    FirstAudible {
        /// The response.
        response: ResponseId,
        /// When its sound was handed to the encoder.
        due: Instant,
        /// When it was encoded.
        encoded: Instant,
        /// When the packet was sent.
        sent: Instant,
    },
    /// The playout clock found nothing to play.
    Underrun,
    /// The caller is gone.
    Closed,
}

/// 20 ms of a response that leave as one Opus packet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpusFrame {
    /// The response; each has an encoder of its own.
    pub response: ResponseId,
    /// Samples a second, one of Opus's rates.
    pub rate: u32,
    /// Mono samples in -1..1.
    pub samples: Vec<f32>,
}

/// A message to the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum OutboundMessage {
    /// A server event: its type and its text.
    Event(&'static str, String),
    /// Output audio that leaves as one Opus packet.
    OpusFrame(OpusFrame),
    /// A websocket ping.
    Ping,
    /// The end: a websocket close code and a reason for a person.
    Close(u16, &'static str),
}

/// Bytes of an event for each of which it waits for one more free place.
const BYTES_PER_PERMIT: usize = 16 << 10;

impl OutboundMessage {
    /// How many places must be free in a queue of `capacity` before the message takes one: a caller may ask for the largest events again
    /// and again and read none of them, so these wait alone.
    pub fn queue_permits(&self, capacity: usize) -> usize {
        let bytes = if let Self::Event(_, text) = self { text.len() } else { 0 };
        (1 + bytes / BYTES_PER_PERMIT).min(capacity)
    }
}
