//! `error` events, for programs (`code`, `param`) and for people (`message`). HTTP error responses carry the same body.

use serde::{Deserialize, Serialize};
use serde_path_to_error::Segment;

/// Payload of the `error` event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorEvent {
    /// Description of the error.
    pub error: ErrorBody,
}

/// Error body of events and HTTP responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Class of the error: `invalid_request_error` (the client can correct it) or `server_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Stable code of the error: [`ErrorKind::code`].
    pub code: Option<String>,
    /// Explanation for a person.
    pub message: String,
    /// Dotted path of the invalid field.
    pub param: Option<String>,
    /// Id of the client event that caused the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
}

/// Errors that Repartee reports. Clients handle some of the codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Message that is not a JSON object.
    InvalidJson,
    /// Event of an unknown type.
    UnknownEvent,
    /// Missing required field.
    MissingField,
    /// Unsupported value of a field.
    InvalidValue,
    /// Message over the size limit.
    TooLarge,
    /// Audio that is not base64, or not a whole number of samples.
    InvalidAudio,
    /// Turn or item with more audio than the model accepts.
    AudioTooLong,
    /// Conversation over the limit of the model or the server.
    ConversationTooLarge,
    /// Commit with less audio than the minimum.
    CommitEmpty,
    /// `response.create` during an active response.
    ActiveResponse,
    /// `response.cancel` without an active response.
    CancelNotActive,
    /// Item id that is already in use.
    DuplicateItem,
    /// Deletion of an unknown item.
    DeleteUnknown,
    /// Retrieval of an unknown item.
    RetrieveUnknown,
    /// Truncation of an unknown item, or of one without audio.
    TruncateUnknown,
    /// Insertion after an unknown item.
    PreviousUnknown,
    /// Result of an unknown function call.
    ToolCallUnknown,
    /// Transcription of a turn failed.
    TranscriptionFailed,
    /// Transcription session with a model that cannot transcribe.
    TranscriptionUnavailable,
    /// Translation by a model that cannot translate.
    TranslationUnavailable,
    /// Event about responses in a transcription session.
    TranscriptionSession,
    /// No free session slot.
    SessionLimit,
    /// Too many connections to the server.
    ConnectionLimit,
    /// Unknown call id.
    CallUnknown,
    /// Call of the server that nobody answered.
    CallNotAnswered,
    /// The node that owns the call does not answer.
    CallNodeUnreachable,
    /// SDP offer that cannot be answered.
    InvalidOffer,
    /// Request from a web page whose origin is not allowed.
    OriginNotAllowed,
    /// Request from another machine to a server without API keys.
    RemoteWithoutKeys,
    /// Request with an unknown `Host` to a server without API keys.
    HostNotAllowed,
    /// Required API key is missing.
    MissingKey,
    /// Unknown API key.
    InvalidKey,
    /// Expired ephemeral key.
    ExpiredKey,
    /// The node that holds the session of an ephemeral key does not answer.
    KeyIssuerUnreachable,
    /// API key without permission for this request.
    KeyInsufficient,
    /// Too many valid ephemeral keys.
    TooManyKeys,
    /// Too many calls from one client address.
    CallLimit,
    /// Requests from one client exceed the rate limit.
    RateLimit,
    /// Too many bytes of requests are in memory.
    BytesLimit,
    /// Unknown model name.
    UnknownModel,
    /// HTTP method that the path does not support.
    WrongMethod,
    /// Unknown path, or not a websocket request.
    NotFound,
    /// Call over the maximum session duration.
    SessionExpired,
    /// Client idle beyond the limit.
    SessionIdle,
    /// The server of the language model gave no answer, or a broken one.
    LanguageModelFailed,
    /// Server still loads its model.
    Starting,
    /// Server is shutting down.
    ShuttingDown,
    /// Disk of the server is full.
    StorageFull,
    /// Internal failure of the server.
    Internal,
}

impl ErrorKind {
    /// Returns the code on the wire.
    pub fn code(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid_json",
            Self::UnknownEvent => "unknown_event_type",
            Self::MissingField => "missing_required_parameter",
            Self::InvalidValue => "invalid_value",
            Self::TooLarge => "message_too_large",
            Self::InvalidAudio => "invalid_audio",
            Self::AudioTooLong => "input_audio_too_long",
            Self::ConversationTooLarge => "conversation_too_large",
            Self::CommitEmpty => "input_audio_buffer_commit_empty",
            Self::ActiveResponse => "conversation_already_has_active_response",
            Self::CancelNotActive => "response_cancel_not_active",
            Self::DuplicateItem => "item_create_duplicate_item_id",
            Self::DeleteUnknown => "item_delete_invalid_item_id",
            Self::RetrieveUnknown => "item_retrieve_invalid_item_id",
            Self::TruncateUnknown => "item_truncate_invalid_item_id",
            Self::PreviousUnknown => "item_create_invalid_previous_item_id",
            Self::ToolCallUnknown => "invalid_tool_call_id",
            Self::TranscriptionFailed => "input_audio_transcription_failed",
            Self::TranscriptionUnavailable => "transcription_not_available",
            Self::TranslationUnavailable => "translation_not_available",
            Self::TranscriptionSession => "not_in_transcription_session",
            Self::SessionLimit => "session_limit_reached",
            Self::ConnectionLimit => "connection_limit_reached",
            Self::CallUnknown => "call_not_found",
            Self::CallNotAnswered => "call_not_answered",
            Self::CallNodeUnreachable => "call_node_unreachable",
            Self::InvalidOffer => "invalid_offer",
            Self::OriginNotAllowed => "origin_not_allowed",
            Self::RemoteWithoutKeys => "remote_caller_without_keys",
            Self::HostNotAllowed => "host_not_allowed",
            Self::MissingKey => "missing_api_key",
            Self::InvalidKey => "invalid_api_key",
            Self::ExpiredKey => "expired_api_key",
            Self::KeyIssuerUnreachable => "key_issuer_unreachable",
            Self::KeyInsufficient => "insufficient_permissions",
            Self::TooManyKeys => "client_secret_limit_reached",
            Self::CallLimit => "call_limit_reached",
            Self::RateLimit => "rate_limit_exceeded",
            Self::BytesLimit => "bytes_limit_reached",
            Self::UnknownModel => "model_not_found",
            Self::WrongMethod => "method_not_allowed",
            Self::NotFound => "not_found",
            Self::SessionExpired => "session_expired",
            Self::SessionIdle => "session_idle",
            Self::LanguageModelFailed => "language_model_failed",
            Self::Starting => "server_starting",
            Self::ShuttingDown => "shutting_down",
            Self::StorageFull => "storage_full",
            Self::Internal => "internal_error",
        }
    }
}

/// Class of errors that the client cannot correct.
const SERVER_ERROR: &str = "server_error";
/// Maximum length of a message in bytes: it may repeat client input.
const MAX_MESSAGE: usize = 600;
/// Maximum length of `param` and `event_id`, in bytes.
const MAX_NAME: usize = 512;

/// Truncates `text` to `limit` bytes at a character boundary and appends an ellipsis.
pub(super) fn abbreviate(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

impl ErrorBody {
    /// Creates an `invalid_request_error`: the client can correct it.
    pub fn invalid(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new("invalid_request_error", kind, message)
    }

    /// Creates a `server_error`.
    pub fn server(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new(SERVER_ERROR, kind, message)
    }

    /// True for a `server_error`.
    pub fn is_server_error(&self) -> bool {
        self.kind == SERVER_ERROR
    }

    fn new(class: &str, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind: class.into(),
            code: Some(kind.code().into()),
            message: abbreviate(message.into(), MAX_MESSAGE),
            param: None,
            event_id: None,
        }
    }

    /// Sets `param`, the path of the invalid field.
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(abbreviate(param.into(), MAX_NAME));
        self
    }

    /// Sets `event_id`, the client event that caused the error.
    pub fn with_event_id(mut self, event_id: Option<String>) -> Self {
        self.event_id = event_id.map(|event_id| abbreviate(event_id, MAX_NAME));
        self
    }

    /// Converts a deserialization error; `root` is the prefix of the field path.
    pub fn from_path(error: &serde_path_to_error::Error<serde_json::Error>, root: &str) -> Self {
        let text = error.inner().to_string();
        let (mut path, mut message) = (FieldPath::new(root), without_position(&text));
        path.push(&FieldPath::of(error).0);
        while let Some((inner, rest)) = message.strip_prefix(MARK).and_then(|marked| marked.split_once(MARK)) {
            path.push(inner);
            message = rest;
        }
        // serde names a missing field in its message and its parent in the path.
        let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let kind = if missing.is_some() { ErrorKind::MissingField } else { ErrorKind::InvalidValue };
        path.push(missing.unwrap_or_default());
        let body = Self::invalid(kind, in_words_of_json(message));
        if path.0.is_empty() { body } else { body.with_param(path.0) }
    }
}

/// Mark around the path of a field at the beginning of a message: serde has no place for the path within a part.
const MARK: char = '\u{1}';

/// Path of a field, such as `item.content[0].text`; empty for the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldPath(String);

impl FieldPath {
    /// Creates the path of one field.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Path of a deserialization error, without names of variants.
    pub fn of(error: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let mut path = Self::default();
        for segment in error.path() {
            match segment {
                Segment::Seq { index } => path.push(&format!("[{index}]")),
                Segment::Map { key } => path.push(key),
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        path
    }

    /// Appends a path.
    pub fn push(&mut self, inner: &str) {
        if !(self.0.is_empty() || inner.is_empty() || inner.starts_with('[')) {
            self.0.push('.');
        }
        self.0.push_str(inner);
    }

    /// Message about the field, from which [`ErrorBody::from_path`] reads the path.
    pub fn marked(&self, message: impl std::fmt::Display) -> String {
        format!("{MARK}{}{MARK}{message}", self.0)
    }
}

/// Message without the position in the text: the path says more.
fn without_position(message: &str) -> &str {
    match message.rsplit_once(" at line ") {
        Some((before, position))
            if position.bytes().all(|byte| byte.is_ascii_digit() || b" column".contains(&byte)) =>
        {
            before
        }
        _ => message,
    }
}

/// Message of serde with JSON's words for types in place of Rust's.
fn in_words_of_json(message: &str) -> String {
    if message.starts_with("data did not match any variant") {
        return "the value has none of the accepted forms".to_owned();
    }
    let mut message = message.to_owned();
    for (rust, json) in [
        ("invalid type: map", "invalid type: object"),
        ("invalid type: sequence", "invalid type: array"),
        ("unknown variant", "unknown value"),
    ] {
        message = message.replace(rust, json);
    }
    let Some((found, expected)) = message.rsplit_once("expected ") else { return message };
    let integer = expected.strip_prefix(['u', 'i']).is_some_and(|bits| bits == "size" || bits.parse::<u8>().is_ok());
    let json = match expected {
        _ if integer => "an integer in range",
        "f32" | "f64" => "a number",
        "a sequence" => "an array",
        "a map" => "an object",
        "string or map" | "variant identifier" | "value" => "a string",
        "unit" => "null",
        _ if expected.starts_with("struct ") || expected.contains("enum ") => "an object",
        other => other,
    };
    format!("{found}expected {json}")
}

impl std::fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ErrorBody {}
