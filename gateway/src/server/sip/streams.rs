//! Connections of the signalling, over TCP and TLS: opened, accepted, bounded.
//!
//! Each has a task that reads and writes; [`Streams`] holds the other ends. What comes waits in one queue, so that a peer that
//! sends faster than the signalling reads waits itself.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use repartee_sip::{Hop, SignalTransport};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::stream_task::{Stream, StreamEnd, StreamEvent, serve};
use super::stream_tls::SipTls;
use crate::telemetry::log;

/// Most connections, and those of one address.
const MAX_STREAMS: usize = 256;
const MAX_OF_ONE: usize = 32;
/// Messages that may wait to be written on one connection. One that does not take them is closed.
const MAX_WAITING: usize = 64;
/// Messages of all connections that may wait to be read.
const MAX_UNREAD: usize = 32;
/// Time for a connection to be made, its encryption included.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A connection that no call needs is closed after this time without a message.
const IDLE: Duration = Duration::from_secs(600);
/// Pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Other end of a connection's task, which writes what waits and ends once this is dropped.
#[derive(Debug)]
struct OpenStream {
    number: u64,
    messages: mpsc::Sender<Bytes>,
    /// Time of the last message in either direction.
    used: Instant,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Streams {
    tcp: Option<TcpListener>,
    tls: Option<TcpListener>,
    keys: SipTls,
    open: HashMap<Hop, OpenStream>,
    events: mpsc::Receiver<StreamEvent>,
    /// Other end of `events`, for each task.
    sender: mpsc::Sender<StreamEvent>,
    /// Connections so far, so that news of an old one are not taken for those of its successor.
    opened: u64,
}

impl Streams {
    /// Listens on these sockets, if there are any.
    pub fn new(tcp: Option<TcpListener>, tls: Option<TcpListener>, keys: SipTls) -> Self {
        let (sender, events) = mpsc::channel(MAX_UNREAD);
        Self { tcp, tls, keys, open: HashMap::new(), events, sender, opened: 0 }
    }

    /// Waits for the next event, but not before `from`. May be dropped midway: nothing is lost.
    pub async fn next(&mut self, from: Instant) -> StreamEvent {
        tokio::time::sleep_until(from).await;
        loop {
            let Self { tcp, tls, events, .. } = self;
            let event = tokio::select! {
                (socket, address) = accept(tcp.as_ref()) => {
                    return StreamEvent::Accepted(socket, Hop::new(SignalTransport::Tcp, address));
                }
                (socket, address) = accept(tls.as_ref()) => {
                    return StreamEvent::Accepted(socket, Hop::new(SignalTransport::Tls, address));
                }
                Some(event) = events.recv() => event,
            };
            match &event {
                StreamEvent::Message(hop, _) => {
                    if let Some(stream) = self.open.get_mut(hop) {
                        stream.used = Instant::now();
                    }
                }
                // Of a connection that has a successor nobody wants to know the end.
                StreamEvent::Ended(end) => match self.open.get(&end.hop) {
                    Some(stream) if stream.number != end.number => continue,
                    _ => drop(self.open.remove(&end.hop)),
                },
                StreamEvent::Accepted(..) => {}
            }
            return event;
        }
    }

    /// Serves a connection that was accepted; false if there are too many.
    pub fn admit(&mut self, socket: TcpStream, hop: Hop) -> bool {
        if !self.has_room(hop.address.ip()) {
            return false;
        }
        let tls = self.keys.acceptor();
        self.begin(hop, async move {
            // Messages are small, and each waits for its answer.
            socket.set_nodelay(true)?;
            match hop.transport {
                SignalTransport::Tls => SipTls::accept(tls, socket).await,
                _ => Ok(Box::new(socket) as _),
            }
        });
        true
    }

    /// Sends a message on the connection to `hop`. A request opens one where there is none; false if there are too many.
    pub fn send(&mut self, hop: Hop, bytes: Bytes) -> bool {
        if let Some(stream) = self.open.get_mut(&hop) {
            stream.used = Instant::now();
            if stream.messages.try_send(bytes).is_err() {
                tracing::warn!(%hop, "a connection of the signalling takes no messages");
                self.open.remove(&hop);
            }
            return true;
        }
        // The other end has closed the connection that its request came on.
        if bytes.starts_with(b"SIP/2.0 ") {
            return true;
        }
        if !self.has_room(hop.address.ip()) {
            tracing::warn!(%hop, "there are too many connections of the signalling");
            return false;
        }
        let tls = self.keys.connector();
        self.begin(hop, async move {
            let socket = TcpStream::connect(hop.address).await?;
            socket.set_nodelay(true)?;
            match hop.transport {
                SignalTransport::Tls => SipTls::connect(tls, hop.address.ip(), socket).await,
                _ => Ok(Box::new(socket) as _),
            }
        });
        if let Some(stream) = self.open.get(&hop) {
            // A new queue has room.
            let _ = stream.messages.try_send(bytes);
        }
        true
    }

    /// Closes the connections that nobody has used for long, and that `needed` is false for.
    pub fn close_idle(&mut self, needed: impl Fn(Hop) -> bool) {
        self.open.retain(|hop, stream| stream.used.elapsed() < IDLE || needed(*hop));
    }

    fn has_room(&self, address: IpAddr) -> bool {
        let of_one = self.open.keys().filter(|hop| hop.address.ip() == address).count();
        self.open.len() < MAX_STREAMS && of_one < MAX_OF_ONE
    }

    /// Begins a connection's task.
    fn begin(&mut self, hop: Hop, connect: impl Future<Output = io::Result<Stream>> + Send + 'static) {
        self.opened += 1;
        let (number, sender) = (self.opened, self.sender.clone());
        let (messages, waiting) = mpsc::channel(MAX_WAITING);
        log::spawn(async move {
            let connected = timeout(CONNECT_WITHIN, connect).await;
            let ended = match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => serve(stream, hop, waiting, &sender).await,
                Err(error) => Err(error),
            };
            let reason = ended.err().map(|error| error.to_string());
            // Without the signalling nobody wants to know.
            let _ = sender.send(StreamEvent::Ended(StreamEnd { hop, number, reason })).await;
        });
        self.open.insert(hop, OpenStream { number, messages, used: Instant::now() });
    }
}

/// Accepts a connection; waits for ever without a listener.
async fn accept(listener: Option<&TcpListener>) -> (TcpStream, SocketAddr) {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection of the signalling cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
