//! Client events and their parser. A message is one JSON object with a `type`.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{ErrorBody, ErrorKind, abbreviate};
use super::json::JsonBounds;
use super::literal::literal;
use super::suggestion::closest;
use super::{input_audio, item, response, session, speech_synthesis};

/// A client event with its optional `event_id`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClientMessage {
    /// Id chosen by the client; an error about this event repeats it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Payload of the event.
    #[serde(flatten)]
    pub event: ClientEvent,
}

/// All events that a client may send.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum ClientEvent {
    /// Updates the session configuration.
    #[serde(rename = "session.update")]
    SessionUpdate(session::SessionUpdate),
    /// Appends audio to the input buffer.
    #[serde(rename = "input_audio_buffer.append")]
    InputAppend(input_audio::AudioAppend),
    /// Commits the input buffer as a user item.
    #[serde(rename = "input_audio_buffer.commit")]
    InputCommit,
    /// Clears the input buffer.
    #[serde(rename = "input_audio_buffer.clear")]
    InputClear,
    /// Stops the response and drops its unplayed audio.
    #[serde(rename = "output_audio_buffer.clear")]
    OutputClear,
    /// Adds an item to the conversation.
    #[serde(rename = "conversation.item.create")]
    ItemCreate(item::ItemCreate),
    /// Removes an item from the conversation.
    #[serde(rename = "conversation.item.delete")]
    ItemDelete(item::ItemRef),
    /// Requests an item of the conversation.
    #[serde(rename = "conversation.item.retrieve")]
    ItemRetrieve(item::ItemRef),
    /// Truncates a spoken item to its heard part.
    #[serde(rename = "conversation.item.truncate")]
    ItemTruncate(item::ItemTruncate),
    /// Requests a response.
    #[serde(rename = "response.create")]
    ResponseCreate(response::ResponseCreate),
    /// Cancels a response.
    #[serde(rename = "response.cancel")]
    ResponseCancel(response::ResponseCancel),
    /// Appends given text for a response to speak.
    #[serde(rename = "repartee.text.append")]
    TextAppend(speech_synthesis::TextAppend),
    /// Ends the given text.
    #[serde(rename = "repartee.text.done")]
    TextDone(speech_synthesis::TextAppendDone),
}

/// Fast path for `input_audio_buffer.append`, the only frequent and large event: parsed in one pass. A malformed or
/// different event falls back to the general parser.
#[derive(Deserialize)]
struct Append {
    #[serde(rename = "type")]
    _kind: AppendKind,
    event_id: Option<String>,
    audio: String,
}

literal!(
    /// The `type` field of the event.
    AppendKind = "input_audio_buffer.append"
);

/// Maximum size of an event that carries no audio, in bytes: instructions, functions, a long text.
pub const MAX_PLAIN_EVENT: usize = 1 << 20;

/// True for the kinds of events that may carry audio, and so be as large as a message may be.
fn may_carry_audio(kind: &str) -> bool {
    matches!(kind, "input_audio_buffer.append" | "conversation.item.create" | "response.create")
}

/// Fields common to all client events.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    event_id: Option<String>,
}

/// Types of all client events.
const KINDS: [&str; 13] = [
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "output_audio_buffer.clear",
    "conversation.item.create",
    "conversation.item.delete",
    "conversation.item.retrieve",
    "conversation.item.truncate",
    "response.create",
    "response.cancel",
    "repartee.text.append",
    "repartee.text.done",
];

impl ClientMessage {
    /// Parses one message.
    ///
    /// # Errors
    ///
    /// The error names the invalid field and, if readable, the `event_id`.
    pub fn parse(text: &str) -> Result<Self, Box<ErrorBody>> {
        JsonBounds::WIRE.check(text.as_bytes()).map_err(|error| Box::new(ErrorBody::from(error)))?;
        if let Ok(Append { event_id, audio, .. }) = serde_json::from_str(text) {
            return Ok(Self { event_id, event: ClientEvent::InputAppend(input_audio::AudioAppend { audio }) });
        }
        let head = head(text).map_err(Box::new)?;
        let named = |error: ErrorBody| Box::new(error.with_event_id(head.event_id.clone()));
        let Some(kind) = head.kind.as_deref() else {
            return Err(named(
                ErrorBody::invalid(ErrorKind::MissingField, "the event has no `type`").with_param("type"),
            ));
        };
        if text.len() > MAX_PLAIN_EVENT && !may_carry_audio(kind) {
            let message =
                format!("an event without audio holds at most {MAX_PLAIN_EVENT} bytes, this one has {}", text.len());
            return Err(named(ErrorBody::invalid(ErrorKind::TooLarge, message)));
        }
        let event = match kind {
            "session.update" => body(text).map(ClientEvent::SessionUpdate),
            "input_audio_buffer.append" => body(text).map(ClientEvent::InputAppend),
            "input_audio_buffer.commit" => Ok(ClientEvent::InputCommit),
            "input_audio_buffer.clear" => Ok(ClientEvent::InputClear),
            "output_audio_buffer.clear" => Ok(ClientEvent::OutputClear),
            "conversation.item.create" => body(text).map(ClientEvent::ItemCreate),
            "conversation.item.delete" => body(text).map(ClientEvent::ItemDelete),
            "conversation.item.retrieve" => body(text).map(ClientEvent::ItemRetrieve),
            "conversation.item.truncate" => body(text).map(ClientEvent::ItemTruncate),
            "response.create" => body(text).map(ClientEvent::ResponseCreate),
            "response.cancel" => body(text).map(ClientEvent::ResponseCancel),
            "repartee.text.append" => body(text).map(ClientEvent::TextAppend),
            "repartee.text.done" => body(text).map(ClientEvent::TextDone),
            other => {
                let hint = match (other, closest(other, KINDS)) {
                    ("transcription_session.update", _) => {
                        ": send `session.update` with a session of the type `transcription`, its present name"
                            .to_owned()
                    }
                    (_, Some(meant)) => format!(": did you mean `{meant}`?"),
                    (_, None) => String::new(),
                };
                let message = format!("unknown event type `{}`{hint}", abbreviate(other.to_owned(), 64));
                Err(ErrorBody::invalid(ErrorKind::UnknownEvent, message).with_param("type"))
            }
        };
        match event {
            Ok(event) => Ok(Self { event_id: head.event_id, event }),
            Err(error) => Err(named(error)),
        }
    }
}

fn head(text: &str) -> Result<Head<'_>, ErrorBody> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let invalid = |message: String| ErrorBody::invalid(ErrorKind::InvalidJson, message);
    let head = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        if error.inner().classify() != serde_json::error::Category::Data {
            return invalid(format!("the message is not JSON: {}", error.inner()));
        }
        let named = ErrorBody::from_path(&error, "");
        if named.param.as_deref() == Some("event_id") {
            return named;
        }
        let body = invalid(format!("an event is a JSON object with a string `type`: {}", named.message));
        match named.param {
            Some(param) => body.with_param(param),
            None => body,
        }
    })?;
    // One message is one value.
    reader.end().map_err(|error| invalid(format!("the message is not JSON: {error}")))?;
    Ok(head)
}

fn body<T: DeserializeOwned>(text: &str) -> Result<T, ErrorBody> {
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| ErrorBody::from_path(&error, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> ErrorBody {
        *ClientMessage::parse(text).unwrap_err()
    }

    #[test]
    fn event_keeps_its_id() {
        let message = ClientMessage::parse(r#"{"type":"input_audio_buffer.commit","event_id":"e1"}"#).unwrap();
        assert_eq!(message, ClientMessage { event_id: Some("e1".into()), event: ClientEvent::InputCommit });
    }

    #[test]
    fn append_reads_alike_in_any_form() {
        let append = |event_id: Option<&str>| ClientMessage {
            event_id: event_id.map(str::to_owned),
            event: ClientEvent::InputAppend(input_audio::AudioAppend { audio: "AA==".into() }),
        };
        for (text, event_id) in [
            (r#"{"type":"input_audio_buffer.append","audio":"AA=="}"#, None),
            (r#"{"audio":"AA==","event_id":"e","x":[1],"type":"input_audio_buffer.append"}"#, Some("e")),
            (r#"{"type":"input_audio\u005fbuffer.append","event_id":null,"audio":"AA\u003d="}"#, None),
        ] {
            assert_eq!(ClientMessage::parse(text), Ok(append(event_id)), "{text}");
        }
        assert_eq!(error(r#"{"type":"input_audio_buffer.append","audio":7}"#).param.as_deref(), Some("audio"));
    }

    #[test]
    fn invalid_json_has_its_own_error_code() {
        for text in ["", "{", "hello", "[1,2"] {
            assert_eq!(error(text).code, Some(ErrorKind::InvalidJson.code().into()), "{text}");
        }
        assert_eq!(error("[]").code, Some("invalid_json".into()));
        assert_eq!(error(r#"{"type":7}"#).code, Some("invalid_json".into()));
        assert_eq!(error(r#"{"type":7}"#).param.as_deref(), Some("type"));
        assert_eq!(error(r#"{"type":"response.cancel"} {}"#).code, Some("invalid_json".into()));
        assert_eq!(error(r#"{"type":"response.cancel","event_id":5}"#).param.as_deref(), Some("event_id"));
    }

    /// Paths of wrong types, and messages without names of our types.
    #[test]
    fn wrong_types_have_their_whole_path() {
        let item = |content: &str| {
            format!(
                r#"{{"type":"conversation.item.create","item":{{"type":"message","role":"user","content":{content}}}}}"#
            )
        };
        for (text, param) in [
            (r#"{"type":"session.update","session":{"type":"realtime"},"event_id":{}}"#.to_owned(), "event_id"),
            (r#"{"type":"conversation.item.create","item":5}"#.to_owned(), "item"),
            (r#"{"type":"conversation.item.create","item":{"role":"user"}}"#.to_owned(), "item.type"),
            (r#"{"type":"conversation.item.create","item":{"type":5}}"#.to_owned(), "item.type"),
            (r#"{"type":"conversation.item.create","item":{"type":"mcp_call"}}"#.to_owned(), "item.type"),
            (r#"{"type":"conversation.item.create","item":{"type":"message","role":"bot","content":[]}}"#.to_owned(), "item.role"),
            (r#"{"type":"conversation.item.create","item":{"type":"message","role":7,"content":[]}}"#.to_owned(), "item.role"),
            (r#"{"type":"conversation.item.create","item":{"type":"function_call","name":"f","arguments":{}}}"#.to_owned(), "item.arguments"),
            (r#"{"type":"conversation.item.create","item":{"type":"function_call_output","output":"x"}}"#.to_owned(), "item.call_id"),
            (r#"{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[],"status":3}}"#.to_owned(), "item.status"),
            (item("{}"), "item.content"),
            (item("[7]"), "item.content[0]"),
            (item(r#"[{"type":"input_text","text":5}]"#), "item.content[0].text"),
            (item(r#"[{"type":"input_text"}]"#), "item.content[0].text"),
            (item(r#"[{"type":"input_text","text":"a"},{"type":"input_audio","audio":[]}]"#), "item.content[1].audio"),
            (item(r#"[{"type":"input_video"}]"#), "item.content[0].type"),
            (item(r#"[{"type":"input_image","detail":"huge"}]"#), "item.content[0].detail"),
            (r#"{"type":"conversation.item.truncate","item_id":"a","content_index":-1,"audio_end_ms":0}"#.to_owned(), "content_index"),
        ] {
            let error = error(&text);
            assert_eq!(error.param.as_deref(), Some(param), "{text}: {}", error.message);
            for rust in ["struct", "enum", "u32", "f64", "Item", "variant"] {
                assert!(!error.message.contains(rust), "{text}: {}", error.message);
            }
        }
    }

    #[test]
    fn fields_tell_the_type_of_a_part() {
        let text = r#"{"type":"conversation.item.create","previous_item_id":null,"item":{"type":"message","role":"assistant",
            "id":null,"content":[{"text":"a"},{"transcript":"b","type":null}]}}"#;
        let ClientEvent::ItemCreate(create) = ClientMessage::parse(text).unwrap().event else { panic!("an item") };
        let item::Item::Message(message) = create.item else { panic!("a message") };
        let [item::ItemContent::OutputText { text }, item::ItemContent::OutputAudio { transcript: Some(spoken) }] =
            &message.content[..]
        else {
            panic!("{:?}", message.content)
        };
        assert_eq!((text.as_str(), spoken.as_str()), ("a", "b"));
    }

    #[test]
    fn error_names_the_event_and_the_field() {
        let missing = error(r#"{"type":"input_audio_buffer.append","event_id":"e2"}"#);
        assert_eq!(missing.event_id.as_deref(), Some("e2"));
        assert_eq!(missing.param.as_deref(), Some("audio"));
        assert_eq!(missing.code.as_deref(), Some("missing_required_parameter"));

        let wrong =
            error(r#"{"type":"conversation.item.truncate","item_id":"a","content_index":0,"audio_end_ms":"x"}"#);
        assert_eq!(wrong.param.as_deref(), Some("audio_end_ms"));
        assert_eq!(wrong.code.as_deref(), Some("invalid_value"));

        assert_eq!(error(r#"{"event_id":"e3"}"#).param.as_deref(), Some("type"));
        assert_eq!(error(r#"{"type":"party.start"}"#).code.as_deref(), Some("unknown_event_type"));
        let misspelt = error(r#"{"type":"session.upate"}"#).message;
        assert_eq!(misspelt, "unknown event type `session.upate`: did you mean `session.update`?");
        for kind in KINDS {
            let known = ClientMessage::parse(&format!("{{\"type\":\"{kind}\"}}"));
            assert!(known.err().is_none_or(|error| error.code.as_deref() != Some("unknown_event_type")), "{kind}");
        }
    }

    #[test]
    fn size_of_an_event_depends_on_its_kind() {
        let padded = |kind: &str, fields: &str, bytes: usize| {
            format!(r#"{{"type":"{kind}","event_id":"e"{fields},"x":"{}"}}"#, "x".repeat(bytes))
        };
        let update = padded("session.update", r#","session":{"type":"realtime"}"#, MAX_PLAIN_EVENT);
        assert_eq!(error(&update).code.as_deref(), Some("message_too_large"));
        assert_eq!(error(&update).event_id.as_deref(), Some("e"));
        assert_eq!(error(&padded("party.start", "", MAX_PLAIN_EVENT)).code.as_deref(), Some("message_too_large"));
        let append = padded("input_audio_buffer.append", r#","audio":"AA==""#, MAX_PLAIN_EVENT);
        assert!(ClientMessage::parse(&append).is_ok());
    }

    #[test]
    fn values_of_an_event_are_bounded() {
        let zeros = format!("[{}0]", "0,".repeat(JsonBounds::WIRE.values));
        let parts = format!("[{}]", vec![r#"{"type":"input_text","text":""}"#; 20_000].join(","));
        for text in [
            format!(r#"{{"type":"session.update","session":{{"type":"realtime","x":{zeros}}}}}"#),
            format!(r#"{{"type":"input_audio_buffer.append","audio":"AA==","x":{zeros}}}"#),
            format!(
                r#"{{"type":"conversation.item.create","item":{{"type":"message","role":"user","content":{parts}}}}}"#
            ),
            format!(r#"{{"type":"response.cancel","x":{}}}"#, "[".repeat(100_000)),
        ] {
            assert_eq!(error(&text).code.as_deref(), Some("message_too_large"), "{}", &text[..60]);
        }
    }

    #[test]
    fn unknown_fields_are_accepted() {
        let text = r#"{"type":"response.create","response":{"tool_choice":"auto","new_thing":1},"x":[]}"#;
        assert!(ClientMessage::parse(text).is_ok());
    }
}
