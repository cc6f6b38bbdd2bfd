//! Socket of a sideband client: sends the call's events and reads the client's messages, both bounded in size and in
//! time.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::Bytes;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use repartee_protocol::error::ErrorEvent;
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent, ServerMessage};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::ping_limit::PingLimit;
use super::sideband::{CommandSender, MAX_MESSAGE, Sideband};
use super::websocket::{FrameFault, Timeouts, fault, is_overflow};

/// Largest message that is read at all, in bytes. A larger one ends the connection.
pub const MAX_READ: usize = MAX_MESSAGE + (64 << 10);
/// Capacity of the queue of this task's own messages (pings and errors).
const NOTICE_QUEUE: usize = 4;
/// Time limit of the closing message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason for the end of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelayEnd {
    /// The client closed the connection or cannot be reached.
    Gone,
    /// The call is over.
    CallOver,
    /// The client left too many events unread.
    Slow,
    /// The client sent a message over [`MAX_READ`].
    Overflow,
    /// The client sent a frame that breaks the websocket protocol, or text that is not UTF-8.
    Broken(FrameFault),
    /// The client sent too many pings.
    Pings,
}

/// Carries events between a client's socket and a call until either ends.
pub async fn run(socket: WebSocket, sideband: Sideband, timeouts: Timeouts) {
    let (sink, incoming) = socket.split();
    relay(incoming, sink, sideband, timeouts).await;
}

async fn relay<R, S>(incoming: R, mut sink: S, sideband: Sideband, timeouts: Timeouts)
where
    R: Stream<Item = Result<Message, axum::Error>> + Unpin,
    S: Sink<Message, Error = axum::Error> + Unpin,
{
    let Sideband { mut events, commands } = sideband;
    let (notices, mut noticed) = mpsc::channel(NOTICE_QUEUE);
    let to_client = async {
        loop {
            let message = tokio::select! {
                Some(notice) = noticed.recv() => notice,
                event = events.recv() => match event {
                    Some(event) => Message::text(event.text()),
                    None if commands.is_closed() => return RelayEnd::CallOver,
                    None => return RelayEnd::Slow,
                },
            };
            if !matches!(timeout(timeouts.stalled_after, sink.send(message)).await, Ok(Ok(()))) {
                return RelayEnd::Gone;
            }
        }
    };
    let end = tokio::select! {
        end = to_client => end,
        end = read(incoming, &commands, notices, timeouts.ping_every) => end,
    };
    let (code, reason) = match end {
        RelayEnd::Gone => return,
        RelayEnd::CallOver => (1000, "the call is over"),
        RelayEnd::Slow => (1013, "events were not read in time"),
        RelayEnd::Overflow => (1009, "the message is too large"),
        RelayEnd::Broken(FrameFault::Protocol) => (1002, "the frame breaks the websocket protocol"),
        RelayEnd::Broken(FrameFault::Text) => (1007, "a text message is not UTF-8"),
        RelayEnd::Pings => (1008, "too many pings"),
    };
    let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    // A client that reads nothing gets no closing message.
    let _ = timeout(CLOSE_TIMEOUT, sink.send(close)).await;
}

/// Passes the client's messages to the call, and pings a silent client.
async fn read<R>(
    mut incoming: R,
    commands: &CommandSender,
    notices: mpsc::Sender<Message>,
    ping_every: Duration,
) -> RelayEnd
where
    R: Stream<Item = Result<Message, axum::Error>> + Unpin,
{
    let (mut last_activity, mut pinged, mut errors) = (Instant::now(), false, 0_u64);
    let mut pings = PingLimit::new(last_activity);
    loop {
        let message = tokio::select! {
            // A message that has already arrived takes precedence over a timeout.
            biased;
            message = incoming.next() => message,
            () = sleep_until(last_activity + ping_every) => {
                if pinged {
                    return RelayEnd::Gone;
                }
                (last_activity, pinged) = (Instant::now(), true);
                // A full queue means that the socket is stalled: the sending half ends the relay.
                let _ = notices.try_send(Message::Ping(Bytes::new()));
                continue;
            }
        };
        match message {
            Some(Ok(Message::Text(text))) if text.len() > MAX_MESSAGE => {
                errors += 1;
                let _ = notices.try_send(too_large(text.len(), errors));
            }
            Some(Ok(Message::Text(text))) => {
                // The call is over; the sending half ends the relay.
                if !commands.send(text.as_str().to_owned()).await {
                    return std::future::pending().await;
                }
            }
            Some(Ok(Message::Binary(_))) => {}
            Some(Ok(Message::Ping(_) | Message::Pong(_))) if pings.admit(Instant::now()) => {}
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => return RelayEnd::Pings,
            Some(Err(error)) if is_overflow(&error) => return RelayEnd::Overflow,
            Some(Err(error)) => return fault(&error).map_or(RelayEnd::Gone, RelayEnd::Broken),
            Some(Ok(Message::Close(_))) | None => return RelayEnd::Gone,
        }
        // The client is not blamed for the time that the call took.
        (last_activity, pinged) = (Instant::now(), false);
    }
}

/// Returns the error event about a message of `size` bytes; only this client gets it.
fn too_large(size: usize, number: u64) -> Message {
    let message = format!("a message of a sideband connection holds at most {MAX_MESSAGE} bytes, this one has {size}");
    let event = ServerEvent::Error(ErrorEvent { error: ErrorBody::invalid(ErrorKind::TooLarge, message) });
    let message = ServerMessage { event_id: format!("event_sideband_{number}"), event };
    // Serialisation of this type cannot fail.
    Message::text(serde_json::to_string(&message).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::super::sideband::sidebands;
    use super::*;

    /// A client's channels to and from a relay, the relay to run, and the call's side.
    fn client() -> (mpsc::Sender<Message>, mpsc::Receiver<Message>, impl Future<Output = ()> + Send, SidebandEnds) {
        let (to_server, incoming) = mpsc::channel::<Message>(8);
        let (sink, from_server) = mpsc::channel::<Message>(8);
        let (sidebands, publisher, commands) = sidebands();
        let sideband = sidebands.attach().unwrap();
        let incoming = futures_util::stream::unfold(incoming, |mut incoming| async move {
            incoming.recv().await.map(|message| (Ok(message), incoming))
        });
        let sink = futures_util::sink::unfold(sink, |sink: mpsc::Sender<Message>, message| async move {
            sink.send(message).await.map_err(axum::Error::new)?;
            Ok(sink)
        });
        let running = async move {
            relay(Box::pin(incoming), Box::pin(sink), sideband, Timeouts::default()).await;
        };
        (to_server, from_server, running, SidebandEnds { _publisher: publisher, commands })
    }

    struct SidebandEnds {
        _publisher: super::super::sideband::Publisher,
        commands: super::super::sideband::CommandReceiver,
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_sideband_is_pinged_then_closed() {
        let (to_server, mut from_server, running, _kept) = client();
        let start = Instant::now();
        let running = tokio::spawn(running);
        assert_eq!(from_server.recv().await, Some(Message::Ping(Bytes::new())));
        assert_eq!(start.elapsed(), Duration::from_secs(20));
        advance(Duration::from_secs(15)).await;
        to_server.send(Message::Pong(Bytes::new())).await.unwrap();
        assert_eq!(from_server.recv().await, Some(Message::Ping(Bytes::new())));
        assert_eq!(start.elapsed(), Duration::from_secs(55));
        running.await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(75));
    }

    #[tokio::test]
    async fn a_large_message_is_refused_alone() {
        let (to_server, mut from_server, running, mut kept) = client();
        let running = tokio::spawn(running);
        to_server.send(Message::text("x".repeat(MAX_MESSAGE + 1))).await.unwrap();
        to_server.send(Message::text("small")).await.unwrap();
        let refused = from_server.recv().await.unwrap();
        assert!(refused.to_text().unwrap().contains("message_too_large"), "{refused:?}");
        assert_eq!(kept.commands.next().await, "small");
        drop(to_server);
        running.await.unwrap();
    }
}
