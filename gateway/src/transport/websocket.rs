//! One call over a websocket: events as text messages both ways, sound inside of them. Sound goes out as soon as it is
//! made; the client plays it at its own pace and says what was heard.

use std::future::{Future, pending};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::stream::SplitStream;
use futures_util::{Sink, SinkExt as _, StreamExt as _};
use repartee_engine::session::ResponseId;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::call::{Heard, Line, LineError, Outgoing};
use crate::media::pcm;
use crate::media::resample::Resampler;
use crate::protocol::session::AudioFormat;
use crate::protocol::{ErrorBody, ErrorKind};
use crate::session::Delivery;

/// The largest message that is taken, in bytes. A larger one is an error, and the connection lives on.
pub const MAX_MESSAGE: usize = 15 << 20;
/// The largest message that is read at all, in bytes. A larger one ends the connection, because skipping what was not
/// read would let a caller keep us busy for nothing.
pub const MAX_READ: usize = 2 * MAX_MESSAGE;
/// Events that may wait for the socket.
const QUEUE: usize = 32;
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// The call's end of a websocket.
#[derive(Debug)]
pub struct WebSocketLine {
    incoming: SplitStream<WebSocket>,
    outlet: mpsc::Sender<Outgoing>,
    model_rate: u32,
    format: AudioFormat,
    /// Brings the model's sound to the format's rate; made when an answer begins to sound.
    filter: Option<Resampler>,
}

impl WebSocketLine {
    /// A line over `socket` for a model that speaks at `model_rate`, and the task that writes: spawn it. It ends when
    /// the line is gone and all was written, when the socket breaks, or when the socket takes nothing for
    /// `stalled_after`.
    pub fn new(socket: WebSocket, model_rate: u32, stalled_after: Duration) -> (Self, impl Future<Output = ()> + Send) {
        let (sink, incoming) = socket.split();
        let (outlet, queue) = mpsc::channel(QUEUE);
        let line = Self { incoming, outlet, model_rate, format: AudioFormat::default(), filter: None };
        (line, write(sink, queue, stalled_after))
    }

    fn encode(&self, samples: &[f32]) -> Vec<u8> {
        match self.format {
            AudioFormat::Pcm { .. } => pcm::encode_i16le(samples),
            AudioFormat::Pcmu => pcm::encode_mulaw(samples),
            AudioFormat::Pcma => pcm::encode_alaw(samples),
        }
    }
}

impl Line for WebSocketLine {
    const DELIVERY: Delivery = Delivery::Unpaced;

    async fn next(&mut self, listen: bool) -> Heard {
        if !listen {
            return pending().await;
        }
        loop {
            match self.incoming.next().await {
                Some(Ok(Message::Text(text))) if text.len() > MAX_MESSAGE => return too_large(text.len()),
                Some(Ok(Message::Text(text))) => return Heard::Event(text.as_str().to_owned()),
                Some(Ok(Message::Binary(_))) => {
                    let message = "events are text messages; sound goes base64-encoded into input_audio_buffer.append";
                    return Heard::Refused(ErrorBody::invalid(ErrorKind::InvalidJson, message));
                }
                // Answered by the library.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Heard::Closed,
            }
        }
    }

    fn outlet(&self) -> mpsc::Sender<Outgoing> {
        self.outlet.clone()
    }

    fn speak(&mut self, _: ResponseId, samples: &[f32]) -> Result<Vec<u8>, LineError> {
        let filter = match &mut self.filter {
            Some(filter) => filter,
            None => self.filter.insert(Resampler::new(self.model_rate, self.format.rate())?),
        };
        let samples = filter.push(samples)?;
        Ok(self.encode(&samples))
    }

    fn speech_end(&mut self, _: ResponseId) -> Result<Vec<u8>, LineError> {
        match self.filter.take() {
            Some(mut filter) => Ok(self.encode(&filter.flush()?)),
            None => Ok(Vec::new()),
        }
    }

    fn clear(&mut self) {}

    fn has_room(&self) -> bool {
        true
    }

    fn configure(&mut self, output: AudioFormat) -> Result<(), LineError> {
        if output.rate() != self.format.rate() {
            self.filter = None;
        }
        self.format = output;
        Ok(())
    }

    fn heard(&self) -> Option<(ResponseId, Duration)> {
        None
    }
}

fn too_large(size: usize) -> Heard {
    let message = format!("a message holds at most {MAX_MESSAGE} bytes, this one has {size}");
    Heard::Refused(ErrorBody::invalid(ErrorKind::TooLarge, message))
}

/// Writes what the queue brings.
async fn write<S>(mut sink: S, mut queue: mpsc::Receiver<Outgoing>, stalled_after: Duration)
where
    S: Sink<Message, Error = axum::Error> + Unpin + Send,
{
    while let Some(outgoing) = queue.recv().await {
        let (message, last) = match outgoing {
            Outgoing::Event(text) => (Message::Text(text.into()), false),
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
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    /// A socket whose peer reads so many messages and then stops.
    struct Stalling(usize);

    impl Sink<Message> for Stalling {
        type Error = axum::Error;

        fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
            if self.0 > 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn start_send(mut self: Pin<&mut Self>, _: Message) -> Result<(), axum::Error> {
            self.0 -= 1;
            Ok(())
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_takes_nothing_for_10_s_is_given_up() {
        let (outlet, queue) = mpsc::channel(QUEUE);
        let start = tokio::time::Instant::now();
        let writer = tokio::spawn(write(Stalling(3), queue, Duration::from_secs(10)));
        for _ in 0..8 {
            outlet.send(Outgoing::Event("{}".into())).await.unwrap();
        }
        outlet.closed().await;
        writer.await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_socket_is_not_given_up() {
        let (outlet, queue) = mpsc::channel(QUEUE);
        let writer = tokio::spawn(write(Stalling(9), queue, Duration::from_secs(10)));
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_secs(9)).await;
            outlet.send(Outgoing::Event("{}".into())).await.unwrap();
        }
        drop(outlet);
        writer.await.unwrap();
    }
}
