//! Errors of chat templates.

use thiserror::Error;

/// Error of reading or rendering a chat template. `file` names the file and, where it has fields, the field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The file does not hold a template.
    #[error("{file}: no chat template can be read: {message}")]
    Unreadable {
        /// File, and field if it has fields.
        file: String,
        /// Reason.
        message: String,
    },
    /// The template is longer than a published one.
    #[error("{file}: the chat template has {bytes} bytes, at most {limit} are read")]
    TooLarge {
        /// File, and field if it has fields.
        file: String,
        /// Size of the template.
        bytes: usize,
        /// Upper bound.
        limit: usize,
    },
    /// The template is not Jinja.
    #[error("{file}, line {line}: the chat template is not valid: {message}")]
    Syntax {
        /// File, and field if it has fields.
        file: String,
        /// Line of the template, from 1.
        line: usize,
        /// Reason.
        message: String,
    },
    /// The template itself refuses the conversation, with `raise_exception`.
    #[error("{file}, line {line}: the chat template refuses this conversation: {message}")]
    Refused {
        /// File, and field if it has fields.
        file: String,
        /// Line of the template, from 1.
        line: usize,
        /// Message of the template.
        message: String,
    },
    /// The template fails on the conversation.
    #[error("{file}, line {line}: the chat template fails on this conversation: {message}")]
    Failed {
        /// File, and field if it has fields.
        file: String,
        /// Line of the template, from 1.
        line: usize,
        /// Reason.
        message: String,
    },
    /// The template takes too many steps or too much memory.
    #[error(
        "{file}, line {line}: the chat template takes too much work for this conversation: shorten the conversation"
    )]
    TooMuchWork {
        /// File, and field if it has fields.
        file: String,
        /// Line of the template, from 1.
        line: usize,
    },
    /// The prompt is longer than a model's context can be.
    #[error("{file}: the chat template writes a prompt over {limit} bytes: shorten the conversation")]
    TooLong {
        /// File, and field if it has fields.
        file: String,
        /// Upper bound of a prompt, in bytes.
        limit: usize,
    },
    /// The template builds a special token out of parts, and decides by a text that could be a part of one.
    #[error(
        "{file}: the special tokens of the prompt cannot be told from the conversation's text: leave special tokens out of the texts"
    )]
    Ambiguous {
        /// File, and field if it has fields.
        file: String,
    },
    /// A value is not JSON.
    #[error("{field} is not JSON: {message}")]
    NotJson {
        /// Name of the value.
        field: String,
        /// Reason.
        message: String,
    },
}
