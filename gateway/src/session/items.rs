//! What a client does to the items of the conversation.

use repartee_engine::session::{Command, Role as EngineRole};

use super::Core;
use super::history::{Entry, Kind};
use crate::protocol::item::{Content, Create, Item, Message, Name, Role, Shown, Status, Truncate};
use crate::protocol::response::Reason;
use crate::protocol::{ErrorBody, ErrorKind, ServerEvent};

/// The longest id that a client may choose, in bytes.
const MAX_ID: usize = 128;

impl Core {
    /// Tells the client about an item that is whole from the start.
    pub(super) fn show_item(&mut self, id: &str) {
        if let Some(placed) = self.history.placed(id) {
            self.send(ServerEvent::ItemAdded(placed.clone()));
            self.send(ServerEvent::ItemDone(placed));
        }
    }

    pub(super) fn create_item(&mut self, create: Create) -> Result<(), ErrorBody> {
        let Item::Message(message) = create.item;
        let text = spoken_text(&message)?;
        self.check_place(create.previous_item_id.as_deref())?;
        if !self.history.has_room(text.len()) {
            let message = "the conversation is full: delete items first";
            return Err(ErrorBody::invalid(ErrorKind::ConversationTooLarge, message));
        }
        let (generated, item) = self.new_item();
        let id = message.id.unwrap_or(generated);
        if id.is_empty() || id.len() > MAX_ID {
            let message = format!("an item's id has 1 to {MAX_ID} bytes");
            return Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).at("item.id"));
        }
        if self.history.find(&id).is_some() || self.hearing.turn().is_some_and(|turn| turn.item_id == id) {
            let message = format!("an item with the id `{id}` exists already");
            return Err(ErrorBody::invalid(ErrorKind::DuplicateItem, message).at("item.id"));
        }
        let (kind, role) = match message.role {
            Role::System => (Kind::System, EngineRole::System),
            Role::User => (Kind::UserText, EngineRole::User),
            Role::Assistant => (Kind::AssistantText, EngineRole::Assistant),
        };
        self.command(Command::text(item, role, text.clone()));
        self.history.push(Entry { id: id.clone(), item, kind, status: Status::Completed, text, audio_ms: 0 });
        self.show_item(&id);
        Ok(())
    }

    /// Items go to the end: `previous` must name it.
    fn check_place(&self, previous: Option<&str>) -> Result<(), ErrorBody> {
        let Some(previous) = previous else { return Ok(()) };
        let last = self.history.last_id();
        if last == Some(previous) || (last.is_none() && previous == "root") {
            return Ok(());
        }
        let known = previous == "root" || self.history.find(previous).is_some();
        let error = if known {
            ErrorBody::invalid(ErrorKind::InvalidValue, "items can only be added at the end of the conversation")
        } else {
            ErrorBody::invalid(ErrorKind::PreviousUnknown, "there is no item with this id to insert after")
        };
        Err(error.at("previous_item_id"))
    }

    pub(super) fn delete_item(&mut self, name: Name) -> Result<(), ErrorBody> {
        let unknown = || ErrorBody::invalid(ErrorKind::DeleteUnknown, "there is no item with this id").at("item_id");
        if self.answer.as_ref().is_some_and(|answer| answer.announced && answer.item_id == name.item_id) {
            // Its history goes, so making more of it is in vain.
            self.stop_answer(Reason::ClientCancelled);
        }
        let entry = self.history.remove(&name.item_id).ok_or_else(unknown)?;
        self.command(Command::Delete { item: entry.item });
        self.send(ServerEvent::ItemDeleted(name));
        Ok(())
    }

    pub(super) fn retrieve_item(&mut self, name: &Name) -> Result<(), ErrorBody> {
        let entry = self.history.find(&name.item_id).ok_or_else(|| {
            ErrorBody::invalid(ErrorKind::RetrieveUnknown, "there is no item with this id").at("item_id")
        })?;
        let item = entry.wire();
        self.send(ServerEvent::ItemRetrieved(Shown { item }));
        Ok(())
    }
}

impl Core {
    /// The client's word on what was heard. Positions beyond the end are clamped.
    pub(super) fn truncate_item(&mut self, truncate: &Truncate) -> Result<(), ErrorBody> {
        let entry = self.history.find(&truncate.item_id).filter(|entry| entry.kind == Kind::AssistantAudio);
        let Some(entry) = entry else {
            let message = "there is no spoken answer with this id";
            return Err(ErrorBody::invalid(ErrorKind::TruncateUnknown, message).at("item_id"));
        };
        if truncate.content_index != 0 {
            let message = "an answer has one content part";
            return Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).at("content_index"));
        }
        let id = entry.id.clone();
        match &mut self.answer {
            // Still being made: it stops here, and is cut once the engine has stopped.
            Some(answer) if answer.announced && answer.item_id == id => {
                let made_ms = answer.made_ms(self.setup.model.output_rate);
                answer.truncate_at = Some(truncate.audio_end_ms.min(made_ms));
                self.stop_answer(Reason::ClientCancelled);
            }
            _ => self.cut_item(&id, truncate.audio_end_ms, true),
        }
        Ok(())
    }

    /// Keeps what was heard of a spoken answer in `heard_ms`. `whole` says that no more sound would have come.
    pub(super) fn cut_item(&mut self, id: &str, heard_ms: u64, whole: bool) {
        let Some(entry) = self.history.find_mut(id) else { return };
        let heard_ms = heard_ms.min(entry.audio_ms);
        let kept = self.estimator.heard(&entry.text, heard_ms, entry.audio_ms, whole).to_owned();
        entry.text.clone_from(&kept);
        entry.audio_ms = heard_ms;
        let item = entry.item;
        self.command(Command::Truncate { item, text: kept });
        let truncated = Truncate { item_id: id.to_owned(), content_index: 0, audio_end_ms: heard_ms };
        self.send(ServerEvent::ItemTruncated(truncated));
    }
}

/// The text of a message that a client writes.
fn spoken_text(message: &Message) -> Result<String, ErrorBody> {
    let mut text = String::new();
    for (index, part) in message.content.iter().enumerate() {
        let piece = match (message.role, part) {
            (Role::System | Role::User, Content::InputText { text }) => Some(text),
            (Role::Assistant, Content::OutputText { text }) => Some(text),
            // What was said aloud in an earlier conversation.
            (Role::Assistant, Content::OutputAudio { transcript: Some(text) }) => Some(text),
            (Role::User, Content::InputAudio { transcript: Some(text), .. }) => Some(text),
            _ => None,
        };
        match piece {
            Some(piece) => text.push_str(piece),
            None => {
                let message = "this kind of content cannot be added: write text, or append sound to the input buffer";
                let param = format!("item.content[{index}].type");
                return Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).at(param));
            }
        }
    }
    if text.is_empty() {
        return Err(ErrorBody::invalid(ErrorKind::InvalidValue, "the message is empty").at("item.content"));
    }
    Ok(text)
}
