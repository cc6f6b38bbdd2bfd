//! Encoding of the caller's texts as token ids, in the model's template.

use repartee_engine_api::{MessageContent, Role, SessionError, Tool};

use super::ModelContext;
use super::limits::MAX_AUDIO_S;
use crate::elements::{Message, MessageKind};
use crate::model::ToolTemplate;

/// Text of a system message with instructions and tools.
pub(super) fn system_text(
    instructions: &str,
    tools: &[Tool],
    template: Option<&dyn ToolTemplate>,
) -> Result<String, SessionError> {
    if tools.is_empty() {
        return Ok(instructions.to_owned());
    }
    Ok(template.ok_or(SessionError::NoTools)?.system(instructions, tools))
}

/// Encodes the system message of instructions and tools; `None` if both are empty.
pub(super) fn system(
    instructions: &str,
    tools: &[Tool],
    model: &ModelContext<'_>,
) -> Result<Option<Vec<u32>>, SessionError> {
    let ids = model.encode(&system_text(instructions, tools, model.template.tools())?)?;
    Ok((!ids.is_empty()).then_some(ids))
}

/// Text of a content as the template writes it; `None` for audio.
pub(super) fn content_text(
    content: &MessageContent,
    template: Option<&dyn ToolTemplate>,
) -> Result<Option<String>, SessionError> {
    let template = || template.ok_or(SessionError::NoTools);
    Ok(Some(match content {
        MessageContent::Text { text, .. } => text.clone(),
        MessageContent::ToolCall { name, arguments } => template()?.call(name, arguments),
        MessageContent::ToolResult(output) => template()?.result(output),
        MessageContent::Audio(_) => return Ok(None),
    }))
}

/// Builds a message of a text, a tool call or a tool result; audio gives a message without windows.
pub(super) fn text_message(content: MessageContent, model: &ModelContext<'_>) -> Result<Message, SessionError> {
    let Some(text) = content_text(&content, model.template.tools())? else { return Ok(Message::audio(Vec::new())) };
    let kind = match content {
        MessageContent::Text { role: Role::System, .. } => MessageKind::System,
        MessageContent::Text { role: Role::Assistant, .. } => MessageKind::Assistant,
        MessageContent::Text { role: Role::User, .. } | MessageContent::Audio(_) => MessageKind::User,
        MessageContent::ToolCall { .. } => MessageKind::ToolCall,
        MessageContent::ToolResult(_) => MessageKind::ToolResult,
    };
    Ok(Message::text(kind, model.encode(&text)?))
}

/// Refuses audio longer than [`MAX_AUDIO_S`].
pub(super) fn check_length(samples: &[f32], model: &ModelContext<'_>) -> Result<(), SessionError> {
    let limit = model.audio_limit()?;
    if samples.len() > limit { Err(SessionError::AudioTooLong { limit_s: MAX_AUDIO_S }) } else { Ok(()) }
}
