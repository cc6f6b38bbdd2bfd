//! Transport of one call, as the call's task sees it: its inputs and its reports.

use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_engine_api::ResponseId;
use repartee_protocol::ErrorBody;
use repartee_protocol::session::AudioFormat;
use repartee_realtime::{Delivery, PlayoutReport};
use tokio::sync::mpsc;

use super::{CallEnd, PlayedFrames};

/// Transport of one call: moves bytes and plays audio, knows nothing of turns.
pub trait Transport: Send {
    /// Pacing of the audio, which decides who knows the heard position.
    const DELIVERY: Delivery;
    /// Name of the transport in metrics and logs.
    const NAME: &'static str;

    /// Returns the next event. With `accept_input` false only the playout clock runs. Cancel safe.
    fn next(&mut self, accept_input: bool) -> impl Future<Output = TransportEvent> + Send;

    /// Time of the caller's last event or sound; `None` before. Pings and pongs do not count.
    fn last_input(&self) -> Option<Instant>;

    /// True once the caller was connected.
    fn was_connected(&self) -> bool {
        true
    }

    /// Queue of messages to the caller. Closed once the caller is out of reach.
    fn outbound(&self) -> mpsc::Sender<OutboundMessage>;

    /// Begins the audio of a response. `format` applies if audio is part of the events.
    fn begin_audio(&mut self, response: ResponseId, format: AudioFormat) -> Result<(), TransportError>;

    /// Takes samples of a response at the model's output rate. Without a playout clock, returns the bytes of a delta.
    fn push_audio(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, TransportError>;

    /// Ends the audio of a response; returns the bytes of the last delta, if the transport sends deltas.
    fn end_audio(&mut self, response: ResponseId) -> Result<Vec<u8>, TransportError>;

    /// Takes the frames of the audio pushed last, if audio is sent as Opus packets: one message each. The writer
    /// encodes them.
    fn take_frames(&mut self) -> Vec<OpusFrame> {
        Vec::new()
    }

    /// Pauses the playback until [`Self::resume_audio`], for a bounded time; true if anything was playing. Does nothing
    /// without a playout clock.
    fn pause_audio(&mut self) -> bool {
        false
    }

    /// Resumes a paused playback.
    fn resume_audio(&mut self) {}

    /// Frames that were played since the last call; `None` without a playout clock, or if their echo is not to be cancelled.
    fn played_frames(&mut self) -> Option<&mut PlayedFrames> {
        None
    }

    /// Drops audio that was not played yet.
    fn clear_audio(&mut self);

    /// Drops unplayed audio of one response; other responses play on.
    fn clear_response(&mut self, _: ResponseId) {}

    /// True if the transport takes more audio now.
    fn has_capacity(&self) -> bool;

    /// The response being played, and the estimated duration of it that the caller has heard.
    fn heard(&self) -> Option<(ResponseId, Duration)>;
}

/// Internal error in the handling of audio.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The resampler failed.
    #[error(transparent)]
    Resample(#[from] repartee_media::resample::ResampleError),
    /// The codec failed.
    #[error(transparent)]
    Opus(#[from] repartee_media::opus::OpusError),
    /// The playout clock failed.
    #[error(transparent)]
    Playout(#[from] repartee_media::playout::PushError),
}

/// Event of a transport.
#[derive(Debug)]
pub enum TransportEvent {
    /// The caller pressed a key of a telephone: `0` to `9`, `*`, `#`, `A` to `D`.
    Key {
        /// The key.
        key: char,
    },
    /// A client event as text.
    Event(String),
    /// A message that cannot be a client event.
    Invalid(ErrorBody),
    /// A message after which nothing can be read, and the end of the call that it causes.
    Unreadable(ErrorBody, CallEnd),
    /// Input audio as one Opus packet.
    OpusPacket(Bytes),
    /// Input audio, decoded.
    Audio {
        /// Mono samples in -1..1.
        samples: Vec<f32>,
        /// Sample rate, in Hz.
        rate: u32,
    },
    /// A report of the playout clock.
    Playout(PlayoutReport),
    /// The first audible packet of a response was sent.
    FirstAudible {
        /// Response of the packet.
        response: ResponseId,
        /// Time when its sound was handed to the encoder.
        due: Instant,
        /// Time when it was encoded.
        encoded: Instant,
        /// Time when the packet was sent.
        sent: Instant,
    },
    /// The playout clock found nothing to play.
    Underrun,
    /// The connection carries nothing more, for this reason.
    Broken(CallEnd),
    /// The caller is gone.
    Closed,
}

/// 20 ms of a response, sent as one Opus packet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpusFrame {
    /// Response of the frame; each response has its own encoder.
    pub response: ResponseId,
    /// Sample rate, in Hz; one that Opus supports.
    pub rate: u32,
    /// Mono samples in -1..1.
    pub samples: Vec<f32>,
}

/// Message to the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum OutboundMessage {
    /// A server event: its type and its text.
    Event(&'static str, String),
    /// Output audio that is sent as one Opus packet.
    OpusFrame(OpusFrame),
    /// A websocket ping.
    Ping,
    /// The end: a websocket close code and a reason for a person.
    Close(u16, &'static str),
}

/// Bytes of an event for each further queue permit.
const BYTES_PER_PERMIT: usize = 16 << 10;

impl OutboundMessage {
    /// Number of queue permits that the message takes, at most `capacity`. A large event takes many: otherwise a caller
    /// who requests the largest events and reads none of them could fill the memory.
    pub fn queue_permits(&self, capacity: usize) -> usize {
        let bytes = if let Self::Event(_, text) = self { text.len() } else { 0 };
        (1 + bytes / BYTES_PER_PERMIT).min(capacity)
    }
}
