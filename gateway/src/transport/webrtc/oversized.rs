//! Server events larger than the caller's largest message: deltas are split, and an error names the size of others.

use repartee_protocol::error::ErrorEvent;
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent, ServerMessage};
use serde_json::{Map, Value};

/// Delta of sound, in base64.
const AUDIO_DELTA: &str = "response.output_audio.delta";
/// Deltas of text.
const TEXT_DELTAS: [&str; 4] = [
    "response.output_text.delta",
    "response.output_audio_transcript.delta",
    "response.function_call_arguments.delta",
    "conversation.item.input_audio_transcription.delta",
];
/// Characters of base64 that hold whole samples of any format: six bytes.
const WHOLE_SAMPLES: usize = 8;
/// Room for what makes the ids of the pieces different.
const NUMBER: usize = 16;
/// Smallest piece of a delta, in bytes; with less room the event is not split.
const MIN_PIECE: usize = 32;

/// Returns the messages of at most `limit` bytes that carry an event of this type.
pub(super) fn fit(kind: &str, text: String, limit: usize) -> Vec<String> {
    if text.len() <= limit {
        return vec![text];
    }
    let size = text.len();
    if let Some(pieces) = split(kind, &text, limit) {
        return pieces;
    }
    tracing::warn!(kind, size, limit, "an event exceeds the caller's largest message and was not sent");
    let mut error = too_large(kind, size, limit);
    error.retain(|error| error.len() <= limit);
    error
}

/// Splits a delta into events with parts of it; `None` for other events, or without room.
fn split(kind: &str, text: &str, limit: usize) -> Option<Vec<String>> {
    let is_audio = kind == AUDIO_DELTA;
    if !is_audio && !TEXT_DELTAS.contains(&kind) {
        return None;
    }
    let mut event: Map<String, Value> = serde_json::from_str(text).ok()?;
    let Some(Value::String(delta)) = event.insert("delta".to_owned(), Value::String(String::new())) else {
        return None;
    };
    let id = event.get("event_id")?.as_str()?.to_owned();
    let overhead = serde_json::to_string(&event).ok()?.len() + NUMBER;
    let room = limit.checked_sub(overhead).filter(|room| *room >= MIN_PIECE)?;
    let parts = if is_audio { audio_parts(&delta, room)? } else { text_parts(&delta, room) };
    let write = |(index, part): (usize, &str)| {
        event.insert("event_id".to_owned(), format!("{id}_{index}").into());
        event.insert("delta".to_owned(), part.into());
        serde_json::to_string(&event).ok()
    };
    parts.into_iter().enumerate().map(write).collect()
}

/// Cuts base64 between samples; `None` if it is not base64.
fn audio_parts(delta: &str, room: usize) -> Option<Vec<&str>> {
    let size = room / WHOLE_SAMPLES * WHOLE_SAMPLES;
    (0..delta.len()).step_by(size).map(|begin| delta.get(begin..delta.len().min(begin + size))).collect()
}

/// Cuts text between characters; `room` counts them as JSON writes them.
fn text_parts(delta: &str, room: usize) -> Vec<&str> {
    let (mut parts, mut begin, mut size) = (Vec::new(), 0, 0);
    for (at, letter) in delta.char_indices() {
        let written = match letter {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            other => other.len_utf8(),
        };
        if size + written > room {
            parts.push(&delta[begin..at]);
            (begin, size) = (at, 0);
        }
        size += written;
    }
    parts.push(&delta[begin..]);
    parts
}

/// Returns the error about an event that cannot be sent.
fn too_large(kind: &str, size: usize, limit: usize) -> Vec<String> {
    let message = format!(
        "the event {kind} has {size} bytes and was not sent: the caller takes messages of at most {limit} bytes \
         (a=max-message-size)"
    );
    let event = ServerEvent::Error(ErrorEvent { error: ErrorBody::server(ErrorKind::TooLarge, message) });
    let message = ServerMessage { event_id: format!("event_too_large_{size}"), event };
    // Serialisation of this type cannot fail.
    serde_json::to_string(&message).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, delta: &str) -> String {
        serde_json::json!({"type": kind, "event_id": "event_1", "item_id": "item_1", "delta": delta}).to_string()
    }

    /// Joins the deltas of the events, which are of one type and have different ids.
    fn joined(messages: &[String], kind: &str, limit: usize) -> String {
        let events: Vec<Value> = messages.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        let mut ids: Vec<_> = events.iter().map(|event| event["event_id"].as_str().unwrap()).collect();
        assert!(messages.iter().all(|text| text.len() <= limit), "{messages:?}");
        assert!(events.iter().all(|event| event["type"] == kind && event["item_id"] == "item_1"), "{events:?}");
        ids.dedup();
        assert_eq!(ids.len(), events.len());
        events.iter().map(|event| event["delta"].as_str().unwrap()).collect()
    }

    #[test]
    fn small_events_are_left_alone() {
        let text = event("session.updated", "x");
        assert_eq!(fit("session.updated", text.clone(), text.len()), [text]);
    }

    #[test]
    fn text_deltas_are_split_between_characters() {
        for delta in ["abcdefghij".repeat(400), "ä\"\\\n\u{1}😀".repeat(300), "x".repeat(999)] {
            for kind in TEXT_DELTAS {
                for limit in [200, 256, 1_000] {
                    let pieces = fit(kind, event(kind, &delta), limit);
                    assert!(pieces.len() > 1);
                    assert_eq!(joined(&pieces, kind, limit), delta);
                }
            }
        }
    }

    #[test]
    fn audio_deltas_are_split_between_samples() {
        let delta = "AAECAwQFBgcI".repeat(500) + "AA==";
        for limit in [200, 333, 4_000] {
            let pieces = fit(AUDIO_DELTA, event(AUDIO_DELTA, &delta), limit);
            assert_eq!(joined(&pieces, AUDIO_DELTA, limit), delta);
            let sizes = pieces.iter().map(|piece| serde_json::from_str::<Value>(piece).unwrap());
            let sizes: Vec<_> = sizes.map(|event| event["delta"].as_str().unwrap().len()).collect();
            assert!(sizes[..sizes.len() - 1].iter().all(|size| size % WHOLE_SAMPLES == 0), "{sizes:?}");
        }
    }

    #[test]
    fn other_events_become_errors_with_sizes() {
        let text = event("session.updated", &"x".repeat(70_000));
        let messages = fit("session.updated", text.clone(), 65_536);
        let error: Value = serde_json::from_str(&messages[0]).unwrap();
        assert_eq!((messages.len(), &error["type"]), (1, &"error".into()));
        assert_eq!(error["error"]["code"], "message_too_large");
        let message = error["error"]["message"].as_str().unwrap();
        let parts = ["session.updated".to_owned(), text.len().to_string(), "65536".to_owned()];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        // Not even the error fits.
        assert_eq!(fit("session.updated", text, 10), [""; 0]);
        let delta = event(AUDIO_DELTA, &"A".repeat(800));
        assert_eq!(fit(AUDIO_DELTA, delta, 90), [""; 0]);
    }
}
