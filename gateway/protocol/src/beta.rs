//! Names of the beta interface, which clients still send: each is moved to its present place, with a warning that gives
//! the present name.

use serde_json::{Map, Value, json};

/// Warning to a client that asks for the beta interface by the header `OpenAI-Beta`.
pub const HEADER_WARNING: &str = "the header `OpenAI-Beta` asks for the beta interface, which is not served: events have \
     their present names (`response.output_audio.delta`, `response.output_audio_transcript.delta` and \
     `response.output_text.delta` in place of `response.audio.delta`, `response.audio_transcript.delta` and \
     `response.text.delta`)";

/// A beta name and the path of its present place.
type Renamed = (&'static str, &'static [&'static str]);

/// Fields of a session.
const SESSION: [Renamed; 9] = [
    ("modalities", &["output_modalities"]),
    ("voice", &["audio", "output", "voice"]),
    ("speed", &["audio", "output", "speed"]),
    ("input_audio_format", &["audio", "input", "format"]),
    ("output_audio_format", &["audio", "output", "format"]),
    ("input_audio_transcription", &["audio", "input", "transcription"]),
    ("input_audio_noise_reduction", &["audio", "input", "noise_reduction"]),
    ("turn_detection", &["audio", "input", "turn_detection"]),
    ("max_response_output_tokens", &["max_output_tokens"]),
];
/// Fields of a response.
const RESPONSE: [Renamed; 4] = [
    ("modalities", &["output_modalities"]),
    ("voice", &["audio", "output", "voice"]),
    ("output_audio_format", &["audio", "output", "format"]),
    ("max_response_output_tokens", &["max_output_tokens"]),
];
/// Beta names of audio formats.
const FORMATS: [(&str, &str); 3] = [("pcm16", "audio/pcm"), ("g711_ulaw", "audio/pcmu"), ("g711_alaw", "audio/pcma")];

/// Moves the beta fields of a session's update to their places; returns the warnings.
pub fn renew_session(session: &mut Value) -> Vec<String> {
    renew(session, "session", &SESSION)
}

/// Moves the beta fields of a response's request to their places; returns the warnings.
pub fn renew_response(response: &mut Value) -> Vec<String> {
    renew(response, "response", &RESPONSE)
}

fn renew(whole: &mut Value, root: &str, names: &[Renamed]) -> Vec<String> {
    let Some(fields) = whole.as_object_mut() else { return Vec::new() };
    let mut warnings = Vec::new();
    for (old, place) in names {
        let Some(value) = fields.remove(*old) else { continue };
        let present = format!("{root}.{}", place.join("."));
        let value = if old.ends_with("_format") { renewed_format(value) } else { value };
        warnings.push(match insert(fields, place, value) {
            Inserted::Yes => format!("{root}.{old} is the beta name of {present} and was served as that"),
            Inserted::Taken => format!("{root}.{old} is the beta name of {present}, which is set too, and was ignored"),
        });
    }
    warnings
}

enum Inserted {
    Yes,
    /// The place has a value, or its parent is no object.
    Taken,
}

fn insert(fields: &mut Map<String, Value>, place: &[&str], value: Value) -> Inserted {
    match place {
        [] => Inserted::Taken,
        [name] if fields.contains_key(*name) => Inserted::Taken,
        [name] => {
            fields.insert((*name).to_owned(), value);
            Inserted::Yes
        }
        [name, rest @ ..] => match fields.entry(*name).or_insert_with(|| json!({})) {
            Value::Object(inner) => insert(inner, rest, value),
            _ => Inserted::Taken,
        },
    }
}

/// Present form of an audio format; other values stay, and are refused by the path of their present place.
fn renewed_format(value: Value) -> Value {
    let known = value.as_str().and_then(|name| FORMATS.iter().find(|(old, _)| *old == name));
    match known {
        Some((_, "audio/pcm")) => json!({"type": "audio/pcm", "rate": 24_000}),
        Some((_, kind)) => json!({"type": kind}),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beta_fields_move_to_their_places() {
        let mut session = json!({"turn_detection": null, "modalities": ["text"], "voice": "ada",
            "input_audio_format": "g711_ulaw", "output_audio_format": "pcm16", "max_response_output_tokens": 7,
            "input_audio_transcription": {"model": "whisper-1"}, "instructions": "Sing."});
        let warnings = renew_session(&mut session);
        assert_eq!(
            session,
            json!({"instructions": "Sing.", "output_modalities": ["text"], "max_output_tokens": 7, "audio": {
                "input": {"turn_detection": null, "format": {"type": "audio/pcmu"},
                    "transcription": {"model": "whisper-1"}},
                "output": {"voice": "ada", "format": {"type": "audio/pcm", "rate": 24_000}}}})
        );
        assert_eq!(warnings.len(), 7);
        let expected =
            "session.turn_detection is the beta name of session.audio.input.turn_detection and was served as that";
        assert!(warnings.iter().any(|warning| warning == expected), "{warnings:?}");
    }

    #[test]
    fn present_names_win_over_beta_names() {
        let mut response = json!({"voice": "ada", "audio": {"output": {"voice": "bob"}}});
        let warnings = renew_response(&mut response);
        assert_eq!(response, json!({"audio": {"output": {"voice": "bob"}}}));
        assert!(warnings[0].ends_with("was ignored"), "{warnings:?}");
        let mut odd = json!({"voice": "ada", "audio": 5});
        assert_eq!(renew_session(&mut odd).len(), 1);
        assert_eq!(odd, json!({"audio": 5}));
    }
}
