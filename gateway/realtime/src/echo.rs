//! Items as events repeat them. Clients take messages of 1 MiB by default, and an item may be larger.

use repartee_protocol::item::{Item, ItemContent};

/// Maximum size of a repeated item, in bytes of JSON: the rest of the event has room up to 1 MiB.
const MAX_ECHO: usize = (1 << 20) - (16 << 10);
/// Bytes of JSON that one byte of text takes at most, as in `\u0001`.
const MAX_ESCAPE: usize = 6;

/// Warning of an event whose item is shortened.
pub(super) const SHORTENED: &str =
    "the item is too large to repeat: its text is cut in this event, and whole in the conversation";

/// Shortens the texts of an item that is too large for an event; true if it was. `held` is the size of its texts.
pub(super) fn shorten(item: &mut Item, held: usize) -> bool {
    if held.saturating_mul(MAX_ESCAPE) <= MAX_ECHO {
        return false;
    }
    let whole = serde_json::to_string(item).map_or(usize::MAX, |json| json.len());
    if whole <= MAX_ECHO {
        return false;
    }
    let texts = texts(item);
    let frame = whole.saturating_sub(texts.iter().map(|text| json_bytes(text)).sum());
    let mut left = MAX_ECHO.saturating_sub(frame);
    for text in texts {
        let mut end = 0;
        for (at, character) in text.char_indices() {
            let bytes = escaped(character);
            if bytes > left {
                break;
            }
            left -= bytes;
            end = at + character.len_utf8();
        }
        text.truncate(end);
    }
    true
}

fn texts(item: &mut Item) -> Vec<&mut String> {
    match item {
        Item::Message(message) => {
            let parts = message.content.iter_mut();
            let texts = parts.filter_map(|part| match part {
                ItemContent::InputText { text } | ItemContent::OutputText { text } => Some(text),
                ItemContent::InputAudio { transcript, .. } | ItemContent::OutputAudio { transcript } => {
                    transcript.as_mut()
                }
                ItemContent::InputImage { .. } => None,
            });
            texts.collect()
        }
        Item::FunctionCall(call) => vec![&mut call.arguments],
        Item::FunctionCallOutput(output) => vec![&mut output.output],
    }
}

/// Size of `text` as JSON without its quotes, in bytes.
pub(super) fn json_bytes(text: &str) -> usize {
    text.chars().map(escaped).sum()
}

fn escaped(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => MAX_ESCAPE,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn escapes_are_counted_as_they_are_written() {
        for text in ["plain", "\"\\\n\r\t\u{8}\u{c}", "\0\u{1}\u{1f}", "ä€\u{1F600}\u{7f}"] {
            assert_eq!(json_bytes(text), serde_json::to_string(text).unwrap().len() - 2, "{text:?}");
        }
    }

    #[test]
    fn large_items_fit_into_a_message() {
        let parts = |text: &str, n: usize| {
            let part = json!({"type": "input_text", "text": text});
            json!({"type": "message", "role": "user", "content": vec![part; n]})
        };
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "\u{1}".repeat(400_000)});
        for item in [parts(&"word ".repeat(240_000), 1), parts(&"\n".repeat(100), 8_000), output] {
            let mut item: Item = serde_json::from_value(item).unwrap();
            assert!(shorten(&mut item, 2 << 20));
            let bytes = serde_json::to_string(&item).unwrap().len();
            assert!((MAX_ECHO - 64..=MAX_ECHO).contains(&bytes), "{bytes}");
        }
        let mut small: Item = serde_json::from_value(parts(&"word ".repeat(40_000), 1)).unwrap();
        assert!(!shorten(&mut small, 200_000));
    }
}
