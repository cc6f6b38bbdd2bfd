//! Engine session of an HTTP request: submits commands in order while events are read.

use std::collections::VecDeque;

use repartee_engine_api::{Command, Event, SessionHandle, SubmitError};

/// Engine session of one request. Dropping it frees the session.
#[derive(Debug)]
pub(super) struct EngineSession {
    session: SessionHandle,
    /// Commands not submitted yet.
    commands: VecDeque<Command>,
}

impl EngineSession {
    pub fn new(session: SessionHandle, commands: Vec<Command>) -> Self {
        Self { session, commands: commands.into() }
    }

    /// Queues more commands behind the earlier ones.
    pub fn submit(&mut self, commands: impl IntoIterator<Item = Command>) {
        self.commands.extend(commands);
    }

    /// True if no command waits.
    pub fn is_submitted(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns the next event; `None` once the session has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            // Submits as many commands as the session's queue takes. An engine error must be seen before all commands
            // are submitted, so the code below waits for queue space and for events at once.
            while let Some(command) = self.commands.pop_front() {
                match self.session.submit(command) {
                    Ok(()) => {}
                    Err(SubmitError::Full(command)) => {
                        self.commands.push_front(*command);
                        break;
                    }
                    // The session's last events hold the reason.
                    Err(SubmitError::Ended(_)) => self.commands.clear(),
                }
            }
            let Some(command) = self.commands.front().cloned() else { return self.session.next_event().await };
            tokio::select! {
                event = self.session.next_event() => return event,
                submitted = self.session.submit_async(command) => {
                    if submitted.is_ok() {
                        self.commands.pop_front();
                    }
                }
            }
        }
    }
}
