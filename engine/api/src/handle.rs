//! Both ends of a session's queues.

use super::{Command, Event, SubmitError, Tenant};

/// Capacity of a session's command queue; beyond it [`SessionHandle::submit`] returns [`SubmitError::Full`].
pub const COMMAND_QUEUE: usize = 256;
/// Capacity of a session's event queue; a session with a full one is not runnable. At one event for each codec frame of
/// 80 ms, and some text, this is about 10 s of unsent speech.
pub const EVENT_QUEUE: usize = 200;

/// The caller's end of a session: submits commands, receives events. Dropping it ends the session.
#[derive(Debug)]
pub struct SessionHandle {
    commands: flume::Sender<Command>,
    events: flume::Receiver<Event>,
    wake: WakeSignal,
}

/// The engine's end of a session.
#[derive(Debug)]
pub struct SessionPeer {
    /// Commands of the caller; disconnected once the handle is dropped.
    pub commands: flume::Receiver<Command>,
    /// Events for the caller.
    pub events: flume::Sender<Event>,
    /// Tracing span in which the session was opened, for the engine's log lines about it.
    pub span: tracing::Span,
    /// Owner of the session; none unless it is set.
    pub tenant: Tenant,
}

/// Signal to the engine that something may be runnable: a command was submitted, an event was read, or a handle was
/// dropped. Clones share one pending signal; repeated signals coalesce.
#[derive(Debug, Clone)]
pub struct WakeSignal(flume::Sender<()>);

impl WakeSignal {
    /// Creates a signal and its receiver.
    pub fn new() -> (Self, flume::Receiver<()>) {
        let (tx, rx) = flume::bounded(1);
        (Self(tx), rx)
    }

    /// Sends the signal; never blocks.
    pub fn signal(&self) {
        // A full queue holds a signal already; a closed one means that the engine has stopped.
        let _ = self.0.try_send(());
    }
}

/// Creates both ends of a new session. Every action of the caller signals `wake`.
///
/// ```
/// use repartee_engine_api::{Command, Event, FinishReason, Respond, EngineUsage, WakeSignal, link};
///
/// let (wake, woken) = WakeSignal::new();
/// let (handle, peer) = link(wake);
///
/// handle.submit(Command::Respond(Respond::new(7, 1)))?;
/// assert!(woken.try_recv().is_ok(), "the engine is woken");
///
/// // The engine's end.
/// let Ok(Command::Respond(respond)) = peer.commands.try_recv() else { panic!("no command") };
/// let response = respond.response;
/// peer.events.send(Event::Text { response, text: "Hello.".into() })?;
/// let (reason, usage) = (FinishReason::Stop, EngineUsage::default());
/// peer.events.send(Event::SegmentFinished { response, reason, usage })?;
///
/// assert_eq!(handle.next_event_blocking(), Some(Event::Text { response: 7, text: "Hello.".into() }));
/// assert!(matches!(handle.try_next_event(), Some(Event::SegmentFinished { response: 7, .. })));
/// assert_eq!(handle.try_next_event(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn link(wake: WakeSignal) -> (SessionHandle, SessionPeer) {
    let (command_tx, command_rx) = flume::bounded(COMMAND_QUEUE);
    let (event_tx, event_rx) = flume::bounded(EVENT_QUEUE);
    let (span, tenant) = (tracing::Span::current(), Tenant::default());
    let peer = SessionPeer { commands: command_rx, events: event_tx, span, tenant };
    (SessionHandle { commands: command_tx, events: event_rx, wake }, peer)
}

impl SessionHandle {
    /// Submits a command without waiting.
    pub fn submit(&self, command: Command) -> Result<(), SubmitError> {
        let sent = self.commands.try_send(command).map_err(|error| match error {
            flume::TrySendError::Full(command) => SubmitError::Full(Box::new(command)),
            flume::TrySendError::Disconnected(command) => SubmitError::Ended(Box::new(command)),
        });
        self.wake.signal();
        sent
    }

    /// Submits a command; blocks this thread while the queue is full.
    pub fn submit_blocking(&self, command: Command) -> Result<(), SubmitError> {
        match self.submit(command) {
            Err(SubmitError::Full(command)) => {
                let sent = self.commands.send(*command);
                self.wake.signal();
                sent.map_err(|error| SubmitError::Ended(Box::new(error.into_inner())))
            }
            done => done,
        }
    }

    /// Submits a command; waits while the queue is full. Cancel safe: a dropped future has submitted the command or not at all.
    pub async fn submit_async(&self, command: Command) -> Result<(), SubmitError> {
        match self.submit(command) {
            Err(SubmitError::Full(command)) => {
                let sent = self.commands.send_async(*command).await;
                self.wake.signal();
                sent.map_err(|error| SubmitError::Ended(Box::new(error.into_inner())))
            }
            done => done,
        }
    }

    /// Receives the next event; `None` once the session has ended and every event was read. Cancel safe.
    pub async fn next_event(&self) -> Option<Event> {
        let event = self.events.recv_async().await.ok();
        self.wake.signal();
        event
    }

    /// Receives the next event; blocks this thread. `None` once the session has ended and every event was read.
    pub fn next_event_blocking(&self) -> Option<Event> {
        let event = self.events.recv().ok();
        self.wake.signal();
        event
    }

    /// Returns the next event if the queue has one.
    pub fn try_next_event(&self) -> Option<Event> {
        let event = self.events.try_recv().ok();
        if event.is_some() {
            self.wake.signal();
        }
        event
    }
}

impl SessionHandle {
    /// Ends the session and blocks until the engine has freed its resources.
    pub fn close(mut self) {
        self.hang_up();
        while self.events.recv().is_ok() {}
    }

    /// Closes the command queue before it signals, so that the woken engine sees the disconnection.
    fn hang_up(&mut self) {
        let (closed, _) = flume::bounded(1);
        drop(std::mem::replace(&mut self.commands, closed));
        self.wake.signal();
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.hang_up();
    }
}
