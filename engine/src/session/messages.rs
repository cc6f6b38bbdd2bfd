//! Texts of the caller as token ids, in the model's template.

use repartee_engine_api::{Content, Role, SessionError, Tool};

use super::{MAX_AUDIO_S, ModelContext};
use crate::stage::Message;
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
    let text = model.prompt.with_tools(instructions, tools).ok_or(SessionError::NoTools)?;
    Ok(Some(model.encode(&text)?))
}

/// A message of a text, a tool call or a tool result; audio gives one without windows.
pub(super) fn text_message<T>(content: Content, model: &ModelContext<'_, T>) -> Result<Message<T>, SessionError> {
    Ok(match content {
        Content::Text { role, text } => {
            let ids = model.encode(&text)?;
            match role {
                Role::System => Message::System(ids),
                Role::User => Message::UserText(ids),
                Role::Assistant => Message::Assistant(ids),
            }
        }
        Content::ToolCall { name, arguments } => {
            let text = model.prompt.tool_call(&name, &arguments).ok_or(SessionError::NoTools)?;
            Message::ToolCall(model.encode(&text)?)
        }
        Content::ToolResult(output) => {
            let text = model.prompt.tool_result(&output).ok_or(SessionError::NoTools)?;
            Message::ToolResult(model.encode(&text)?)
        }
        Content::Audio(_) => Message::UserAudio(Vec::new()),
    })
}

/// Refuses audio longer than [`MAX_AUDIO_S`].
pub(super) fn check_length<T>(samples: &[f32], model: &ModelContext<'_, T>) -> Result<(), SessionError> {
    let limit = MAX_AUDIO_S as usize * model.log_mel.config().sampling_rate as usize;
    if samples.len() > limit { Err(SessionError::AudioTooLong { limit_s: MAX_AUDIO_S }) } else { Ok(()) }
}

/// The error for a text without ids.
pub(super) fn text_error(error: &TextError) -> SessionError {
    SessionError::bad("text", "not encodable", error.to_string())
}
