//! A transcript being written, as its caller sees it.

use repartee_engine_api::{Event, ItemId};

/// Transcript being written.
pub(super) struct InputTranscript {
    item: ItemId,
    text: String,
}

impl InputTranscript {
    /// Creates the empty transcript of an item.
    pub(super) fn new(item: ItemId) -> Self {
        Self { item, text: String::new() }
    }

    /// Turns the next piece of text into the event of a transcript. Other events, and those of a response, stay.
    pub(super) fn event(transcript: &mut Option<Self>, event: Event) -> Event {
        match (transcript, event) {
            (Some(Self { item, text }), Event::Text { response, text: piece }) => {
                text.push_str(&piece);
                // The model appends alone.
                Event::InputText { response: Some(response), item: *item, text: text.clone(), stable: text.len() }
            }
            (_, event) => event,
        }
    }
}
