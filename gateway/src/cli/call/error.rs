//! Errors of a call.

use repartee_chat_client::{StreamError, UrlError};
use repartee_media::pcm::OddLength;
use serde_json::Value;
use thiserror::Error;
use tokio_tungstenite::tungstenite;

use crate::cli::ask::AskError;
use crate::cli::speech::SpeechWriteError;

/// Error of a call to a server.
#[derive(Debug, Error)]
pub enum CallError {
    /// The address is no URL.
    #[error("`{url}` is no address of a server ({error}): write localhost:8080, or https://host")]
    Url {
        /// The address.
        url: String,
        /// Reason of the failure.
        error: UrlError,
    },
    /// The key cannot be sent.
    #[error("the key holds characters that no key has: correct --key or REPARTEE_KEY")]
    Key,
    /// The question cannot be used.
    #[error(transparent)]
    Question(#[from] AskError),
    /// The server cannot be reached.
    #[error("cannot reach {url}: {error}; start a server there with `repartee`, or name another address")]
    Unreachable {
        /// URL of the websocket.
        url: String,
        /// Reason of the failure.
        error: StreamError,
    },
    /// The server needs a key, or another one.
    #[error("{url} refused the call: {message}; give its key in REPARTEE_KEY or --key")]
    Unauthorized {
        /// URL of the websocket.
        url: String,
        /// The server's words.
        message: String,
    },
    /// The server refuses the call.
    #[error("{url} refused the call ({status}): {message}")]
    Refused {
        /// URL of the websocket.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// The server does not answer the call.
    #[error("{url} did not answer the call within {seconds} s: is it a Repartee server?")]
    Late {
        /// URL of the websocket.
        url: String,
        /// The time limit, in seconds.
        seconds: u64,
    },
    /// The server reports an error.
    #[error("the server reports: {0}")]
    Failed(String),
    /// The server has sent something else than the Realtime API.
    #[error("the server sent {0}: is it a Realtime API server?")]
    NotRealtime(&'static str),
    /// The connection ended before the answer.
    #[error("the server ended the call{0}")]
    HungUp(String),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Connection(Box<tungstenite::Error>),
    /// The answer cannot be written.
    #[error(transparent)]
    Write(#[from] SpeechWriteError),
    /// The transcript cannot be printed, or a pipe fails.
    #[error("cannot print the transcript: {0}")]
    Print(#[from] std::io::Error),
}

impl CallError {
    /// Error of the server's own error object.
    pub(super) fn failed(error: &Value) -> Self {
        Self::Failed(error["message"].as_str().unwrap_or("an error without a message").to_owned())
    }

    /// True for a mistake in an argument or a file, or a server that is not there or refuses the caller.
    pub fn is_users(&self) -> bool {
        match self {
            Self::Url { .. }
            | Self::Key
            | Self::Question(_)
            | Self::Unreachable { .. }
            | Self::Unauthorized { .. }
            | Self::Write(_) => true,
            Self::Refused { .. }
            | Self::Late { .. }
            | Self::Failed(_)
            | Self::NotRealtime(_)
            | Self::HungUp(_)
            | Self::Connection(_)
            | Self::Print(_) => false,
        }
    }
}

impl From<tungstenite::Error> for CallError {
    fn from(error: tungstenite::Error) -> Self {
        match error {
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => Self::HungUp(String::new()),
            error => Self::Connection(Box::new(error)),
        }
    }
}

impl From<OddLength> for CallError {
    fn from(_: OddLength) -> Self {
        Self::NotRealtime("half a sample")
    }
}
