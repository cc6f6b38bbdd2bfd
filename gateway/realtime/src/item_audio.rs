//! Audio of the items of one client event, decoded before the session handles the event: that takes long, and the
//! session answers at once.

use std::collections::VecDeque;

use repartee_protocol::item::{Item, ItemContent, ItemRole};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ClientEvent, ErrorBody};
use serde_json::Value;

use super::audio;

/// Decoded audio of the items of one event, in their order.
#[derive(Debug, Default)]
pub struct ItemAudio {
    parts: VecDeque<Result<Vec<f32>, ErrorBody>>,
}

impl ItemAudio {
    /// Number of base64 letters of audio in the items of `event`.
    pub fn encoded_len(event: &mut ClientEvent) -> usize {
        let mut length = 0;
        each_audio(event, &mut |audio| length += audio.len());
        length
    }

    /// Takes the audio out of the items of `event`, and decodes it from `format` to samples at `rate`, the model's input
    /// rate. Calls `pause` after each piece of work, and gives up if it returns false: then the event is of no use.
    pub fn take(event: &mut ClientEvent, format: AudioFormat, rate: u32, mut pause: impl FnMut() -> bool) -> Self {
        let mut parts = VecDeque::new();
        each_audio(event, &mut |audio| {
            // The text stays as a mark of the part, without its memory.
            parts.push_back(audio::item_audio(&std::mem::take(audio), format, rate, &mut pause));
        });
        Self { parts }
    }

    /// Returns the audio of the next part; `None` if none was decoded before.
    pub(super) fn next(&mut self) -> Option<Result<Vec<f32>, ErrorBody>> {
        self.parts.pop_front()
    }
}

/// Visits the audio of an event's items in the order in which the session reads it.
fn each_audio(event: &mut ClientEvent, visit: &mut dyn FnMut(&mut String)) {
    match event {
        ClientEvent::ItemCreate(create) => {
            let Item::Message(message) = &mut create.item else { return };
            for part in &mut message.content {
                if let (ItemRole::User, ItemContent::InputAudio { audio: Some(audio), .. }) = (message.role, part) {
                    visit(audio);
                }
            }
        }
        // The parameters of a response are read later.
        ClientEvent::ResponseCreate(create) => {
            let input = create.response.as_mut().and_then(|response| response.get_mut("input"));
            for item in input.and_then(Value::as_array_mut).into_iter().flatten() {
                if item["type"] != "message" || item["role"] != "user" {
                    continue;
                }
                for part in item.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten() {
                    if part["type"] == "input_audio"
                        && let Some(Value::String(audio)) = part.get_mut("audio")
                    {
                        visit(audio);
                    }
                }
            }
        }
        _ => {}
    }
}
