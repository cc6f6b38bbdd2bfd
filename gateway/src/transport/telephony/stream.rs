//! Socket of a telephone call: its first messages, and the task that writes to it.

use std::time::{Duration, Instant};

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use repartee_engine_api::ResponseId;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::messages::{MediaFormat, ProviderMessage, StreamMessage, StreamStart};
use crate::call::{OutboundMessage, TransportEvent};
use crate::transport::sideband::Publisher;

/// Largest message, in bytes. A second of sound has 11 KB.
pub const MAX_MESSAGE: usize = 64 << 10;
/// Time for the description of the call to arrive.
const START_WITHIN: Duration = Duration::from_secs(10);
/// Messages before the description of the call.
const MAX_BEFORE_START: usize = 16;
/// Time limit of the closing message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason why a stream does not become a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The socket was closed first.
    #[error("the provider closed the connection before `start`")]
    Closed,
    /// Nothing came in time.
    #[error("the provider did not send `start` within {} s", START_WITHIN.as_secs())]
    Late,
    /// A message is no message of the protocol.
    #[error("a message before `start` is not of the Media Streams protocol: {0}")]
    Unreadable(String),
    /// The sound has another format.
    #[error("the sound is {}, {} Hz, {} channel(s): only audio/x-mulaw at 8000 Hz with one channel is served", .0.encoding, .0.sample_rate, .0.channels)]
    Format(MediaFormat),
    /// The stream has no id.
    #[error("`start` has no streamSid")]
    NoStream,
}

/// Stream whose call has begun.
#[derive(Debug)]
pub struct Started {
    /// Socket, after the description.
    pub socket: WebSocket,
    /// Description of the call.
    pub start: StreamStart,
}

/// Reads the socket up to the description of the call. A refused stream is closed with the reason.
///
/// # Errors
///
/// See [`StartError`].
pub async fn start(mut socket: WebSocket) -> Result<Started, StartError> {
    let start = match timeout(START_WITHIN, first(&mut socket)).await {
        Ok(Ok(start)) => start,
        Ok(Err(error)) => return Err(refuse(socket, error).await),
        Err(_) => return Err(refuse(socket, StartError::Late).await),
    };
    Ok(Started { socket, start })
}

async fn first(
    socket: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
) -> Result<StreamStart, StartError> {
    for _ in 0..MAX_BEFORE_START {
        let text = match socket.next().await {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Binary(_))) => return Err(StartError::Unreadable("it is binary".to_owned())),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(StartError::Closed),
        };
        match serde_json::from_str(&text) {
            Ok(ProviderMessage::Start { start }) if start.media_format != MediaFormat::default() => {
                return Err(StartError::Format(start.media_format));
            }
            Ok(ProviderMessage::Start { start }) if start.stream_sid.is_empty() => return Err(StartError::NoStream),
            Ok(ProviderMessage::Start { start }) => return Ok(start),
            Ok(ProviderMessage::Stop) => return Err(StartError::Closed),
            Ok(_) => {}
            Err(error) => return Err(StartError::Unreadable(error.to_string())),
        }
    }
    Err(StartError::Unreadable(format!("none of the first {MAX_BEFORE_START} is `start`")))
}

async fn refuse(mut socket: WebSocket, error: StartError) -> StartError {
    // A close frame holds 123 bytes of text.
    let reason: String = error.to_string().chars().filter(char::is_ascii).take(120).collect();
    let close = Message::Close(Some(CloseFrame { code: 1003, reason: reason.into() }));
    let _ = timeout(CLOSE_TIMEOUT, socket.send(close)).await;
    error
}

/// Message to the provider, in the queue to the socket.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub message: StreamMessage,
    /// Report of a response's first audible sound.
    pub report: Option<AudibleReport>,
}

/// Report of a response's first audible sound, sent once the sound has left.
#[derive(Debug)]
pub(super) struct AudibleReport {
    pub response: ResponseId,
    /// Time when the sound was due.
    pub due: Instant,
    /// Time when it was encoded.
    pub encoded: Instant,
    pub reports: mpsc::Sender<TransportEvent>,
}

impl AudibleReport {
    fn send(self) {
        let Self { response, due, encoded, reports } = self;
        // A full queue means that the call reads nothing, so that nobody waits for the report.
        let _ = reports.try_send(TransportEvent::FirstAudible { response, due, encoded, sent: now() });
    }
}

/// Current time of the runtime's clock, which a test may stop.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Writes sound to the socket and publishes the call's events, until the call ends or the socket takes nothing for
/// `stalled_after`.
pub(super) async fn write<S>(
    mut sink: S,
    stream: String,
    mut sound: mpsc::Receiver<QueuedMessage>,
    mut events: mpsc::Receiver<OutboundMessage>,
    publisher: Publisher,
    stalled_after: Duration,
) where
    S: Sink<Message, Error = axum::Error> + Unpin + Send,
{
    loop {
        let mut report = None;
        let (message, last) = tokio::select! {
            biased;
            Some(queued) = sound.recv() => {
                report = queued.report;
                (Message::text(queued.message.text(&stream)), false)
            }
            event = events.recv() => match event {
                Some(OutboundMessage::Event(kind, text)) => {
                    publisher.publish(kind, &text);
                    continue;
                }
                Some(OutboundMessage::Close(code, reason)) => {
                    (Message::Close(Some(CloseFrame { code, reason: reason.into() })), true)
                }
                Some(OutboundMessage::OpusFrame(_) | OutboundMessage::Ping) => continue,
                None => break,
            },
        };
        match timeout(stalled_after, sink.send(message)).await {
            Ok(Ok(())) if !last => report.into_iter().for_each(AudibleReport::send),
            Ok(Ok(())) => return,
            Ok(Err(error)) => return tracing::debug!(%error, "the socket failed"),
            Err(_) => return tracing::info!(?stalled_after, "closed a stalled socket"),
        }
    }
    // The provider may already be gone.
    let _ = timeout(CLOSE_TIMEOUT, sink.close()).await;
}
