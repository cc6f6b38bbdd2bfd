//! Items of a session, in order. The stages' caches are derived from them.

use repartee_engine_api::{InsertAt, ItemId, SessionError};

use super::heard_text::HeardText;
use crate::elements::Message;

/// One item of the history.
#[derive(Debug)]
pub struct HistoryItem {
    /// Id that the caller gave.
    pub id: ItemId,
    /// Content of the item.
    pub message: Message,
    /// Text that a recogniser heard in it, once it is complete.
    heard: Option<HeardText>,
}

/// Ordered items of a session.
#[derive(Debug, Default)]
pub struct History {
    entries: Vec<HistoryItem>,
    /// True if items were evicted; then an unknown neighbour counts as one before all others.
    evicted: bool,
}

impl History {
    /// All items, the oldest first.
    pub fn items(&self) -> &[HistoryItem] {
        &self.entries
    }

    /// True if the item exists.
    pub fn contains(&self, id: ItemId) -> bool {
        self.position(id).is_some()
    }

    /// Index of an item in the history.
    pub fn position(&self, id: ItemId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == id)
    }

    /// Content of an item, if it exists.
    pub fn get(&self, id: ItemId) -> Option<&Message> {
        self.entries.iter().find(|entry| entry.id == id).map(|entry| &entry.message)
    }

    /// Mutable content of an item, if it exists.
    pub fn get_mut(&mut self, id: ItemId) -> Option<&mut Message> {
        self.entries.iter_mut().find(|entry| entry.id == id).map(|entry| &mut entry.message)
    }

    /// Inserts an item; fails if its id is in use or its neighbour is unknown.
    pub fn insert(&mut self, id: ItemId, place: InsertAt, message: Message) -> Result<(), SessionError> {
        if self.contains(id) {
            return Err(SessionError::DuplicateItem(id));
        }
        let at = match place {
            InsertAt::End => self.entries.len(),
            InsertAt::Start => 0,
            InsertAt::After(neighbour) => match self.position(neighbour) {
                Some(position) => position + 1,
                None if self.evicted => 0,
                None => return Err(SessionError::UnknownItem(neighbour)),
            },
        };
        self.entries.insert(at, HistoryItem { id, message, heard: None });
        Ok(())
    }

    /// Text that a recogniser heard in an item; `None` before it is complete, and for other items.
    pub fn heard(&self, id: ItemId) -> Option<&HeardText> {
        self.entries.iter().find(|entry| entry.id == id)?.heard.as_ref()
    }

    /// Records the text that a recogniser heard in an item.
    pub fn set_heard(&mut self, id: ItemId, text: HeardText) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) {
            entry.heard = Some(text);
        }
    }

    /// Removes an item; false if there is none of that id.
    pub fn remove(&mut self, id: ItemId) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.id != id);
        self.entries.len() < before
    }

    /// Removes the `count` oldest items and returns their ids.
    pub fn evict(&mut self, count: usize) -> Vec<ItemId> {
        self.evicted |= count > 0;
        self.entries.drain(..count.min(self.entries.len())).map(|entry| entry.id).collect()
    }

    /// Removes the oldest item and returns its id.
    pub fn evict_oldest(&mut self) -> Option<ItemId> {
        if self.entries.is_empty() {
            return None;
        }
        self.evicted = true;
        Some(self.entries.remove(0).id)
    }
}
