//! `error`: what went wrong, for a program (`code`, `param`) and for a person (`message`). HTTP error responses carry the
//! same body.

use serde::{Deserialize, Serialize};

/// The `error` event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorEvent {
    /// What went wrong.
    pub error: ErrorBody,
}

/// The body of an error, in events and HTTP responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// `invalid_request_error` (the client can do something about it) or `server_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Stable name of the error: [`ErrorKind::code`].
    pub code: Option<String>,
    /// Explanation for a person.
    pub message: String,
    /// The field that is wrong, as a dotted path.
    pub param: Option<String>,
    /// The client event that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
}

/// The errors that Repartee reports. Clients know some of the codes and act on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The message is not a JSON object.
    InvalidJson,
    /// An event of an unknown type.
    UnknownEvent,
    /// A field is missing.
    MissingField,
    /// A field holds an unsupported value.
    InvalidValue,
    /// A message over the size limit.
    TooLarge,
    /// Audio that is not base64 or not whole samples.
    InvalidAudio,
    /// More audio in one turn than the model takes.
    AudioTooLong,
    /// The conversation is larger than the model or the server takes.
    ConversationTooLarge,
    /// A commit with (almost) no audio.
    CommitEmpty,
    /// `response.create` while a response is active.
    ActiveResponse,
    /// `response.cancel` without an active response.
    CancelNotActive,
    /// An item id that is already taken.
    DuplicateItem,
    /// No such item to delete.
    DeleteUnknown,
    /// No such item to retrieve.
    RetrieveUnknown,
    /// No such item to truncate, or one without audio.
    TruncateUnknown,
    /// No such item to insert after.
    PreviousUnknown,
    /// The result of a function call that is not there.
    ToolCallUnknown,
    /// A turn that could not be transcribed.
    TranscriptionFailed,
    /// A transcription session of a model that cannot transcribe.
    TranscriptionUnavailable,
    /// An event that is about responses, in a session that makes none.
    TranscriptionSession,
    /// Every session slot is taken.
    SessionLimit,
    /// There are as many connections as the server takes.
    ConnectionLimit,
    /// No such call.
    CallUnknown,
    /// An offer that cannot be answered.
    InvalidOffer,
    /// A web page of an origin that is not allowed.
    OriginNotAllowed,
    /// A server without keys is asked from another machine.
    RemoteWithoutKeys,
    /// A server without keys is asked under a name that is not known to be its own.
    HostNotAllowed,
    /// No key where one is needed.
    MissingKey,
    /// An unknown key.
    InvalidKey,
    /// An expired ephemeral key.
    ExpiredKey,
    /// A key without permission for this request.
    KeyInsufficient,
    /// Too many ephemeral keys are valid.
    TooManyKeys,
    /// One client address has too many calls.
    CallLimit,
    /// One client sends requests too fast.
    RateLimit,
    /// No model of this name.
    UnknownModel,
    /// An HTTP method that this path does not have.
    WrongMethod,
    /// Not a websocket request, or no such path.
    NotFound,
    /// The call has lasted as long as it may.
    SessionExpired,
    /// The caller has sent nothing for as long as it may.
    SessionIdle,
    /// The server loads its model.
    Starting,
    /// The server is shutting down.
    ShuttingDown,
    /// An internal failure.
    Internal,
}

impl ErrorKind {
    /// The code on the wire.
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
            Self::TranscriptionSession => "not_in_transcription_session",
            Self::SessionLimit => "session_limit_reached",
            Self::ConnectionLimit => "connection_limit_reached",
            Self::CallUnknown => "call_not_found",
            Self::InvalidOffer => "invalid_offer",
            Self::OriginNotAllowed => "origin_not_allowed",
            Self::RemoteWithoutKeys => "remote_caller_without_keys",
            Self::HostNotAllowed => "host_not_allowed",
            Self::MissingKey => "missing_api_key",
            Self::InvalidKey => "invalid_api_key",
            Self::ExpiredKey => "expired_api_key",
            Self::KeyInsufficient => "insufficient_permissions",
            Self::TooManyKeys => "client_secret_limit_reached",
            Self::CallLimit => "call_limit_reached",
            Self::RateLimit => "rate_limit_exceeded",
            Self::UnknownModel => "model_not_found",
            Self::WrongMethod => "method_not_allowed",
            Self::NotFound => "not_found",
            Self::SessionExpired => "session_expired",
            Self::SessionIdle => "session_idle",
            Self::Starting => "server_starting",
            Self::ShuttingDown => "shutting_down",
            Self::Internal => "internal_error",
        }
    }
}

/// The type of an error that is the server's fault.
const SERVER_ERROR: &str = "server_error";
/// The longest message, in bytes: it may repeat what the client wrote.
const MAX_MESSAGE: usize = 600;
/// The longest field path and the longest `event_id` that are repeated, in bytes.
const MAX_NAME: usize = 512;

/// `text`, cut to `limit` bytes.
pub(super) fn abbreviate(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

impl ErrorBody {
    /// An `invalid_request_error`: the client can do something about it.
    pub fn invalid(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new("invalid_request_error", kind, message)
    }

    /// A `server_error`.
    pub fn server(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new(SERVER_ERROR, kind, message)
    }

    /// Whether it is the server's fault: a `server_error`.
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

    /// Sets `param`, the field that is wrong.
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(abbreviate(param.into(), MAX_NAME));
        self
    }

    /// Sets `event_id`, the client event that caused it.
    pub fn with_event_id(mut self, event_id: Option<String>) -> Self {
        self.event_id = event_id.map(|event_id| abbreviate(event_id, MAX_NAME));
        self
    }

    /// The error for a field that could not be deserialized; `root` is put before its path.
    pub fn from_path(error: &serde_path_to_error::Error<serde_json::Error>, root: &str) -> Self {
        let message = error.inner().to_string();
        // serde names a missing field in its message and its parent in the path.
        let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let kind = if missing.is_some() { ErrorKind::MissingField } else { ErrorKind::InvalidValue };
        let path = Some(error.path().to_string()).filter(|path| path != ".");
        let parts = [Some(root.to_owned()).filter(|root| !root.is_empty()), path, missing.map(str::to_owned)];
        let param = parts.into_iter().flatten().collect::<Vec<_>>().join(".");
        let body = Self::invalid(kind, message);
        if param.is_empty() { body } else { body.with_param(param) }
    }
}

impl std::fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ErrorBody {}
