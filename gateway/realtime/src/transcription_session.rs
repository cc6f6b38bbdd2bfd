//! Transcription sessions: no responses, and each turn is deleted from the engine after its transcript.

use repartee_engine_api::Command;
use repartee_protocol::session::SessionKind;
use repartee_protocol::{ClientEvent, ErrorBody, ErrorKind};

use super::RealtimeSession;

/// Rejects events that a transcription session does not support.
pub(super) fn check(event: &ClientEvent) -> Result<(), ErrorBody> {
    let what = match event {
        ClientEvent::ResponseCreate(_) => "makes no responses",
        ClientEvent::ItemCreate(_) => "reads no items",
        _ => return Ok(()),
    };
    let message = format!("a session of the type `transcription` {what}: it only transcribes");
    Err(ErrorBody::invalid(ErrorKind::TranscriptionSession, message))
}

impl RealtimeSession {
    /// Rejects a change of the session type after the conversation has started.
    pub(super) fn check_kind(&self, next: SessionKind) -> Result<(), ErrorBody> {
        let begun = self.history.first_id().is_some() || self.input.has_turn() || !self.is_idle();
        if next == self.config.kind || !begun {
            return Ok(());
        }
        let message = "the type of a session cannot change after its first turn or item: start another session";
        Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("session.type"))
    }

    /// Deletes the turn `item_id` from the engine after its transcript has ended. Only in a transcription session, where nothing
    /// else reads it: the next turn is then prefilled alone.
    pub(super) fn evict_turn(&mut self, item_id: &str) {
        if self.config.kind != SessionKind::Transcription {
            return;
        }
        let mut engine = Vec::new();
        self.history.change(item_id, |entry| engine = std::mem::take(&mut entry.engine));
        for item in engine {
            self.command(Command::Delete { item });
        }
    }
}
