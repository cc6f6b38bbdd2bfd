//! One call over a websocket: events as text messages both ways, sound inside of them or, as an extension, beside them as
//! Opus. Sound goes out as soon as it is made; the client plays it at its own pace and says what was heard.

mod voice;

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::Bytes;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use repartee_engine_api::ResponseId;
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::Delivery;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::call::{Heard, Line, LineError, Outgoing};
use voice::Voice;

/// The largest message that is taken, in bytes. A larger one is an error, and the connection lives on.
pub const MAX_MESSAGE: usize = 15 << 20;
/// The largest message that is read at all, in bytes. A larger one is an error and ends the connection, because skipping
/// what was not read would let a caller keep us busy for nothing.
pub const MAX_READ: usize = 2 * MAX_MESSAGE;
/// Events that may wait for the socket.
const QUEUE: usize = 32;
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// How patient a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A socket that takes nothing for so long is closed.
    pub stalled_after: Duration,
    /// A caller who is silent for so long is asked for a sign of life, and is gone if there is none for as long again.
    pub ping_every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { stalled_after: Duration::from_secs(10), ping_every: Duration::from_secs(20) }
    }
}

/// The call's end of a websocket whose messages come from `R`.
#[derive(Debug)]
pub struct WebSocketLine<R> {
    incoming: R,
    outlet: mpsc::Sender<Outgoing>,
    model_rate: u32,
    ping_every: Duration,
    /// When the caller was last heard of, or asked for a sign of life.
    sign: Instant,
    /// Whether a sign of life is awaited.
    asked: bool,
    /// Answers that are sounding.
    voices: HashMap<ResponseId, Voice>,
    /// Packets that the call has not taken yet.
    packets: Vec<Bytes>,
}

/// A line over `socket` for a model that speaks at `model_rate`, and the task that writes: spawn it. It ends when the line is
/// gone and all was written, when the socket breaks, or when the socket takes nothing for [`Limits::stalled_after`].
pub fn open(
    socket: WebSocket,
    model_rate: u32,
    limits: Limits,
) -> (WebSocketLine<impl Stream<Item = Result<Message, axum::Error>> + Unpin + Send>, impl Future<Output = ()> + Send) {
    let (sink, incoming) = socket.split();
    WebSocketLine::new(incoming, sink, model_rate, limits)
}

impl<R: Stream<Item = Result<Message, axum::Error>> + Unpin + Send> WebSocketLine<R> {
    fn new<S>(incoming: R, sink: S, model_rate: u32, limits: Limits) -> (Self, impl Future<Output = ()> + Send)
    where
        S: Sink<Message, Error = axum::Error> + Unpin + Send,
    {
        let (outlet, queue) = mpsc::channel(QUEUE);
        let line = Self {
            incoming,
            outlet,
            model_rate,
            ping_every: limits.ping_every,
            sign: Instant::now(),
            asked: false,
            voices: HashMap::new(),
            packets: Vec::new(),
        };
        (line, write(sink, queue, limits.stalled_after))
    }

    /// What a message is; `None` if it only shows that the caller is there.
    fn read(&mut self, message: Option<Result<Message, axum::Error>>) -> Option<Heard> {
        (self.sign, self.asked) = (Instant::now(), false);
        match message {
            Some(Ok(Message::Text(text))) if text.len() > MAX_MESSAGE => Some(Heard::Refused(too_large(text.len()))),
            Some(Ok(Message::Binary(packet))) if packet.len() > MAX_MESSAGE => {
                Some(Heard::Refused(too_large(packet.len())))
            }
            Some(Ok(Message::Text(text))) => Some(Heard::Event(text.as_str().to_owned())),
            Some(Ok(Message::Binary(packet))) => Some(Heard::Packet(packet)),
            // Pings are answered by the library.
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => None,
            Some(Err(error)) if is_overflow(&error) => {
                let message = format!("a message holds at most {MAX_MESSAGE} bytes, and this one is too large to skip");
                Some(Heard::Overflow(ErrorBody::invalid(ErrorKind::TooLarge, message)))
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => Some(Heard::Closed),
        }
    }
}

impl<R: Stream<Item = Result<Message, axum::Error>> + Unpin + Send> Line for WebSocketLine<R> {
    const DELIVERY: Delivery = Delivery::Unpaced;

    async fn next(&mut self, listen: bool) -> Heard {
        if !listen {
            return std::future::pending().await;
        }
        loop {
            tokio::select! {
                // What has come is read before anybody is declared gone.
                biased;
                message = self.incoming.next() => {
                    if let Some(heard) = self.read(message) {
                        return heard;
                    }
                }
                () = sleep_until(self.sign + self.ping_every) => {
                    if self.asked {
                        tracing::info!(ping_every = ?self.ping_every, "a caller gives no sign of life");
                        return Heard::Closed;
                    }
                    (self.sign, self.asked) = (Instant::now(), true);
                    // Without room the socket is stuck, which is the writer's to judge.
                    let _ = self.outlet.try_send(Outgoing::Ping);
                }
            }
        }
    }

    fn outlet(&self) -> mpsc::Sender<Outgoing> {
        self.outlet.clone()
    }

    fn begin(&mut self, response: ResponseId, format: AudioFormat) -> Result<(), LineError> {
        self.voices.insert(response, Voice::new(self.model_rate, format)?);
        Ok(())
    }

    fn speak(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, LineError> {
        match self.voices.get_mut(&response) {
            Some(voice) => voice.write(samples, &mut self.packets),
            None => Ok(Vec::new()),
        }
    }

    fn speech_end(&mut self, response: ResponseId) -> Result<Vec<u8>, LineError> {
        match self.voices.remove(&response) {
            Some(voice) => voice.end(&mut self.packets),
            None => Ok(Vec::new()),
        }
    }

    fn packets(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.packets)
    }

    fn clear(&mut self) {}

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
fn is_overflow(error: &axum::Error) -> bool {
    // The library's own type is not part of axum's interface, but its words are.
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.to_string().starts_with("Space limit exceeded"))
}

/// Writes what the queue brings.
async fn write<S>(mut sink: S, mut queue: mpsc::Receiver<Outgoing>, stalled_after: Duration)
where
    S: Sink<Message, Error = axum::Error> + Unpin + Send,
{
    while let Some(outgoing) = queue.recv().await {
        let (message, last) = match outgoing {
            Outgoing::Event(text) => (Message::Text(text.into()), false),
            Outgoing::Packet(packet) => (Message::Binary(packet), false),
            Outgoing::Ping => (Message::Ping(Bytes::new()), false),
            Outgoing::Close(code, reason) => (Message::Close(Some(CloseFrame { code, reason: reason.into() })), true),
        };
        match timeout(stalled_after, sink.send(message)).await {
            Ok(Ok(())) if !last => {}
            Ok(Ok(())) => return,
            Ok(Err(error)) => return tracing::debug!(%error, "the socket broke"),
            Err(_) => return tracing::info!(?stalled_after, "closed a caller that takes nothing"),
        }
    }
    // The caller may be gone already.
    let _ = timeout(FAREWELL, sink.close()).await;
}

#[cfg(test)]
mod tests;
