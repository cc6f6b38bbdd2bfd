//! Bus over core NATS: messages go to `repartee.CELL.KIND`, and come from all nodes of the cell.
//!
//! NATS keeps nothing, and nothing waits for it: while there is no connection messages are lost, and the client dials the
//! servers again until one answers. The table of nodes stays as it was meanwhile.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use repartee_cluster::{MAX_BEAT, MessageKind};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::bus::Bus;

/// Messages that may wait on the way to the server; more are lost.
const MAX_SENDING: usize = 64;
/// Messages that may wait on the way from the server; more are lost.
const MAX_RECEIVED: usize = 512;
/// Interval of pings: a server that leaves two of them unanswered is left for another one.
const PING_EVERY: Duration = Duration::from_secs(1);
/// Timeout of a connection to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest pause between two attempts to connect.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Pause after the client has given up, such as after a wrong password.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Time for a message to enter the client's queue.
const QUEUE_TIMEOUT: Duration = Duration::from_millis(100);

/// Servers of NATS, and the rights to use them.
#[derive(Clone)]
pub struct NatsServers {
    /// URLs: `nats://host:4222`, or `tls://host:4222`.
    pub urls: Vec<String>,
    /// User and password.
    pub login: Option<(String, String)>,
    /// PEM file of certificates to trust beside the system's.
    pub certificates: Option<PathBuf>,
}

impl std::fmt::Debug for NatsServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsServers").field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// Member of a bus over NATS. It connects when it is first used, on the runtime that uses it.
#[derive(Debug)]
pub struct NatsBus {
    link: Option<Link>,
    settings: Settings,
}

#[derive(Debug, Clone)]
struct Settings {
    servers: NatsServers,
    /// Name of this node, which the server's monitor shows.
    name: String,
    cell: String,
}

/// Channels of the task that holds the connection.
#[derive(Debug)]
struct Link {
    sending: mpsc::Sender<QueuedMessage>,
    received: mpsc::Receiver<Bytes>,
    task: JoinHandle<()>,
}

/// Message to the server.
#[derive(Debug)]
struct QueuedMessage {
    kind: MessageKind,
    message: Vec<u8>,
    /// Told once the server has the message.
    sent: Option<oneshot::Sender<()>>,
}

impl NatsBus {
    /// Member `name` of the nodes in `cell`.
    pub fn new(servers: NatsServers, name: &str, cell: &str) -> Self {
        Self { link: None, settings: Settings { servers, name: name.to_owned(), cell: cell.to_owned() } }
    }

    fn link(&mut self) -> &mut Link {
        let settings = &self.settings;
        self.link.get_or_insert_with(|| {
            let (sending, outgoing) = mpsc::channel(MAX_SENDING);
            let (incoming, received) = mpsc::channel(MAX_RECEIVED);
            Link { sending, received, task: tokio::spawn(keep_connected(settings.clone(), outgoing, incoming)) }
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[async_trait]
impl Bus for NatsBus {
    async fn publish(&mut self, kind: MessageKind, message: Vec<u8>) {
        let is_last = kind == MessageKind::Bye;
        let (sent, done) = oneshot::channel();
        let outgoing = QueuedMessage { kind, message, sent: is_last.then_some(sent) };
        if self.link().sending.try_send(outgoing).is_err() {
            tracing::debug!(kind = kind.label(), "an own message was lost before NATS");
        } else if is_last {
            // The process may end after it. An error means that there is no server.
            let _ = done.await;
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        self.link().received.recv().await
    }
}

/// Connects, and again after the client has given up.
async fn keep_connected(
    settings: Settings,
    mut outgoing: mpsc::Receiver<QueuedMessage>,
    incoming: mpsc::Sender<Bytes>,
) {
    loop {
        match connect(&settings).await {
            Ok((client, messages)) => {
                if exchange(&settings, &client, messages, &mut outgoing, &incoming).await.is_none() {
                    return;
                }
                tracing::error!("the connection to NATS has ended: cluster.nats, its user and its password are right?");
            }
            Err(error) => tracing::error!(%error, "NATS cannot be used"),
        }
        sleep(REFUSED_PAUSE).await;
    }
}

/// Begins to connect, and subscribes to the messages of the cell.
async fn connect(settings: &Settings) -> Result<(Client, Subscriber), async_nats::Error> {
    let Settings { servers, name, cell } = settings;
    let mut options = ConnectOptions::new()
        .name(name)
        .retry_on_initial_connect()
        .connection_timeout(CONNECT_TIMEOUT)
        .ping_interval(PING_EVERY)
        .reconnect_delay_callback(pause)
        .client_capacity(MAX_SENDING)
        .subscription_capacity(MAX_RECEIVED)
        .event_callback(|event| async move { tell(&event) });
    if let Some((user, password)) = &servers.login {
        options = options.user_and_password(user.clone(), password.clone());
    }
    if let Some(path) = &servers.certificates {
        options = options.add_root_certificates(path.clone());
    }
    let client = options.connect(&servers.urls).await?;
    let messages = client.subscribe(format!("repartee.{cell}.*")).await?;
    Ok((client, messages))
}

/// Pause before an attempt to connect; none before the first one, which goes to another server.
fn pause(attempts: usize) -> Duration {
    let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
    Duration::from_millis(50).saturating_mul(attempts.saturating_sub(1)).min(MAX_PAUSE)
}

fn tell(event: &Event) {
    match event {
        Event::Connected => tracing::info!("connected to NATS"),
        Event::Disconnected => tracing::warn!("NATS is lost: calls go on, with the nodes that are known"),
        Event::SlowConsumer(_) => tracing::warn!("messages of nodes were lost: they came faster than they were read"),
        Event::ServerError(error) => tracing::error!(%error, "NATS refuses this node"),
        // Attempts to connect, each second.
        event => tracing::debug!(%event, "NATS"),
    }
}

/// Moves messages both ways. Returns `None` once the bus was dropped, or `Some` after the client has given up.
async fn exchange(
    settings: &Settings,
    client: &Client,
    mut messages: Subscriber,
    outgoing: &mut mpsc::Receiver<QueuedMessage>,
    incoming: &mpsc::Sender<Bytes>,
) -> Option<()> {
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(message) = message else { return Some(()) };
                // A message that is too large is counted and refused by its length alone.
                let payload = &message.payload[..message.payload.len().min(MAX_BEAT + 1)];
                if incoming.try_send(Bytes::copy_from_slice(payload)).is_err() {
                    tracing::debug!("a message of a node was lost");
                }
            }
            outgoing = outgoing.recv() => send(settings, client, outgoing?).await,
        }
    }
}

async fn send(settings: &Settings, client: &Client, outgoing: QueuedMessage) {
    let QueuedMessage { kind, message, sent } = outgoing;
    // The next beat tells more than one that waits for a server.
    if client.connection_state() != State::Connected && kind == MessageKind::Beat {
        return;
    }
    let subject = format!("repartee.{}.{}", settings.cell, kind.label());
    let queued = timeout(QUEUE_TIMEOUT, client.publish(subject, message.into())).await;
    if !matches!(queued, Ok(Ok(()))) {
        tracing::debug!(kind = kind.label(), "an own message was lost before NATS");
    } else if let Some(sent) = sent {
        // Without a server the one who waits has a timeout.
        let _ = client.flush().await;
        let _ = sent.send(());
    }
}
