//! Order of commands. They run one after another, except those that must not wait for the encoder or a long text.
//!
//! While many windows wait for the encoder, commands wait too, so that a caller cannot send audio faster than it is
//! encoded (backpressure). [`Command::Cancel`] and [`Command::Played`] overtake them.

use std::time::Duration;

use repartee_engine_api::{COMMAND_QUEUE, Command, ResponseId};

use super::Session;

/// Upper bound of pending windows; above it the session's commands wait.
const MAX_PENDING_WINDOWS: usize = 64;
/// Upper bound of the duration of pending windows, for models with long windows.
const MAX_PENDING_SOUND: Duration = Duration::from_secs(30);
/// Upper bound of complete audio items that wait for the front end; above it the session's commands wait.
const MAX_PENDING_SOUNDS: usize = 2;

impl Session {
    /// Next command to execute. While too much audio waits for the encoder, or a long text is being tokenised, only
    /// overtaking commands are returned. The others are held, as many as the command queue has places.
    pub fn next_command(&mut self) -> Option<Command> {
        let sounds = self.pending_sounds.len() + self.recognitions.complete();
        let audio = self.has_many_windows() || sounds > MAX_PENDING_SOUNDS;
        if !audio && self.text_intake.is_none() {
            return self.held_commands.pop_front().or_else(|| self.peer.commands.try_recv().ok());
        }
        while self.held_commands.len() < COMMAND_QUEUE {
            let command = self.peer.commands.try_recv().ok()?;
            let overtakes = match &command {
                Command::Played { .. } => true,
                Command::Cancel { response } => {
                    let taken_in = self.text_intake.iter().map(|intake| &intake.command);
                    !self.held_commands.iter().chain(taken_in).any(|held| names(held, *response))
                }
                _ => false,
            };
            if overtakes {
                return Some(command);
            }
            self.held_commands.push_back(command);
        }
        None
    }
}

impl Session {
    /// True if so much audio waits for the encoder that no more is read.
    pub(super) fn has_many_windows(&self) -> bool {
        let windows = &self.pending_windows;
        windows.len().max(self.recognitions.len()) > MAX_PENDING_WINDOWS
            || windows.iter().map(|window| window.sound).sum::<Duration>() > MAX_PENDING_SOUND
            || self.recognitions.waiting() > MAX_PENDING_SOUND
    }
}

/// True if a command requests, commits or aborts this response: a later command about it must not overtake.
fn names(command: &Command, response: ResponseId) -> bool {
    match command {
        Command::Respond(request) | Command::BeginSpeculation { respond: request, .. } => request.response == response,
        Command::Transcribe(request) => request.response == response,
        Command::CommitSpeculation { response: named } | Command::AbortSpeculation { response: named } => {
            *named == response
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use repartee_engine_api::{Respond, SessionHandle, WakeSignal, link};

    use super::*;
    use crate::audio_input::{PendingWindow, WindowTarget};
    use crate::model::InputWindow;

    /// A session with `windows` windows that wait for the encoder, and its caller's handle.
    fn session(windows: usize) -> (SessionHandle, Session) {
        let (handle, peer) = link(WakeSignal::new().0);
        let mut session = Session::new(peer, 0);
        let window = |index| PendingWindow::new(WindowTarget::Open, InputWindow { frames: 0, data: Vec::new() }, index);
        session.pending_windows.extend((0..windows).map(window));
        (handle, session)
    }

    fn cancel(response: ResponseId) -> Command {
        Command::Cancel { response }
    }

    fn submit(handle: &SessionHandle, commands: &[Command]) {
        commands.iter().for_each(|command| handle.submit(command.clone()).unwrap());
    }

    fn taken(session: &mut Session) -> Vec<Command> {
        std::iter::from_fn(|| session.next_command()).collect()
    }

    #[test]
    fn cancel_and_played_overtake_pending_windows() {
        let (handle, mut session) = session(MAX_PENDING_WINDOWS + 1);
        let played = Command::Played { response: 1, position: Duration::ZERO, at: Instant::now() };
        submit(&handle, &[Command::Append(vec![0.5]), played.clone(), Command::Clear, cancel(1)]);
        assert_eq!(taken(&mut session), [played, cancel(1)]);
        session.pending_windows.pop_front();
        submit(&handle, &[Command::Commit { item: 1 }]);
        assert_eq!(taken(&mut session), [Command::Append(vec![0.5]), Command::Clear, Command::Commit { item: 1 }]);
    }

    #[test]
    fn cancel_stays_behind_its_own_request() {
        let (handle, mut session) = session(MAX_PENDING_WINDOWS + 1);
        let respond = Command::Respond(Respond::new(2, 3));
        let commit = Command::CommitSpeculation { response: 4 };
        submit(&handle, &[respond.clone(), cancel(2), commit.clone(), cancel(4), cancel(1)]);
        assert_eq!(taken(&mut session), [cancel(1)]);
        session.pending_windows.clear();
        assert_eq!(taken(&mut session), [respond, cancel(2), commit, cancel(4)]);
    }

    #[test]
    fn sound_that_waits_is_bounded_in_seconds() {
        let (handle, mut session) = session(4);
        submit(&handle, &[Command::Append(vec![0.5])]);
        session.pending_windows.iter_mut().for_each(|window| window.sound = Duration::from_secs(8));
        assert_eq!(taken(&mut session), []);
        session.pending_windows.pop_front();
        assert_eq!(taken(&mut session), [Command::Append(vec![0.5])]);
    }

    #[test]
    fn held_commands_are_bounded() {
        let (handle, mut session) = session(MAX_PENDING_WINDOWS + 1);
        for _ in 0..3 {
            while handle.submit(Command::Clear).is_ok() {}
            assert_eq!(taken(&mut session), []);
        }
        assert_eq!(session.held_commands.len(), COMMAND_QUEUE);
    }
}
