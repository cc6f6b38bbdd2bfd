//! Task of one connection of the signalling.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use repartee_chat_client::ByteStream;
use repartee_sip::{Frame, Framing, Hop};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

/// Time from a message's first byte to its last one.
const MESSAGE_WITHIN: Duration = Duration::from_secs(10);
/// Time for a message to be written.
const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const PIECE: usize = 4_096;
/// Bytes in a second that are read of one connection: some hundred messages. What is more waits at the other end.
const PACE: u32 = 256 << 10;
/// Time of this pace that one may be ahead: the largest message comes at once.
const AHEAD: Duration = Duration::from_millis(250);
/// Bytes that a probe counts for.
const PROBE_COST: usize = 256;
/// Answer to a probe.
const PONG: &[u8] = b"\r\n";

/// Connection, encrypted or not.
pub(super) type Stream = Box<dyn ByteStream>;

/// End of a connection.
#[derive(Debug)]
pub(super) struct StreamEnd {
    /// Address of its other end.
    pub hop: Hop,
    /// Number of the connection.
    pub number: u64,
    /// Reason; `None` if one of both sides closed it in order.
    pub reason: Option<String>,
}

/// Event of the connections.
#[derive(Debug)]
pub(super) enum StreamEvent {
    /// Somebody has connected: dropping it closes it.
    Accepted(TcpStream, Hop),
    /// Bytes of a message.
    Message(Hop, Bytes),
    /// A connection has ended, or could not be made.
    Ended(StreamEnd),
}

/// Serves a connection until one of both sides closes it.
pub(super) async fn serve(
    stream: Stream,
    hop: Hop,
    messages: mpsc::Receiver<Bytes>,
    events: &mpsc::Sender<StreamEvent>,
) -> io::Result<()> {
    let (reader, writer) = split(stream);
    let pings = Notify::new();
    tokio::select! {
        ended = read(reader, hop, events, &pings) => ended,
        ended = write(writer, messages, &pings) => ended,
    }
}

/// Reads messages until the end of the connection.
async fn read(
    mut reader: ReadHalf<Stream>,
    hop: Hop,
    events: &mpsc::Sender<StreamEvent>,
    pings: &Notify,
) -> io::Result<()> {
    let (mut framing, mut piece) = (Framing::default(), [0; PIECE]);
    // Time when a message has to be complete that has begun.
    let mut complete_at = None;
    // Time that everything read so far takes at the pace.
    let mut paced = Instant::now();
    loop {
        tokio::time::sleep_until(paced - AHEAD).await;
        let reading = reader.read(&mut piece);
        let length = match complete_at {
            Some(at) => timeout_at(at, reading).await.map_err(|_| slow("a message takes too long"))??,
            None => reading.await?,
        };
        if length == 0 {
            return Ok(());
        }
        framing.push(piece.get(..length).unwrap_or_default());
        let mut cost = length;
        loop {
            match framing.take().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                Some(Frame::Message(bytes)) => {
                    complete_at = None;
                    if events.send(StreamEvent::Message(hop, bytes)).await.is_err() {
                        return Ok(());
                    }
                }
                // Probes that come faster than we write are answered together.
                Some(Frame::Ping) => {
                    cost += PROBE_COST;
                    pings.notify_one();
                }
                None => break,
            }
        }
        paced = paced.max(Instant::now()) + Duration::from_secs(1) * cost as u32 / PACE;
        complete_at = match framing.is_within_message() {
            true => complete_at.or_else(|| Some(Instant::now() + MESSAGE_WITHIN)),
            false => None,
        };
    }
}

/// Writes messages and answers to probes, until there will be no more messages.
async fn write(mut writer: WriteHalf<Stream>, mut messages: mpsc::Receiver<Bytes>, pings: &Notify) -> io::Result<()> {
    loop {
        let message = tokio::select! {
            message = messages.recv() => message,
            () = pings.notified() => Some(Bytes::from_static(PONG)),
        };
        let Some(bytes) = message else { return writer.shutdown().await };
        let writing = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        timeout(WRITE_WITHIN, writing).await.map_err(|_| slow("the other end reads too slowly"))??;
    }
}

fn slow(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

#[cfg(test)]
mod tests {
    use repartee_sip::SignalTransport;
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;

    use super::*;

    /// A connection that is served, its other end, and the ends of its queues.
    type Served = (JoinHandle<io::Result<()>>, DuplexStream, mpsc::Sender<Bytes>, mpsc::Receiver<StreamEvent>);

    fn served() -> Served {
        let (here, there) = tokio::io::duplex(64);
        let (messages, waiting) = mpsc::channel(8);
        let (events, news) = mpsc::channel(8);
        let hop = Hop::new(SignalTransport::Tcp, ([192, 0, 2, 7], 61_000).into());
        let task = tokio::spawn(async move { serve(Box::new(here), hop, waiting, &events).await });
        (task, there, messages, news)
    }

    #[tokio::test(start_paused = true)]
    async fn slow_senders_lose_their_connection() {
        let (task, mut there, _messages, _news) = served();
        // Nothing at all is no slow message.
        tokio::time::sleep(20 * MESSAGE_WITHIN).await;
        let begun = Instant::now();
        for byte in b"OPTIONS sip:a SIP/2.0\r\n" {
            if there.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(MESSAGE_WITHIN / 10).await;
        }
        let ended = task.await.unwrap().unwrap_err();
        assert_eq!(ended.to_string(), "a message takes too long");
        assert!(begun.elapsed() < 3 * MESSAGE_WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn floods_are_read_at_a_bounded_pace() {
        let (_task, there, _messages, mut news) = served();
        let (mut answers, mut flood) = split(there);
        tokio::spawn(async move { tokio::io::copy(&mut answers, &mut tokio::io::sink()).await });
        let begun = Instant::now();
        flood.write_all(&b"\r\n\r\n".repeat(5_000)).await.unwrap();
        let probes = begun.elapsed();
        assert!((3..6).contains(&probes.as_secs()), "{probes:?}");
        // Behind the flood a message as large as any comes.
        let message = format!("BYE sip:a SIP/2.0\r\nX: {}\r\nl: 0\r\n\r\n", "y".repeat(60_000));
        flood.write_all(message.as_bytes()).await.unwrap();
        assert!(matches!(news.recv().await, Some(StreamEvent::Message(_, bytes)) if bytes == message));
        assert!(begun.elapsed() < probes + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_readers_lose_their_connection() {
        let (task, there, messages, _news) = served();
        messages.send(Bytes::from(vec![0; 100])).await.unwrap();
        let ended = task.await.unwrap().unwrap_err();
        assert_eq!(ended.to_string(), "the other end reads too slowly");
        drop(there);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_written_before_the_end() {
        let (task, mut there, messages, mut news) = served();
        there.write_all(b"\r\n\r\nBYE sip:a SIP/2.0\r\nl: 0\r\n\r\n").await.unwrap();
        assert!(matches!(news.recv().await, Some(StreamEvent::Message(_, bytes)) if bytes.starts_with(b"BYE ")));
        messages.send(Bytes::from_static(b"SIP/2.0 200 OK\r\n\r\n")).await.unwrap();
        drop(messages);
        let mut read = String::new();
        there.read_to_string(&mut read).await.unwrap();
        assert!(read.contains("SIP/2.0 200 OK\r\n\r\n"), "{read}");
        task.await.unwrap().unwrap();
    }
}
