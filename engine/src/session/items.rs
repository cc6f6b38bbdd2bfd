//! Items of the history that the caller inserts, deletes and truncates.

use repartee_engine_api::{InsertAt, ItemId, MessageContent, SessionError};

use super::context::text_error;
use super::messages::{check_length, text_message};
use super::{ModelContext, Session};
use crate::audio_input::{PendingAudio, WindowTarget};
use crate::elements::{Message, MessageKind};
use crate::text::{MAX_STRETCH, TextError};

impl Session {
    pub(super) fn insert(
        &mut self,
        item: ItemId,
        place: InsertAt,
        content: MessageContent,
        model: &ModelContext<'_>,
    ) -> Result<(), SessionError> {
        if let MessageContent::Audio(samples) = content {
            return self.insert_audio(item, place, samples, model);
        }
        if model.stages.is_empty() {
            return Err(SessionError::NoResponses);
        }
        let message = text_message(content, model)?;
        self.changed = true;
        self.history.insert(item, place, message)
    }

    pub(super) fn insert_audio(
        &mut self,
        item: ItemId,
        place: InsertAt,
        samples: Vec<f32>,
        model: &ModelContext<'_>,
    ) -> Result<(), SessionError> {
        check_length(&samples, model)?;
        self.history.insert(item, place, Message::audio(Vec::new()))?;
        self.changed = true;
        self.add_sound(WindowTarget::Item(item), samples, model)
    }

    /// Adds complete audio to be encoded or heard.
    pub(super) fn add_sound(
        &mut self,
        target: WindowTarget,
        samples: Vec<f32>,
        model: &ModelContext<'_>,
    ) -> Result<(), SessionError> {
        if model.hears_text {
            self.recognitions.add_complete(target, samples);
        } else {
            self.pending_sounds.push_back(PendingAudio::new(model.front_end()?.stream(), samples, target));
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, item: ItemId) {
        let speculative = self.speculation.as_ref().is_some_and(|s| s.item == item || s.response_item == item);
        if speculative {
            return;
        }
        self.withdraw(|request| request.item == item);
        if !self.is_unfinished(item) && self.history.remove(item) {
            self.drop_audio(item);
            self.changed = true;
        }
    }

    /// Keeps the tokens whose text is a prefix of `text` and appends the rest of `text`, encoded.
    pub(super) fn truncate(&mut self, item: ItemId, text: &str, model: &ModelContext<'_>) -> Result<(), SessionError> {
        if self.is_unfinished(item) {
            return Ok(());
        }
        let Some(message) = self.history.get_mut(item).filter(|message| message.kind == MessageKind::Assistant) else {
            return Ok(());
        };
        let ids: Vec<u32> = message.token_ids().collect();
        if text.is_empty() {
            self.delete(item);
            return Ok(());
        }
        let (keep, kept) = model.tokenizer.common_prefix(&ids, text);
        if text.len() - kept > MAX_STRETCH {
            return Err(text_error(&TextError::TooLong));
        }
        let rest = model.tokenizer.encode(&text[kept..]).map_err(|error| text_error(&error))?;
        message.truncate_text(keep, rest);
        self.changed = true;
        Ok(())
    }

    /// Drops audio of an item that was not encoded or heard yet, and its transcripts.
    pub(super) fn drop_audio(&mut self, item: ItemId) {
        self.recognitions.remove(WindowTarget::Item(item));
        self.cancel_followed(|followed| followed.item == item);
        self.pending_windows.retain(|window| window.target != WindowTarget::Item(item));
        self.pending_sounds.retain(|sound| sound.target != WindowTarget::Item(item));
    }
}
