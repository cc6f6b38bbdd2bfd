//! The items of a conversation, in order: the truth of which the stages' caches are copies.

use repartee_engine_api::{InsertAt, ItemId, SessionError};

use crate::stage::Message;

/// An entry of the history.
#[derive(Debug)]
pub struct Entry<T> {
    /// The caller's name for it.
    pub id: ItemId,
    /// What it is.
    pub message: Message<T>,
}

/// See the module's description.
#[derive(Debug)]
pub struct History<T> {
    entries: Vec<Entry<T>>,
    /// Whether old items made room for new ones: then a neighbour that is not there stood before all others.
    forgot: bool,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), forgot: false }
    }
}

impl<T> History<T> {
    /// All items, the oldest first.
    pub fn items(&self) -> &[Entry<T>] {
        &self.entries
    }

    /// Whether an item is there.
    pub fn knows(&self, id: ItemId) -> bool {
        self.position(id).is_some()
    }

    /// Where an item stands.
    pub fn position(&self, id: ItemId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == id)
    }

    /// What an item says.
    pub fn get(&self, id: ItemId) -> Option<&Message<T>> {
        self.entries.iter().find(|entry| entry.id == id).map(|entry| &entry.message)
    }

    /// What an item says, to be changed.
    pub fn get_mut(&mut self, id: ItemId) -> Option<&mut Message<T>> {
        self.entries.iter_mut().find(|entry| entry.id == id).map(|entry| &mut entry.message)
    }

    /// Puts a new item in.
    pub fn insert(&mut self, id: ItemId, place: InsertAt, message: Message<T>) -> Result<(), SessionError> {
        if self.knows(id) {
            return Err(SessionError::DuplicateItem(id));
        }
        let at = match place {
            InsertAt::End => self.entries.len(),
            InsertAt::Start => 0,
            InsertAt::After(neighbour) => match self.position(neighbour) {
                Some(position) => position + 1,
                None if self.forgot => 0,
                None => return Err(SessionError::UnknownItem(neighbour)),
            },
        };
        self.entries.insert(at, Entry { id, message });
        Ok(())
    }

    /// Takes an item out; false if it was not there.
    pub fn remove(&mut self, id: ItemId) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.id != id);
        self.entries.len() < before
    }

    /// Forgets the oldest item, and says which it was.
    pub fn forget_oldest(&mut self) -> Option<ItemId> {
        if self.entries.is_empty() {
            return None;
        }
        self.forgot = true;
        Some(self.entries.remove(0).id)
    }
}
