//! One call over a websocket: events as text messages both ways; audio inside of them or, as an extension, as binary Opus
//! messages. Audio goes out unpaced; the client plays it and says what was heard.

mod response_encoder;

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::Bytes;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use repartee_engine_api::ResponseId;
use repartee_media::opus::{OpusEncoder, OpusError};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::Delivery;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::call::{OpusFrame, OutboundMessage, Transport, TransportError, TransportEvent};
use response_encoder::ResponseEncoder;

/// The largest message that is taken, in bytes. A larger one is an error, and the connection lives on.
pub const MAX_MESSAGE: usize = 15 << 20;
/// The largest message that is read at all, in bytes. A larger one is an error and ends the connection: skipping it would
/// be unbounded work.
pub const MAX_READ: usize = 2 * MAX_MESSAGE;
/// The transport's name in metrics, logs and traces.
pub const NAME: &str = "websocket";
/// Events that may wait for the socket.
const OUTBOUND_QUEUE: usize = 32;
/// How long the closing handshake may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeouts of a websocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A socket that accepts nothing for so long is closed.
    pub stalled_after: Duration,
    /// A caller that sends nothing for so long is pinged, and is gone if it sends nothing for as long again.
    pub ping_every: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { stalled_after: Duration::from_secs(10), ping_every: Duration::from_secs(20) }
    }
}

/// The transport of a call over a websocket whose messages come from `R`.
#[derive(Debug)]
pub struct WebSocketTransport<R> {
    incoming: R,
    outbound: mpsc::Sender<OutboundMessage>,
    model_rate: u32,
    ping_every: Duration,
    /// When the last message came, or the last ping was sent.
    last_activity: Instant,
    /// When the last event or sound came.
    last_input: Option<Instant>,
    /// Whether a pong is awaited.
    pinged: bool,
    /// Encoders of the responses that have audio.
    encoders: HashMap<ResponseId, ResponseEncoder>,
    /// Frames for Opus that the call has not taken yet.
    frames: Vec<OpusFrame>,
}

/// The transport over `socket` for a model with the output rate `model_rate`, and the writing task: spawn it. It ends when the
/// transport is dropped and all was written, when the socket breaks, or when the socket accepts nothing for [`Timeouts::stalled_after`].
pub fn open(
    socket: WebSocket,
    model_rate: u32,
    timeouts: Timeouts,
) -> (
    WebSocketTransport<impl Stream<Item = Result<Message, axum::Error>> + Unpin + Send>,
    impl Future<Output = ()> + Send,
) {
    let (sink, incoming) = socket.split();
    WebSocketTransport::new(incoming, sink, model_rate, timeouts)
}

impl<R: Stream<Item = Result<Message, axum::Error>> + Unpin + Send> WebSocketTransport<R> {
    fn new<S>(incoming: R, sink: S, model_rate: u32, timeouts: Timeouts) -> (Self, impl Future<Output = ()> + Send)
    where
        S: Sink<Message, Error = axum::Error> + Unpin + Send,
    {
        let (outbound, queue) = mpsc::channel(OUTBOUND_QUEUE);
        let transport = Self {
            incoming,
            outbound,
            model_rate,
            ping_every: timeouts.ping_every,
            last_activity: Instant::now(),
            last_input: None,
            pinged: false,
            encoders: HashMap::new(),
            frames: Vec::new(),
        };
        (transport, write(sink, queue, timeouts.stalled_after))
    }

    /// The event of a message; `None` for pings and pongs.
    fn read(&mut self, message: Option<Result<Message, axum::Error>>) -> Option<TransportEvent> {
        (self.last_activity, self.pinged) = (Instant::now(), false);
        if matches!(message, Some(Ok(Message::Text(_) | Message::Binary(_)))) {
            self.last_input = Some(self.last_activity);
        }
        match message {
            Some(Ok(Message::Text(text))) if text.len() > MAX_MESSAGE => {
                Some(TransportEvent::Invalid(too_large(text.len())))
            }
            Some(Ok(Message::Binary(packet))) if packet.len() > MAX_MESSAGE => {
                Some(TransportEvent::Invalid(too_large(packet.len())))
            }
            Some(Ok(Message::Text(text))) => Some(TransportEvent::Event(text.as_str().to_owned())),
            Some(Ok(Message::Binary(packet))) => Some(TransportEvent::OpusPacket(packet)),
            // Pings are answered by the library.
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => None,
            Some(Err(error)) if is_overflow(&error) => {
                let message = format!("a message holds at most {MAX_MESSAGE} bytes, and this one is too large to skip");
                Some(TransportEvent::TooLarge(ErrorBody::invalid(ErrorKind::TooLarge, message)))
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => Some(TransportEvent::Closed),
        }
    }
}

impl<R: Stream<Item = Result<Message, axum::Error>> + Unpin + Send> Transport for WebSocketTransport<R> {
    const DELIVERY: Delivery = Delivery::Unpaced;
    const NAME: &'static str = NAME;

    async fn next(&mut self, accept_input: bool) -> TransportEvent {
        if !accept_input {
            return std::future::pending().await;
        }
        loop {
            tokio::select! {
                // A message that is here already counts before a timeout.
                biased;
                message = self.incoming.next() => {
                    if let Some(event) = self.read(message) {
                        return event;
                    }
                }
                () = sleep_until(self.last_activity + self.ping_every) => {
                    if self.pinged {
                        tracing::info!(ping_every = ?self.ping_every, "the caller does not answer pings");
                        return TransportEvent::Closed;
                    }
                    (self.last_activity, self.pinged) = (Instant::now(), true);
                    // Without room the socket is stalled, which the writer sees.
                    let _ = self.outbound.try_send(OutboundMessage::Ping);
                }
            }
        }
    }

    fn last_input(&self) -> Option<std::time::Instant> {
        self.last_input.map(Instant::into_std)
    }

    fn outbound(&self) -> mpsc::Sender<OutboundMessage> {
        self.outbound.clone()
    }

    fn begin_audio(&mut self, response: ResponseId, format: AudioFormat) -> Result<(), TransportError> {
        self.encoders.insert(response, ResponseEncoder::new(response, self.model_rate, format)?);
        Ok(())
    }

    fn push_audio(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, TransportError> {
        match self.encoders.get_mut(&response) {
            Some(encoder) => encoder.encode(samples, &mut self.frames),
            None => Ok(Vec::new()),
        }
    }

    fn end_audio(&mut self, response: ResponseId) -> Result<Vec<u8>, TransportError> {
        match self.encoders.remove(&response) {
            Some(encoder) => encoder.finish(&mut self.frames),
            None => Ok(Vec::new()),
        }
    }

    fn take_frames(&mut self) -> Vec<OpusFrame> {
        std::mem::take(&mut self.frames)
    }

    fn clear_audio(&mut self) {}

    fn has_room(&self) -> bool {
        true
    }

    fn heard(&self) -> Option<(ResponseId, Duration)> {
        None
    }
}

fn too_large(size: usize) -> ErrorBody {
    let message = format!("a message holds at most {MAX_MESSAGE} bytes, this one has {size}");
    ErrorBody::invalid(ErrorKind::TooLarge, message)
}

/// Whether a message was over [`MAX_READ`].
pub(super) fn is_overflow(error: &axum::Error) -> bool {
    // The library's own type is not part of axum's interface, but its words are.
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.to_string().starts_with("Space limit exceeded"))
}

/// Encodes a frame with the encoder of its response. Responses follow each other, so one is kept.
fn encode(encoder: &mut Option<(ResponseId, OpusEncoder)>, frame: &OpusFrame) -> Result<Bytes, OpusError> {
    let encoder = match encoder {
        Some((response, encoder)) if *response == frame.response => encoder,
        other => &mut other.insert((frame.response, OpusEncoder::new(frame.rate)?)).1,
    };
    Ok(encoder.encode(&frame.samples)?.payload)
}

/// Writes the messages of the queue to the socket. Opus is encoded here, so that the call's own task does not wait for it.
async fn write<S>(mut sink: S, mut queue: mpsc::Receiver<OutboundMessage>, stalled_after: Duration)
where
    S: Sink<Message, Error = axum::Error> + Unpin + Send,
{
    let mut encoder = None;
    while let Some(outgoing) = queue.recv().await {
        let (message, last) = match outgoing {
            OutboundMessage::Event(_, text) => (Message::Text(text.into()), false),
            OutboundMessage::OpusFrame(frame) => match encode(&mut encoder, &frame) {
                Ok(packet) => (Message::Binary(packet), false),
                Err(error) => return tracing::error!(%error, "an audio frame could not be encoded"),
            },
            OutboundMessage::Ping => (Message::Ping(Bytes::new()), false),
            OutboundMessage::Close(code, reason) => {
                (Message::Close(Some(CloseFrame { code, reason: reason.into() })), true)
            }
        };
        match timeout(stalled_after, sink.send(message)).await {
            Ok(Ok(())) if !last => {}
            Ok(Ok(())) => return,
            Ok(Err(error)) => return tracing::debug!(%error, "the socket failed"),
            Err(_) => return tracing::info!(?stalled_after, "closed a stalled socket"),
        }
    }
    // The caller may be gone already.
    let _ = timeout(CLOSE_TIMEOUT, sink.close()).await;
}

#[cfg(test)]
mod tests;
