//! Sessions that only transcribe: no response is made, and a turn leaves the model's memory once it is written down.

use repartee_engine_api::Command;
use repartee_protocol::session::SessionKind;
use repartee_protocol::{ClientEvent, ErrorBody, ErrorKind};

use super::RealtimeSession;

/// Refuses an event that a transcription session has no use for.
pub(super) fn check(event: &ClientEvent) -> Result<(), ErrorBody> {
    let what = match event {
        ClientEvent::ResponseCreate(_) => "makes no responses",
        ClientEvent::ItemCreate(_) => "reads no items",
        _ => return Ok(()),
    };
    let message = format!("a session of the type `transcription` {what}: it writes down what is said");
    Err(ErrorBody::invalid(ErrorKind::TranscriptionSession, message))
}

impl RealtimeSession {
    /// Refuses to make a conversation that has begun a session of another kind.
    pub(super) fn check_kind(&self, next: SessionKind) -> Result<(), ErrorBody> {
        let begun = self.history.first_id().is_some() || self.input.has_turn() || !self.is_idle();
        if next == self.config.kind || !begun {
            return Ok(());
        }
        let message = "a session's type cannot change once something was said: begin another session";
        Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("session.type"))
    }

    /// The turn `item_id` was written down, or will not be. In a transcription session nothing else reads it: the engine
    /// forgets it, so that the next turn is prefilled on its own.
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
