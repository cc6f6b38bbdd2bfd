//! Errors of tokenizers.

use thiserror::Error;

/// Error of reading a tokenizer. The caller names the file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TokenizerError {
    /// The bytes are no tokenizer.
    #[error("{0}")]
    NotATokenizer(String),
    /// A field has a value that nobody writes.
    #[error("`{field}`: {message}")]
    WrongField {
        /// Name of the field.
        field: String,
        /// Reason, and what to do.
        message: String,
    },
    /// A file or a list is longer than any published one.
    #[error("`{field}` has {count}, at most {limit} are read")]
    TooLarge {
        /// Name of the field or the file.
        field: String,
        /// Number of bytes or entries.
        count: usize,
        /// Upper bound.
        limit: usize,
    },
    /// The kind of tokenizer is not served.
    #[error("`{field}` is `{value}`, which is not served; served are: {served}")]
    NotServed {
        /// Name of the field.
        field: String,
        /// Value of the field.
        value: String,
        /// Values that are served.
        served: String,
    },
}

impl TokenizerError {
    /// Creates an error about a field.
    pub(super) fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::WrongField { field: field.into(), message: message.into() }
    }

    /// Refuses a count over a limit.
    pub(super) fn check_count(field: &str, count: usize, limit: usize) -> Result<(), Self> {
        if count > limit { Err(Self::TooLarge { field: field.to_owned(), count, limit }) } else { Ok(()) }
    }
}

/// Error of encoding a text: the vocabulary has no token for a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the tokenizer cannot encode this text ({0})")]
pub struct EncodeError(pub String);
