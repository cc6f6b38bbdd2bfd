//! Transport of a call over a websocket: events as text messages both ways; audio inside events or, as an extension, as
//! binary Opus messages. Audio is sent unpaced: the client plays it and reports the played position.

mod response_encoder;

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use repartee_engine_api::ResponseId;
use repartee_media::opus::{OpusEncoder, OpusError};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::Delivery;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::message_bytes::{FREE, MAX_MESSAGE, MessageBytes};
use super::ping_limit::PingLimit;
use crate::call::{CallEnd, OpusFrame, OutboundMessage, Transport, TransportError, TransportEvent};
use response_encoder::ResponseEncoder;

/// Name of the transport in metrics, logs and traces.
pub const NAME: &str = "websocket";
/// Time between pings to a caller whose input waits for earlier input.
const PROBE: Duration = Duration::from_secs(2);
/// Events that may wait for the socket.
const OUTBOUND_QUEUE: usize = 32;
/// Time limit of the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeouts of a websocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A socket that accepts nothing for this long is closed.
    pub stalled_after: Duration,
    /// A caller that sends nothing for this long is pinged; after as long again without a message the call ends.
    pub ping_every: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { stalled_after: Duration::from_secs(10), ping_every: Duration::from_secs(20) }
    }
}

/// Transport of a call over a websocket whose messages come from `R`.
#[derive(Debug)]
pub struct WebSocketTransport<R> {
    incoming: R,
    /// Memory of the last message.
    bytes: Arc<MessageBytes>,
    /// True if a message was given to the call, which has not asked for the next one yet.
    gave_message: bool,
    /// Payload of a large message. The library keeps its buffer for later messages, which may be as long as the connection
    /// lives, unless somebody else holds a part of it when it asks for more bytes: then it takes a new one.
    large: Option<Bytes>,
    outbound: mpsc::Sender<OutboundMessage>,
    model_rate: u32,
    ping_every: Duration,
    /// Time of the last message or ping.
    last_activity: Instant,
    /// Time of the last event or sound of the caller.
    last_input: Option<Instant>,
    /// Time of the last ping to a caller whose input waits, or of the last input.
    probed: Instant,
    /// True while a pong is awaited.
    pinged: bool,
    /// Pings of the caller.
    pings: PingLimit,
    /// Encoders of the responses that have audio.
    encoders: HashMap<ResponseId, ResponseEncoder>,
    /// Frames for Opus that the call has not taken yet.
    frames: Vec<OpusFrame>,
}

/// Returns the transport over `socket` for a model with the output rate `model_rate`, and the writing task: spawn it.
/// The task ends once the transport is dropped and all messages are written, or if the socket breaks or accepts nothing
/// for [`Timeouts::stalled_after`]. The memory of messages is counted by `bytes`.
pub fn open(
    socket: WebSocket,
    bytes: Arc<MessageBytes>,
    model_rate: u32,
    timeouts: Timeouts,
) -> (
    WebSocketTransport<impl Stream<Item = Result<Message, axum::Error>> + Unpin + Send>,
    impl Future<Output = ()> + Send,
) {
    let (sink, incoming) = socket.split();
    WebSocketTransport::new((incoming, sink), bytes, model_rate, timeouts)
}

impl<R: Stream<Item = Result<Message, axum::Error>> + Unpin + Send> WebSocketTransport<R> {
    fn new<S>(
        (incoming, sink): (R, S),
        bytes: Arc<MessageBytes>,
        model_rate: u32,
        timeouts: Timeouts,
    ) -> (Self, impl Future<Output = ()> + Send)
    where
        S: Sink<Message, Error = axum::Error> + Unpin + Send,
    {
        let (outbound, queue) = mpsc::channel(OUTBOUND_QUEUE);
        let transport = Self {
            incoming,
            bytes,
            gave_message: false,
            large: None,
            outbound,
            model_rate,
            ping_every: timeouts.ping_every,
            last_activity: Instant::now(),
            last_input: None,
            probed: Instant::now(),
            pinged: false,
            pings: PingLimit::new(Instant::now()),
            encoders: HashMap::new(),
            frames: Vec::new(),
        };
        (transport, write(sink, queue, timeouts.stalled_after))
    }

    /// Converts a message to an event; `None` for pings and pongs.
    fn read(&mut self, message: Option<Result<Message, axum::Error>>) -> Option<TransportEvent> {
        (self.last_activity, self.pinged) = (Instant::now(), false);
        self.probed = self.last_activity;
        if matches!(message, Some(Ok(Message::Text(_) | Message::Binary(_)))) {
            self.last_input = Some(self.last_activity);
            self.gave_message = true;
            self.bytes.complete();
        }
        match &message {
            Some(Ok(Message::Text(text))) if text.len() > FREE => {
                self.large = Some(Message::Text(text.clone()).into_data());
            }
            Some(Ok(Message::Binary(packet))) if packet.len() > FREE => self.large = Some(packet.clone()),
            _ => {}
        }
        if let Some(Ok(Message::Ping(payload) | Message::Pong(payload))) = &message {
            self.bytes.forget_control_frame(payload.len());
        }
        if let (Some(Err(_)), Some(refusal)) = (&message, self.bytes.refusal()) {
            return Some(TransportEvent::Unreadable(refusal.body(), CallEnd::NoRoom));
        }
        match message {
            Some(Ok(Message::Text(text))) if text.len() > MAX_MESSAGE => {
                Some(TransportEvent::Invalid(too_large(text.len())))
            }
            Some(Ok(Message::Binary(packet))) if packet.len() > MAX_MESSAGE => {
                Some(TransportEvent::Invalid(too_large(packet.len())))
            }
            Some(Ok(Message::Text(text))) => Some(TransportEvent::Event(into_string(text))),
            Some(Ok(Message::Binary(packet))) => Some(TransportEvent::OpusPacket(packet)),
            // The library answers pings.
            Some(Ok(Message::Ping(_) | Message::Pong(_))) if self.pings.admit(self.last_activity) => None,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {
                tracing::info!("the caller sent too many pings");
                Some(TransportEvent::Closed)
            }
            Some(Err(error)) if is_overflow(&error) => {
                let message = format!("a message holds at most {MAX_MESSAGE} bytes, and this one is too large to skip");
                Some(TransportEvent::Unreadable(ErrorBody::invalid(ErrorKind::TooLarge, message), CallEnd::Overflow))
            }
            Some(Err(error)) => Some(broken(&error)),
            Some(Ok(Message::Close(_))) | None => Some(TransportEvent::Closed),
        }
    }
}

impl<R: Stream<Item = Result<Message, axum::Error>> + Unpin + Send> Transport for WebSocketTransport<R> {
    const DELIVERY: Delivery = Delivery::Unpaced;
    const NAME: &'static str = NAME;

    async fn next(&mut self, accept_input: bool) -> TransportEvent {
        if !accept_input {
            // Nothing is read, but a caller who is gone is noticed: the second ping to it fails.
            sleep_until(self.probed + PROBE).await;
            self.probed = Instant::now();
            let _ = self.outbound.try_send(OutboundMessage::Ping);
            return std::future::pending().await;
        }
        if std::mem::take(&mut self.gave_message) && self.large.is_none() {
            self.bytes.release();
        }
        loop {
            tokio::select! {
                // A message that has already arrived takes precedence over a timeout.
                biased;
                message = next_message(&mut self.incoming, &mut self.large, &self.bytes) => {
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
                    // A full queue means that the socket is stalled: the writer closes it.
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

    fn has_capacity(&self) -> bool {
        true
    }

    fn heard(&self) -> Option<(ResponseId, Duration)> {
        None
    }
}

/// Returns the next message. Once it has to be waited for, the `large` one before it is freed.
async fn next_message<R: Stream + Unpin>(
    incoming: &mut R,
    large: &mut Option<Bytes>,
    bytes: &MessageBytes,
) -> Option<R::Item> {
    poll_fn(|context| {
        let message = incoming.poll_next_unpin(context);
        if message.is_pending() && large.take().is_some() {
            bytes.release();
        }
        message
    })
    .await
}

/// Takes the text out of a message, without a copy where nothing else holds its memory.
fn into_string(text: Utf8Bytes) -> String {
    let bytes = Message::Text(text).into_data();
    // The text of a message is UTF-8.
    String::from_utf8(bytes.into()).unwrap_or_default()
}

fn too_large(size: usize) -> ErrorBody {
    let message = format!("a message holds at most {MAX_MESSAGE} bytes, this one has {size}");
    ErrorBody::invalid(ErrorKind::TooLarge, message)
}

/// True if a message was larger than [`MAX_READ`](super::message_bytes::MAX_READ).
pub(super) fn is_overflow(error: &axum::Error) -> bool {
    // axum does not export the library's error type, so the text is compared.
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.to_string().starts_with("Space limit exceeded"))
}

/// Fault of what a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameFault {
    /// A frame that breaks the websocket protocol.
    Protocol,
    /// A text message that is not UTF-8.
    Text,
}

/// Returns the client's fault in a broken connection; `None` if the connection just ended.
pub(super) fn fault(error: &axum::Error) -> Option<FrameFault> {
    let text = std::error::Error::source(error)?.to_string();
    // Closed without the closing handshake: nobody is left to tell.
    if text.contains("without closing handshake") {
        return None;
    }
    match text.as_str() {
        text if text.starts_with("WebSocket protocol error") => Some(FrameFault::Protocol),
        text if text.starts_with("UTF-8 encoding error") => Some(FrameFault::Text),
        _ => None,
    }
}

fn broken(error: &axum::Error) -> TransportEvent {
    match fault(error) {
        Some(FrameFault::Protocol) => TransportEvent::Broken(CallEnd::BadFrame),
        Some(FrameFault::Text) => TransportEvent::Broken(CallEnd::BadText),
        None => TransportEvent::Closed,
    }
}

/// Encodes a frame with the encoder of its response. Responses follow each other, so one encoder is enough.
fn encode(encoder: &mut Option<(ResponseId, OpusEncoder)>, frame: &OpusFrame) -> Result<Bytes, OpusError> {
    let encoder = match encoder {
        Some((response, encoder)) if *response == frame.response => encoder,
        other => &mut other.insert((frame.response, OpusEncoder::new(frame.rate)?)).1,
    };
    Ok(encoder.encode(&frame.samples)?.payload)
}

/// Writes queued messages to the socket. Encodes Opus here, so that the call's own task does not wait for it.
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
    // The caller may already be gone.
    let _ = timeout(CLOSE_TIMEOUT, sink.close()).await;
}

#[cfg(test)]
mod tests;
