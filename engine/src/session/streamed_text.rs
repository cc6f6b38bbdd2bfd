//! Text that streams in while its response is being generated.

use std::time::Instant;

use repartee_engine_api::SessionError;

use super::context::{ModelContext, text_error};
use crate::elements::Element;
use crate::text::{TextEncoder, Tokenizer};

/// Upper bound of ids that stream in for one response: a caller that never ends must not fill the memory.
const MAX_IDS: usize = 65_536;

/// Text that streams in for one response.
pub struct StreamedText {
    encoder: TextEncoder,
    /// Ids so far; all are kept for a replay.
    ids: Vec<u32>,
    /// Number of ids delivered to the stages.
    delivered: usize,
    ended: bool,
    /// True once the end has been delivered to the stages.
    end_delivered: bool,
    /// Time of the caller's last piece.
    pub(super) since: Instant,
}

impl StreamedText {
    /// Creates an empty, open text.
    pub(super) fn new(tokenizer: &Tokenizer, now: Instant) -> Self {
        Self {
            encoder: tokenizer.encoder(),
            ids: Vec::new(),
            delivered: 0,
            ended: false,
            end_delivered: false,
            since: now,
        }
    }

    /// True while the stages may wait for the caller.
    pub(super) fn is_open(&self) -> bool {
        !self.ended
    }

    /// Marks everything as undelivered, for a replay.
    pub(super) fn rewind(&mut self) {
        (self.delivered, self.end_delivered) = (0, false);
    }

    /// Appends text of the caller.
    pub(super) fn push(&mut self, text: &str) -> Result<(), SessionError> {
        if self.ended {
            return Err(SessionError::Busy("the response's text has ended"));
        }
        let ids = self.encoder.push(text).map_err(|error| text_error(&error))?;
        if self.ids.len() + ids.len() > MAX_IDS {
            return Err(SessionError::ContextFull { tokens: MAX_IDS as u32 + 1, limit: MAX_IDS as u32 });
        }
        self.ids.extend(ids);
        Ok(())
    }

    /// Ends the text.
    pub(super) fn end(&mut self) -> Result<(), SessionError> {
        if !std::mem::replace(&mut self.ended, true) {
            self.ids.extend(self.encoder.finish().map_err(|error| text_error(&error))?);
        }
        Ok(())
    }

    /// Takes the undelivered positions; the flag is true if nothing follows them.
    pub(super) fn take(&mut self, model: &ModelContext<'_>) -> Option<(Vec<Element>, bool)> {
        let ends = self.ended && !std::mem::replace(&mut self.end_delivered, self.ended);
        if self.delivered == self.ids.len() && !ends {
            return None;
        }
        let ids = &self.ids[self.delivered..];
        let elements = if ids.is_empty() { Vec::new() } else { model.template.streamed(ids).unwrap_or_default() };
        self.delivered = self.ids.len();
        Some((elements, ends))
    }
}
