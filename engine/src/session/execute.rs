//! Execution of commands, each by the part of the session that it concerns.

use repartee_engine_api::{Command, Event, ResponseId, SessionError};

use super::messages::system;
use super::slices::Slices;
use super::state::Ending;
use super::{ModelContext, Session};

impl Session {
    /// Reports that a command is refused.
    pub fn refuse(&self, command: &Command, error: SessionError) {
        self.fail(about(command), error);
    }

    /// Executes one command. Returns the slot of a response that the stages must abort, if any.
    pub fn execute(&mut self, command: Command, model: &mut ModelContext<'_>) -> Option<usize> {
        let about = about(&command);
        let done = if self.ending != Ending::Open && requests_more(&command) {
            Err(SessionError::AfterFinish)
        } else {
            self.run(command, model)
        };
        done.unwrap_or_else(|error| {
            self.fail(about, error);
            None
        })
    }

    fn run(&mut self, command: Command, model: &mut ModelContext<'_>) -> Result<Option<usize>, SessionError> {
        match command {
            Command::Append(samples) => self.append(&samples, model)?,
            Command::Listen(listen) => self.listen(listen, model),
            Command::Commit { item } => {
                let stop = self.abort_speculation();
                // The speculation is aborted even if the commit fails.
                if let Err(error) = self.commit(item, model) {
                    self.fail(None, error);
                }
                return Ok(stop);
            }
            Command::Clear => {
                let stop = self.abort_speculation();
                self.clear();
                return Ok(stop);
            }
            Command::Insert { item, place, content } => self.insert(item, place, content, model)?,
            Command::SetInstructions(text) => {
                let system = system(&text, &self.tools, model)?;
                (self.instructions, self.system, self.changed) = (text, system, true);
            }
            Command::SetTools(tools) => {
                let system = system(&self.instructions, &tools, model)?;
                (self.tools, self.system, self.changed) = (tools.into(), system, true);
            }
            Command::SetEviction(eviction) => self.set_eviction(eviction)?,
            Command::Respond(request) => self.respond(request, model)?,
            Command::Transcribe(request) => self.transcribe(request, model)?,
            Command::BeginSpeculation { item, respond } => self.begin_speculation(item, respond, model)?,
            Command::CommitSpeculation { response } => self.commit_speculation(response, model)?,
            Command::AbortSpeculation { response } => {
                if self.speculation.as_ref().is_some_and(|speculation| speculation.response == response) {
                    return Ok(self.abort_speculation());
                }
            }
            Command::Cancel { response } => return Ok(self.cancel(response, model)),
            Command::Truncate { item, text } => self.truncate(item, &text, model)?,
            Command::Delete { item } => self.delete(item),
            Command::StreamText { response, text } => self.stream_text(response, &text, model.now)?,
            Command::EndText { response } => self.end_text(response)?,
            Command::Played { response, position, at } => self.played(response, position, at),
            Command::SetSlicePolicy(policy) => self.set_policy(policy, model)?,
            Command::Finish => {
                if let Some(slices) = self.slices.as_mut().filter(|slices| !slices.is_empty()) {
                    // A missing open slice is no error here.
                    let _ = slices.end();
                }
                if self.ending == Ending::Open {
                    self.ending = Ending::Requested;
                }
            }
        }
        Ok(None)
    }

    /// Reports [`Event::Finished`] once every response is complete.
    pub fn report_finished(&mut self) {
        let idle = self.active.is_none() && self.pending_responses.is_empty() && self.out_of_band.is_empty();
        let idle = idle && self.followed.is_empty();
        let read = self.speculation.is_none() && self.slices.as_ref().is_none_or(Slices::is_empty);
        if self.ending == Ending::Requested && idle && read {
            self.ending = Ending::Reported;
            self.emit(Event::Finished);
        }
    }
}

/// Id of the response that a command requests.
fn about(command: &Command) -> Option<ResponseId> {
    match command {
        Command::Respond(request) | Command::BeginSpeculation { respond: request, .. } => Some(request.response),
        Command::Transcribe(request) => Some(request.response),
        _ => None,
    }
}

/// True if a command is refused after [`Command::Finish`].
fn requests_more(command: &Command) -> bool {
    matches!(
        command,
        Command::Append(_)
            | Command::Commit { .. }
            | Command::Insert { .. }
            | Command::Respond(_)
            | Command::Transcribe(_)
            | Command::BeginSpeculation { .. }
            | Command::SetSlicePolicy(_)
    )
}
