//! Reasons for the end of a call.

/// Reason for the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The caller hung up or vanished.
    Hangup,
    /// The call was answered, but the caller never connected.
    Unconnected,
    /// The caller read nothing for too long, or the connection broke.
    Unreachable,
    /// The caller sent a message that is too large to skip.
    Overflow,
    /// A large message of the caller had no room in memory, or came too slowly.
    NoRoom,
    /// The caller sent a frame that breaks the websocket protocol.
    BadFrame,
    /// The caller sent a text message that is not UTF-8.
    BadText,
    /// The call reached its maximum duration.
    Expired,
    /// The caller sent nothing for the idle timeout.
    Idle,
    /// Another client ended the call over HTTP.
    HungUp,
    /// The server shuts down.
    Shutdown,
    /// An internal error.
    Failed,
}

impl CallEnd {
    /// Name of the reason in metrics, logs and traces.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Hangup | Self::HungUp => "hangup",
            Self::Unconnected => "unconnected",
            Self::Unreachable => "unreachable",
            Self::Overflow => "overflow",
            Self::NoRoom => "no_room",
            Self::BadFrame => "bad_frame",
            Self::BadText => "bad_text",
            Self::Expired => "expired",
            Self::Idle => "idle",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
        }
    }
}
