//! Errors of datagrams and connections.

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

/// Reason why a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FramingError {
    /// A message is larger than any is read.
    #[error("a message has at most {MAX_BYTES} bytes")]
    TooLarge,
    /// The length of a body is missing, unreadable or said twice.
    #[error("on a connection each message has one Content-Length")]
    Length,
    /// Bytes between two messages that are no line end.
    #[error("between two messages there are line ends alone")]
    Start,
}
