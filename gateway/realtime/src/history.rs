//! Conversation items in wire form. The engine keeps its own history under the ids in [`HistoryEntry::engine`].

use repartee_engine_api::{InsertAt, ItemId};
use repartee_protocol::extension::EventExtension;
use repartee_protocol::item::{FunctionCall, Item, ItemAdded, ItemContent, ItemStatus};

use super::echo::{SHORTENED, shorten};

/// Maximum size of a conversation in bytes, as [`held_bytes`] counts it.
const MAX_BYTES: usize = 4 << 20;
/// Bytes counted per item in addition to what it holds: its entry, its ids, and its place in the engine.
const ITEM_BYTES: usize = 512;

/// Conversation items, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    entries: Vec<HistoryEntry>,
    /// Size in bytes, as counted by [`History::has_capacity`].
    bytes: usize,
}

/// Conversation item with its engine ids.
#[derive(Debug)]
pub(super) struct HistoryEntry {
    /// Wire id of the item.
    pub id: String,
    /// Wire form of the item, without audio.
    pub item: Item,
    /// Engine ids of the item, in order. A message of several parts has several; the engine item of a response belongs to its
    /// message, or without one to its first call; an item without remaining content has none.
    pub engine: Vec<ItemId>,
    /// Engine item of the whole response that contains this function call; `None` if the call is not part of one.
    pub within: Option<ItemId>,
    /// Duration of the item's response audio, in ms.
    pub audio_ms: u64,
    /// Speed of this audio beside the model's: it is that of the text, played faster or slower.
    pub speed: f64,
    /// True if the item was truncated to the heard part.
    pub truncated: bool,
}

/// Function call that the engine item of its response no longer contains.
#[derive(Debug)]
pub(super) struct DetachedCall {
    /// Wire id of the call's entry.
    pub id: String,
    pub name: String,
    pub arguments: String,
}

impl HistoryEntry {
    /// Creates an entry for `item`, and sets the item's id to `id`.
    pub fn new(id: String, mut item: Item, engine: Vec<ItemId>) -> Self {
        *item.id_mut() = Some(id.clone());
        Self { id, item, engine, within: None, audio_ms: 0, speed: 1.0, truncated: false }
    }

    /// True if the audio of a spoken item is that of all its text. The text of a response that was stopped is ahead of its
    /// audio.
    pub fn has_all_audio(&self) -> bool {
        let stopped = matches!(&self.item, Item::Message(message) if message.status == ItemStatus::Incomplete);
        self.truncated || !stopped
    }

    /// Item as an event repeats it, with a warning if it is shortened.
    pub fn repeated(&self) -> (Item, EventExtension) {
        let mut item = self.item.clone();
        let warnings = if shorten(&mut item, held_bytes(&self.item)) { vec![SHORTENED.to_owned()] } else { Vec::new() };
        (item, EventExtension { warnings })
    }

    /// Returns the transcript if the item is a spoken response.
    pub fn transcript(&self) -> Option<&str> {
        let Item::Message(message) = &self.item else { return None };
        match message.content.first() {
            Some(ItemContent::OutputAudio { transcript }) => Some(transcript.as_deref().unwrap_or_default()),
            _ => None,
        }
    }
}

/// Number of bytes that `item` holds in memory, its media excepted: text, and every part even if it is empty.
pub(super) fn held_bytes(item: &Item) -> usize {
    match item {
        Item::Message(message) => {
            let text: usize = message.content.iter().map(content_bytes).sum();
            text + message.content.len() * size_of::<ItemContent>()
        }
        Item::FunctionCall(call) => {
            call.call_id.as_ref().map_or(0, String::len) + call.name.len() + call.arguments.len()
        }
        Item::FunctionCallOutput(output) => output.call_id.len() + output.output.len(),
    }
}

fn content_bytes(content: &ItemContent) -> usize {
    match content {
        ItemContent::InputText { text } | ItemContent::OutputText { text } => text.len(),
        ItemContent::InputAudio { audio: _, transcript } | ItemContent::OutputAudio { transcript } => {
            transcript.as_ref().map_or(0, String::len)
        }
        // The bytes of an image are dropped.
        ItemContent::InputImage { .. } => 0,
    }
}

fn call_id_of(entry: &HistoryEntry) -> Option<&str> {
    match &entry.item {
        Item::FunctionCall(FunctionCall { call_id, .. }) => call_id.as_deref(),
        Item::Message(_) | Item::FunctionCallOutput(_) => None,
    }
}

fn cost(item: &Item) -> usize {
    held_bytes(item) + ITEM_BYTES
}

impl History {
    /// True if an item that holds `bytes` bytes fits.
    pub fn has_capacity(&self, bytes: usize) -> bool {
        self.bytes + bytes + ITEM_BYTES <= MAX_BYTES
    }

    pub fn push(&mut self, entry: HistoryEntry) {
        self.insert(self.entries.len(), entry);
    }

    pub fn insert(&mut self, index: usize, entry: HistoryEntry) {
        self.bytes += cost(&entry.item);
        self.entries.insert(index, entry);
    }

    /// Returns the index for an item inserted after `previous` (`root` for the beginning, `None` for the end); `None` if there
    /// is no such item.
    pub fn index_after(&self, previous: Option<&str>) -> Option<usize> {
        match previous {
            None => Some(self.entries.len()),
            Some("root") => Some(0),
            Some(id) => self.position(id).map(|index| index + 1),
        }
    }

    /// Returns the engine's insert position for an item at `index`.
    pub fn insert_position(&self, index: usize) -> InsertAt {
        if index >= self.entries.len() {
            return InsertAt::End;
        }
        let before = self.entries[..index].iter().rev().find_map(|entry| entry.engine.last());
        before.map_or(InsertAt::Start, |item| InsertAt::After(*item))
    }

    /// Returns the index of the newest function call with this `call_id`.
    pub fn call(&self, call_id: &str) -> Option<usize> {
        self.entries.iter().rposition(|entry| call_id_of(entry) == Some(call_id))
    }

    /// Returns the engine's insert position for the result of a function call: after the call, and after the results of the calls
    /// before it in the same response. A model matches results to calls by their order. `None` if the engine has no such call.
    pub fn result_position(&self, call_id: &str) -> Option<InsertAt> {
        let mut index = self.call(call_id)?;
        loop {
            let entry = &self.entries[index];
            // All calls of a response are part of one engine item, which maps to the response's message or else to its first call.
            let own = entry.engine.last().copied();
            let result = call_id_of(entry).filter(|id| *id != call_id).and_then(|id| self.result(id));
            if let Some(item) = result.or(own) {
                return Some(InsertAt::After(item));
            }
            call_id_of(entry)?;
            index = index.checked_sub(1)?;
        }
    }

    /// Detaches all function calls from the engine item `item`. Returns the complete ones, oldest first, and the engine's insert
    /// position of the first. Incomplete calls are dropped: a model cannot use them.
    pub fn take_calls_within(&mut self, item: ItemId) -> (Vec<DetachedCall>, InsertAt) {
        let (mut calls, mut first) = (Vec::new(), None);
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let Some(Item::FunctionCall(call)) = entry.within.take_if(|within| *within == item).map(|_| &entry.item)
            else {
                continue;
            };
            entry.engine.clear();
            if call.status == ItemStatus::Completed {
                first.get_or_insert(index);
                let (id, name, arguments) = (entry.id.clone(), call.name.clone(), call.arguments.clone());
                calls.push(DetachedCall { id, name, arguments });
            }
        }
        let place = first.map_or(InsertAt::End, |first| self.insert_position(first));
        (calls, place)
    }

    /// Returns the text of the message that maps to the engine item `item`.
    pub fn text_of(&self, item: ItemId) -> Option<String> {
        let of = |entry: &&HistoryEntry| matches!(entry.item, Item::Message(_)) && entry.engine == [item];
        let Item::Message(message) = &self.entries.iter().rev().find(of)?.item else { return None };
        match message.content.first()? {
            ItemContent::OutputText { text } => Some(text.clone()),
            ItemContent::OutputAudio { transcript } => transcript.clone(),
            ItemContent::InputText { .. } | ItemContent::InputAudio { .. } | ItemContent::InputImage { .. } => None,
        }
    }

    /// Returns the engine id of the newest result of a function call.
    fn result(&self, call_id: &str) -> Option<ItemId> {
        let of = |entry: &&HistoryEntry| matches!(&entry.item, Item::FunctionCallOutput(output) if output.call_id == call_id);
        self.entries.iter().rev().find(of).and_then(|entry| entry.engine.last().copied())
    }

    /// Returns the items, oldest first.
    pub fn entries(&self) -> &[HistoryEntry] {
        &self.entries
    }

    pub fn first_id(&self) -> Option<&str> {
        self.entries.first().map(|entry| entry.id.as_str())
    }

    pub fn last_id(&self) -> Option<&str> {
        self.entries.last().map(|entry| entry.id.as_str())
    }

    pub fn find(&self, id: &str) -> Option<&HistoryEntry> {
        self.position(id).map(|index| &self.entries[index])
    }

    /// Changes an item; does nothing if it does not exist.
    pub fn change(&mut self, id: &str, change: impl FnOnce(&mut HistoryEntry)) {
        let Some(index) = self.position(id) else { return };
        let entry = &mut self.entries[index];
        self.bytes -= cost(&entry.item);
        change(entry);
        self.bytes += cost(&entry.item);
    }

    pub fn remove(&mut self, id: &str) -> Option<HistoryEntry> {
        let entry = self.entries.remove(self.position(id)?);
        self.bytes -= cost(&entry.item);
        Some(entry)
    }

    /// Creates the payload of `conversation.item.added` and `.done`.
    pub fn added(&self, id: &str) -> Option<ItemAdded> {
        let index = self.position(id)?;
        let previous_item_id = index.checked_sub(1).map(|before| self.entries[before].id.clone());
        let (item, repartee) = self.entries[index].repeated();
        Some(ItemAdded { previous_item_id, item, repartee })
    }

    /// True if a function call waits for its output.
    pub fn has_open_call(&self) -> bool {
        self.entries.iter().any(|entry| match &entry.item {
            Item::FunctionCall(call) if call.status != ItemStatus::Incomplete => {
                call.call_id.as_deref().is_none_or(|id| !self.has_output(id))
            }
            _ => false,
        })
    }

    fn has_output(&self, call_id: &str) -> bool {
        let of =
            |entry: &HistoryEntry| matches!(&entry.item, Item::FunctionCallOutput(output) if output.call_id == call_id);
        self.entries.iter().any(of)
    }

    fn position(&self, id: &str) -> Option<usize> {
        // Searches from the end: most lookups are for recent items.
        self.entries.iter().rposition(|entry| entry.id == id)
    }
}
