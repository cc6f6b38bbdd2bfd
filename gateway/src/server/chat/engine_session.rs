//! The engine's side of a completion: everything is handed over in order while events are read.

use std::collections::VecDeque;

use repartee_engine_api::{Command, Event, SessionHandle, SubmitError};

/// A session that is asked one thing. Dropping it frees it.
#[derive(Debug)]
pub(super) struct Answering {
    session: SessionHandle,
    /// What was not handed over yet.
    commands: VecDeque<Command>,
}

impl Answering {
    pub fn new(session: SessionHandle, commands: Vec<Command>) -> Self {
        Self { session, commands: commands.into() }
    }

    /// The next event; `None` once the session has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            // As much as there is room for. A refusal of the engine must be heard before everything is handed over, so
            // waiting for room and for events goes on at once.
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
