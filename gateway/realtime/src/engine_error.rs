//! Errors of the engine on the wire.

use repartee_engine_api::SessionError;
use repartee_protocol::{ErrorBody, ErrorKind};

/// Converts an engine error to its wire form.
pub fn engine_error(error: &SessionError) -> ErrorBody {
    let message = error.to_string();
    match error {
        SessionError::NothingToCommit => ErrorBody::invalid(ErrorKind::CommitEmpty, message),
        SessionError::AudioTooLong { .. } => ErrorBody::invalid(ErrorKind::AudioTooLong, message),
        SessionError::ContextFull { .. } => ErrorBody::invalid(ErrorKind::ConversationTooLarge, message),
        SessionError::UnknownVoice { .. } => {
            ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("session.audio.output.voice")
        }
        SessionError::TooManyResponses { .. } => ErrorBody::invalid(ErrorKind::ActiveResponse, message),
        SessionError::NoTools => ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("response.tools"),
        SessionError::NoAudioInput | SessionError::NoResponses | SessionError::BadForm(_) => {
            ErrorBody::invalid(ErrorKind::InvalidValue, message)
        }
        // A client does not know the engine's item number.
        SessionError::UnknownItem(_) => {
            let message = "the model does not hold an item that this refers to: it was refused, or has left the context. Send \
                           its content again";
            ErrorBody::invalid(ErrorKind::InvalidValue, message)
        }
        SessionError::OutOfMemory => ErrorBody::server(ErrorKind::SessionLimit, message),
        SessionError::BadValue { field: field @ "text", .. } => {
            ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(*field)
        }
        SessionError::BadValue { field: "streamed", .. } => {
            ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("response.repartee.reads")
        }
        SessionError::Thinker { .. } => ErrorBody::server(ErrorKind::LanguageModelFailed, message),
        // The server chooses the other values itself.
        _ => ErrorBody::server(ErrorKind::Internal, message),
    }
}
