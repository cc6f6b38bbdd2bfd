//! Sideband connections: further clients of one call, which receive its events and may send some.
//!
//! A server that controls a browser's call attaches to it by the call's id. A client that attaches late first receives
//! the newest `session.created` and `session.updated`. If a client leaves, the call goes on; the call's end ends all
//! clients.
//!
//! Bounds: at most [`MAX_ATTACHED`] clients a call. A client that leaves [`EVENT_QUEUE`] events or [`MAX_UNREAD`] bytes of
//! events unread is detached. Client events wait while the call accepts no input, up to [`MAX_WAITING`] bytes of all
//! clients together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Clients of one call at once.
pub const MAX_ATTACHED: usize = 4;
/// Events that may wait for one client.
pub const EVENT_QUEUE: usize = 256;
/// Bytes of events that may wait for one client. A larger event waits alone.
pub const MAX_UNREAD: usize = 4 << 20;
/// Client events that may wait for the call.
const COMMAND_QUEUE: usize = 16;
/// Largest message of a client, in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Bytes of client events that may wait for the call.
pub const MAX_WAITING: usize = 2 * MAX_MESSAGE;

/// Reason for a refused attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AttachError {
    /// The call already has [`MAX_ATTACHED`] clients.
    #[error("the call has {MAX_ATTACHED} sideband connections already")]
    Full,
    /// The call is over.
    #[error("the call is over")]
    Ended,
}

/// Handle that attaches clients to a call. Clones are for the same call.
#[derive(Debug, Clone)]
pub struct Sidebands {
    commands: mpsc::WeakSender<QueuedCommand>,
    /// Permits for bytes of client events that wait for the call.
    byte_permits: Arc<Semaphore>,
    state: Arc<Mutex<SidebandState>>,
}

#[derive(Debug, Default)]
struct SidebandState {
    attached: Vec<SidebandClient>,
    /// Newest `session.created` and `session.updated`.
    created: Option<Arc<str>>,
    updated: Option<Arc<str>>,
    ended: bool,
}

/// Queued event for a client, with its byte permits.
#[derive(Debug)]
pub struct QueuedEvent {
    text: Arc<str>,
    _room: OwnedSemaphorePermit,
}

impl QueuedEvent {
    /// Returns the event's JSON text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Queue of one client's events.
#[derive(Debug)]
struct SidebandClient {
    events: mpsc::Sender<QueuedEvent>,
    /// Permits for bytes of waiting events.
    byte_permits: Arc<Semaphore>,
}

impl SidebandClient {
    /// Queues an event; false if there is no room.
    fn send(&self, text: Arc<str>) -> bool {
        let bytes = u32::try_from(text.len().min(MAX_UNREAD)).unwrap_or(u32::MAX);
        let room = self.byte_permits.clone().try_acquire_many_owned(bytes);
        room.is_ok_and(|room| self.events.try_send(QueuedEvent { text, _room: room }).is_ok())
    }
}

/// Publishes the call's events. Dropping it ends every sideband.
#[derive(Debug)]
pub(super) struct Publisher {
    state: Arc<Mutex<SidebandState>>,
}

/// Channels of one attached client.
#[derive(Debug)]
pub struct Sideband {
    /// The call's events. `None` once the call is over or this client was too slow.
    pub events: mpsc::Receiver<QueuedEvent>,
    /// Sender of client events.
    pub commands: CommandSender,
}

/// Client event with its byte permits.
type QueuedCommand = (String, OwnedSemaphorePermit);

/// Sends one client's events to the call.
#[derive(Debug, Clone)]
pub struct CommandSender {
    commands: mpsc::Sender<QueuedCommand>,
    byte_permits: Arc<Semaphore>,
}

impl CommandSender {
    /// Sends an event of at most [`MAX_MESSAGE`] bytes, once there is room; false if the call is over. Cancel safe: if
    /// the future is dropped, the event was sent wholly or not at all.
    pub async fn send(&self, event: String) -> bool {
        // A message takes at most half of all permits, so that every message can be sent at some time.
        let bytes = u32::try_from(event.len().min(MAX_MESSAGE)).unwrap_or(u32::MAX);
        let permit = tokio::select! {
            permit = self.byte_permits.clone().acquire_many_owned(bytes) => permit,
            () = self.commands.closed() => return false,
        };
        // The semaphore is never closed.
        let Ok(permit) = permit else { return false };
        self.commands.send((event, permit)).await.is_ok()
    }

    /// True if the call is over.
    pub fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }
}

/// Creates the channels of a new call: the handle to attach clients, the publisher, and the receiver of client events.
pub(super) fn sidebands() -> (Sidebands, Publisher, CommandReceiver) {
    let (commands, receiver) = mpsc::channel(COMMAND_QUEUE);
    let state = Arc::<Mutex<SidebandState>>::default();
    let room = Arc::new(Semaphore::new(MAX_WAITING));
    let sidebands = Sidebands { commands: commands.downgrade(), byte_permits: room, state: state.clone() };
    (sidebands, Publisher { state }, CommandReceiver { receiver, _open: commands })
}

/// Receiver of all clients' events.
#[derive(Debug)]
pub(super) struct CommandReceiver {
    receiver: mpsc::Receiver<QueuedCommand>,
    /// Keeps the queue open while no client is attached.
    _open: mpsc::Sender<QueuedCommand>,
}

impl CommandReceiver {
    /// Returns the next client event. Cancel safe.
    pub async fn next(&mut self) -> String {
        match self.receiver.recv().await {
            Some((command, _)) => command,
            // Cannot happen while `_open` lives.
            None => std::future::pending().await,
        }
    }
}

impl Sidebands {
    /// Attaches a client.
    ///
    /// # Errors
    ///
    /// [`AttachError::Ended`] after the call's end, [`AttachError::Full`] with [`MAX_ATTACHED`] clients.
    pub fn attach(&self) -> Result<Sideband, AttachError> {
        let commands = self.commands.upgrade().ok_or(AttachError::Ended)?;
        let commands = CommandSender { commands, byte_permits: self.byte_permits.clone() };
        let mut state = lock(&self.state);
        if state.ended {
            return Err(AttachError::Ended);
        }
        state.attached.retain(|client| !client.events.is_closed());
        if state.attached.len() == MAX_ATTACHED {
            return Err(AttachError::Full);
        }
        let (sender, events) = mpsc::channel(EVENT_QUEUE);
        let client = SidebandClient { events: sender, byte_permits: Arc::new(Semaphore::new(MAX_UNREAD)) };
        for known in [&state.created, &state.updated].into_iter().flatten() {
            // The queue is empty and has room for both: a session's settings are bounded.
            client.send(known.clone());
        }
        state.attached.push(client);
        Ok(Sideband { events, commands })
    }

    /// Number of attached clients.
    pub fn attached(&self) -> usize {
        lock(&self.state).attached.iter().filter(|client| !client.events.is_closed()).count()
    }
}

impl Publisher {
    /// Queues an event of type `kind` for every client, and detaches clients without room. Never waits.
    pub fn publish(&self, kind: &str, event: &str) {
        let mut state = lock(&self.state);
        let is_state = matches!(kind, "session.created" | "session.updated");
        if !is_state && state.attached.is_empty() {
            return;
        }
        let event: Arc<str> = event.into();
        match kind {
            "session.created" => state.created = Some(event.clone()),
            "session.updated" => state.updated = Some(event.clone()),
            _ => {}
        }
        state.attached.retain(|client| {
            let sent = client.send(event.clone());
            if !sent && !client.events.is_closed() {
                tracing::info!("detached a sideband client that reads too slowly");
            }
            sent
        });
    }

    /// Returns the newest `session.created` and `session.updated`, with their types.
    pub fn session_events(&self) -> Vec<(&'static str, Arc<str>)> {
        let state = lock(&self.state);
        let events = [("session.created", &state.created), ("session.updated", &state.updated)];
        events.into_iter().filter_map(|(kind, event)| Some((kind, event.clone()?))).collect()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.attached.clear();
    }
}

fn lock(state: &Mutex<SidebandState>) -> MutexGuard<'_, SidebandState> {
    // Only moves happen under the lock: a panic cannot leave the state half-changed.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use repartee_testkit::memory::{CountScope, counts};

    use super::*;

    const CREATED: &str = r#"{"type":"session.created","session":{}}"#;
    const UPDATED: &str = r#"{"type":"session.updated","session":{}}"#;

    fn read(client: &mut Sideband) -> Option<String> {
        client.events.try_recv().ok().map(|event| event.text().to_owned())
    }

    #[test]
    fn late_clients_receive_the_session_first() {
        let (sidebands, publisher, _commands) = sidebands();
        publisher.publish("session.created", CREATED);
        publisher.publish("response.created", r#"{"type":"response.created"}"#);
        publisher.publish("session.updated", UPDATED);
        let mut client = sidebands.attach().unwrap();
        publisher.publish("response.done", r#"{"type":"response.done"}"#);
        assert_eq!(read(&mut client).as_deref(), Some(CREATED));
        assert_eq!(read(&mut client).as_deref(), Some(UPDATED));
        assert_eq!(read(&mut client).as_deref(), Some(r#"{"type":"response.done"}"#));
        assert_eq!(read(&mut client), None);
    }

    #[test]
    fn event_is_not_parsed_to_be_published() {
        let (sidebands, publisher, _commands) = sidebands();
        // `publish` trusts `kind`, and allocates nothing while no client is attached.
        publisher.publish("session.created", "not JSON");
        let before = counts(CountScope::Thread).allocations;
        publisher.publish("response.output_audio.delta", "not JSON either");
        assert_eq!(counts(CountScope::Thread).allocations, before);
        assert_eq!(read(&mut sidebands.attach().unwrap()).as_deref(), Some("not JSON"));
    }

    #[test]
    fn attached_clients_are_limited() {
        let (sidebands, _publisher, _commands) = sidebands();
        let mut clients: Vec<_> = (0..MAX_ATTACHED).map(|_| sidebands.attach().unwrap()).collect();
        assert_eq!(sidebands.attach().unwrap_err(), AttachError::Full);
        clients.pop();
        clients.push(sidebands.attach().unwrap());
        assert_eq!(sidebands.attached(), MAX_ATTACHED);
    }

    #[test]
    fn a_stalled_client_is_detached_alone() {
        let (sidebands, publisher, _commands) = sidebands();
        let (mut slow, mut quick) = (sidebands.attach().unwrap(), sidebands.attach().unwrap());
        for event in 0..=EVENT_QUEUE {
            let text = format!("{{\"type\":\"{event}\"}}");
            publisher.publish("error", &text);
            assert_eq!(read(&mut quick), Some(text));
        }
        assert_eq!(sidebands.attached(), 1);
        for _ in 0..EVENT_QUEUE {
            slow.events.try_recv().unwrap();
        }
        assert_eq!(slow.events.try_recv().err(), Some(mpsc::error::TryRecvError::Disconnected));
    }

    #[test]
    fn unread_bytes_are_bounded() {
        let (sidebands, publisher, _commands) = sidebands();
        let (slow, mut quick) = (sidebands.attach().unwrap(), sidebands.attach().unwrap());
        let large = "x".repeat(MAX_UNREAD / 4);
        for _ in 0..4 {
            publisher.publish("session.updated", &large);
            assert!(read(&mut quick).is_some());
        }
        assert_eq!(sidebands.attached(), 2);
        publisher.publish("error", "x");
        assert_eq!(sidebands.attached(), 1, "the slow one is detached long before it has {EVENT_QUEUE} events");
        drop(slow);
        // A client that reads receives an event of any size.
        assert_eq!(read(&mut quick).as_deref(), Some("x"));
        publisher.publish("conversation.item.retrieved", &large.repeat(5));
        assert_eq!(read(&mut quick).map(|event| event.len()), Some(large.len() * 5));
    }

    #[tokio::test]
    async fn clients_send_events_and_leave_freely() {
        let (sidebands, publisher, mut commands) = sidebands();
        let (first, second) = (sidebands.attach().unwrap(), sidebands.attach().unwrap());
        assert!(first.commands.send("one".into()).await);
        drop(first);
        assert!(second.commands.send("two".into()).await);
        assert_eq!((commands.next().await, commands.next().await), ("one".into(), "two".into()));
        drop(second);
        assert!(commands.next().now_or_never().is_none());
        publisher.publish("session.created", CREATED);
        assert!(sidebands.attach().is_ok());
    }

    #[tokio::test]
    async fn waiting_bytes_are_bounded() {
        let (sidebands, _publisher, mut commands) = sidebands();
        let clients: Vec<_> = (0..MAX_ATTACHED).map(|_| sidebands.attach().unwrap()).collect();
        let large = || "x".repeat(MAX_MESSAGE);
        let waiting = clients.iter().filter(|client| client.commands.send(large()).now_or_never() == Some(true));
        assert_eq!(waiting.count(), MAX_WAITING / MAX_MESSAGE);
        // Each command that the call reads makes room for another.
        commands.next().await;
        assert_eq!(clients[3].commands.send(large()).now_or_never(), Some(true));
        assert_eq!(clients[3].commands.send("x".into()).now_or_never(), None);
        drop(commands);
        assert!(!clients[3].commands.send("x".into()).await);
    }

    #[test]
    fn the_end_of_the_call_detaches_clients() {
        let (sidebands, publisher, commands) = sidebands();
        let mut client = sidebands.attach().unwrap();
        drop((publisher, commands));
        assert_eq!(client.events.try_recv().err(), Some(mpsc::error::TryRecvError::Disconnected));
        assert!(client.commands.is_closed());
        assert_eq!(sidebands.attach().unwrap_err(), AttachError::Ended);
    }
}
