//! Sideband connections: more clients of one call, which receive its events and may send some.
//!
//! A server that controls a browser's call attaches to it by the call's id. A client that attaches late first receives the
//! newest `session.created` and `session.updated`. When a client leaves, the call goes on; the call's end ends all of them.
//!
//! Bounds: [`MAX_ATTACHED`] clients a call; one that leaves [`EVENTS`] events unread is detached; what a client sends waits
//! while the call accepts no input.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use tokio::sync::mpsc::{self, error::TrySendError};

/// Clients of one call at once.
pub const MAX_ATTACHED: usize = 4;
/// Events that may wait for one client.
pub const EVENTS: usize = 256;
/// Client events that may wait for the call.
const COMMANDS: usize = 16;

/// Why a client cannot attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AttachError {
    /// There are [`MAX_ATTACHED`] already.
    #[error("the call has {MAX_ATTACHED} sideband connections already")]
    Full,
    /// The call is over.
    #[error("the call is over")]
    Ended,
}

/// Attaches clients to a call. Clones are for the same call.
#[derive(Debug, Clone)]
pub struct Sidebands {
    commands: mpsc::WeakSender<String>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    attached: Vec<mpsc::Sender<Arc<str>>>,
    /// The newest `session.created` and `session.updated`.
    created: Option<Arc<str>>,
    updated: Option<Arc<str>>,
    ended: bool,
}

/// The call's end: publishes events. Dropping it ends every sideband.
#[derive(Debug)]
pub(super) struct Publisher {
    state: Arc<Mutex<State>>,
}

/// One client's end.
#[derive(Debug)]
pub struct Sideband {
    /// The call's events. `None` once the call is over or this client was too slow.
    pub events: mpsc::Receiver<Arc<str>>,
    /// Client events. Closed once the call is over.
    pub commands: mpsc::Sender<String>,
}

/// The sidebands of a new call: where to attach, where to publish, and what the clients send.
pub(super) fn sidebands() -> (Sidebands, Publisher, Commands) {
    let (commands, receiver) = mpsc::channel(COMMANDS);
    let state = Arc::<Mutex<State>>::default();
    let sidebands = Sidebands { commands: commands.downgrade(), state: state.clone() };
    (sidebands, Publisher { state }, Commands { receiver, _open: commands })
}

/// What the clients send.
#[derive(Debug)]
pub(super) struct Commands {
    receiver: mpsc::Receiver<String>,
    /// Clients come and go; the queue stays.
    _open: mpsc::Sender<String>,
}

impl Commands {
    /// The next client event. Cancel safe.
    pub async fn next(&mut self) -> String {
        match self.receiver.recv().await {
            Some(command) => command,
            // Never while `_open` lives.
            None => std::future::pending().await,
        }
    }
}

impl Sidebands {
    /// Attaches a client.
    pub fn attach(&self) -> Result<Sideband, AttachError> {
        let commands = self.commands.upgrade().ok_or(AttachError::Ended)?;
        let mut state = lock(&self.state);
        if state.ended {
            return Err(AttachError::Ended);
        }
        state.attached.retain(|client| !client.is_closed());
        if state.attached.len() == MAX_ATTACHED {
            return Err(AttachError::Full);
        }
        let (sender, events) = mpsc::channel(EVENTS);
        for known in [&state.created, &state.updated].into_iter().flatten() {
            // The queue is empty and has room for both.
            let _ = sender.try_send(known.clone());
        }
        state.attached.push(sender);
        Ok(Sideband { events, commands })
    }

    /// Number of attached clients.
    pub fn attached(&self) -> usize {
        lock(&self.state).attached.iter().filter(|client| !client.is_closed()).count()
    }
}

impl Publisher {
    /// Hands an event of this type to every client. Never waits.
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
        state.attached.retain(|client| match client.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                tracing::info!("detached a sideband client that reads too slowly");
                false
            }
            Err(TrySendError::Closed(_)) => false,
        });
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.attached.clear();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Only moves happen under the lock: a panic cannot leave it half-changed.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use repartee_testkit::memory::{Scope, counts};

    use super::*;

    const CREATED: &str = r#"{"type":"session.created","session":{}}"#;
    const UPDATED: &str = r#"{"type":"session.updated","session":{}}"#;

    fn read(client: &mut Sideband) -> Option<String> {
        client.events.try_recv().ok().map(|event| event.to_string())
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
        // The type is what the caller says, and no allocation is made where nobody listens.
        publisher.publish("session.created", "not JSON");
        let before = counts(Scope::Thread).allocations;
        publisher.publish("response.output_audio.delta", "not JSON either");
        assert_eq!(counts(Scope::Thread).allocations, before);
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
        for event in 0..=EVENTS {
            let text = format!("{{\"type\":\"{event}\"}}");
            publisher.publish("error", &text);
            assert_eq!(read(&mut quick), Some(text));
        }
        assert_eq!(sidebands.attached(), 1);
        for _ in 0..EVENTS {
            slow.events.try_recv().unwrap();
        }
        assert_eq!(slow.events.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    }

    #[tokio::test]
    async fn clients_send_events_and_leave_freely() {
        let (sidebands, publisher, mut commands) = sidebands();
        let (first, second) = (sidebands.attach().unwrap(), sidebands.attach().unwrap());
        first.commands.send("one".into()).await.unwrap();
        drop(first);
        second.commands.send("two".into()).await.unwrap();
        assert_eq!((commands.next().await, commands.next().await), ("one".into(), "two".into()));
        drop(second);
        assert!(futures_util::FutureExt::now_or_never(commands.next()).is_none());
        publisher.publish("session.created", CREATED);
        assert!(sidebands.attach().is_ok());
    }

    #[test]
    fn the_end_of_the_call_detaches_clients() {
        let (sidebands, publisher, commands) = sidebands();
        let mut client = sidebands.attach().unwrap();
        drop((publisher, commands));
        assert_eq!(client.events.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
        assert!(client.commands.is_closed());
        assert_eq!(sidebands.attach().unwrap_err(), AttachError::Ended);
    }
}
