//! The conversation's items as the wire shows them. The engine keeps its own history under [`Entry::item`].

use repartee_engine::session::ItemId;

use crate::protocol::item::{Content, Item, ItemObject, Message, Placed, Role, Status};

/// The most that a conversation may hold, in bytes of text; an item counts for [`ITEM_BYTES`] on top.
const MAX_BYTES: usize = 4 << 20;
/// What an item costs beside its text.
const ITEM_BYTES: usize = 512;

/// The items, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    entries: Vec<Entry>,
}

/// One item.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its name on the wire.
    pub id: String,
    /// Its name in the engine.
    pub item: ItemId,
    /// What it is.
    pub kind: Kind,
    /// How far it is.
    pub status: Status,
    /// What it says; empty for sound of the caller.
    pub text: String,
    /// How much sound it holds.
    pub audio_ms: u64,
}

/// Who says an item, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Instructions in between.
    System,
    /// The caller wrote.
    UserText,
    /// The caller spoke.
    UserAudio,
    /// The model writes.
    AssistantText,
    /// The model speaks.
    AssistantAudio,
}

impl Entry {
    /// The item as the wire shows it.
    pub fn wire(&self) -> Item {
        let (role, content) = match self.kind {
            Kind::System => (Role::System, Content::InputText { text: self.text.clone() }),
            Kind::UserText => (Role::User, Content::InputText { text: self.text.clone() }),
            Kind::UserAudio => (Role::User, Content::InputAudio { audio: None, transcript: None }),
            Kind::AssistantText => (Role::Assistant, Content::OutputText { text: self.text.clone() }),
            Kind::AssistantAudio => (Role::Assistant, Content::OutputAudio { transcript: Some(self.text.clone()) }),
        };
        // An item that is still being made has no parts yet: they are announced one by one.
        let content = if self.status == Status::InProgress { Vec::new() } else { vec![content] };
        let id = Some(self.id.clone());
        Item::Message(Message { id, object: ItemObject::Value, status: self.status, role, content })
    }
}

impl History {
    /// Whether an item of about this much text still fits.
    pub fn has_room(&self, text: usize) -> bool {
        let held: usize = self.entries.iter().map(|entry| entry.text.len() + ITEM_BYTES).sum();
        held + text + ITEM_BYTES <= MAX_BYTES
    }

    pub fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub fn last_id(&self) -> Option<&str> {
        self.entries.last().map(|entry| entry.id.as_str())
    }

    pub fn find(&self, id: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    pub fn find_mut(&mut self, id: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    pub fn remove(&mut self, id: &str) -> Option<Entry> {
        let index = self.entries.iter().position(|entry| entry.id == id)?;
        Some(self.entries.remove(index))
    }

    /// The item and the one before it, for `conversation.item.added` and `.done`.
    pub fn placed(&self, id: &str) -> Option<Placed> {
        let index = self.entries.iter().position(|entry| entry.id == id)?;
        let previous_item_id = index.checked_sub(1).map(|before| self.entries[before].id.clone());
        Some(Placed { previous_item_id, item: self.entries[index].wire() })
    }
}
