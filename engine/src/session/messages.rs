//! Texts of the caller as token ids, in the model's template.

use repartee_engine_api::{Content, Role, SessionError, Tool};

use super::{MAX_AUDIO_S, ModelContext};
use crate::elements::{Message, MessageKind};
use crate::text::TextError;

/// The system message of instructions and tools; `None` if both are empty.
pub(super) fn system<T>(
    instructions: &str,
    tools: &[Tool],
    model: &ModelContext<'_, T>,
) -> Result<Option<Vec<u32>>, SessionError> {
    if tools.is_empty() {
        let ids = model.encode(instructions)?;
        return Ok((!ids.is_empty()).then_some(ids));
    }
    let template = model.script.tools().ok_or(SessionError::NoTools)?;
    Ok(Some(model.encode(&template.system(instructions, tools))?))
}

/// A message of a text, a tool call or a tool result; audio gives one without windows.
pub(super) fn text_message<T>(content: Content, model: &ModelContext<'_, T>) -> Result<Message<T>, SessionError> {
    Ok(match content {
        Content::Text { role, text } => {
            let kind = match role {
                Role::System => MessageKind::System,
                Role::User => MessageKind::User,
                Role::Assistant => MessageKind::Assistant,
            };
            Message::text(kind, model.encode(&text)?)
        }
        Content::ToolCall { name, arguments } => {
            let template = model.script.tools().ok_or(SessionError::NoTools)?;
            Message::text(MessageKind::ToolCall, model.encode(&template.call(&name, &arguments))?)
        }
        Content::ToolResult(output) => {
            let template = model.script.tools().ok_or(SessionError::NoTools)?;
            Message::text(MessageKind::ToolResult, model.encode(&template.result(&output))?)
        }
        Content::Audio(_) => Message::audio(Vec::new()),
    })
}

/// Refuses audio longer than [`MAX_AUDIO_S`].
pub(super) fn check_length<T>(samples: &[f32], model: &ModelContext<'_, T>) -> Result<(), SessionError> {
    let limit = model.audio_limit()?;
    if samples.len() > limit { Err(SessionError::AudioTooLong { limit_s: MAX_AUDIO_S }) } else { Ok(()) }
}

/// The error for a text without ids.
pub(super) fn text_error(error: &TextError) -> SessionError {
    SessionError::bad("text", "not encodable", error.to_string())
}
