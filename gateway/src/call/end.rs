//! Why a call ended.

/// Why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The caller hung up, or vanished.
    Hangup,
    /// The call was answered, and the caller was never reached.
    Unconnected,
    /// The caller read nothing for too long, or the connection broke.
    Unreachable,
    /// The caller sent a message that is too large to skip.
    Overflow,
    /// The call lasted as long as it may.
    Expired,
    /// The caller has sent nothing for as long as it may.
    Idle,
    /// The server goes down, or somebody else ended the call.
    Shutdown,
    /// A failure of ours.
    Failed,
}

impl CallEnd {
    /// Its name in metrics, logs and traces.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Hangup => "hangup",
            Self::Unconnected => "unconnected",
            Self::Unreachable => "unreachable",
            Self::Overflow => "overflow",
            Self::Expired => "expired",
            Self::Idle => "idle",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
        }
    }
}
