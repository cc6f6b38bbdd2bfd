//! The engine session of an HTTP request: commands are submitted in order while events are read.

use std::collections::VecDeque;

use repartee_engine_api::{Command, Event, SessionHandle, SubmitError};

/// A session for one request. Dropping it frees it.
#[derive(Debug)]
pub(super) struct EngineSession {
    session: SessionHandle,
    /// Commands that were not submitted yet.
    commands: VecDeque<Command>,
}

impl EngineSession {
    pub fn new(session: SessionHandle, commands: Vec<Command>) -> Self {
        Self { session, commands: commands.into() }
    }

    /// Submits more commands, after those before.
    pub fn submit(&mut self, commands: impl IntoIterator<Item = Command>) {
        self.commands.extend(commands);
    }

    /// The next event; `None` once the session has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            // As many as there is room for. An error of the engine must be seen before all commands are submitted, so this
            // waits for room and for events at once.
            while let Some(command) = self.commands.pop_front() {
                match self.session.submit(command) {
                    Ok(()) => {}
                    Err(SubmitError::Full(command)) => {
                        self.commands.push_front(*command);
                        break;
                    }
                    // Its last events say why.
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
