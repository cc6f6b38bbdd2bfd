//! Errors of datagrams.

use thiserror::Error;

use crate::bounds::{MAX_BYTES, MAX_LINES};

/// Reason why a datagram is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The datagram is larger than any message.
    #[error("a message has at most {MAX_BYTES} bytes")]
    TooLarge,
    /// The head has too many lines.
    #[error("a message has at most {MAX_LINES} lines before its body")]
    TooManyLines,
    /// The head or the body ends early.
    #[error("the message is cut off")]
    Incomplete,
    /// The first line is neither a request nor a status.
    #[error("the first line is neither a request nor a status")]
    FirstLine,
    /// A line of the head is no header.
    #[error("line {0} of the message is no header")]
    Header(usize),
    /// A header is missing or cannot be read.
    #[error("the header {0} is missing, too long or cannot be read")]
    Field(&'static str),
}
