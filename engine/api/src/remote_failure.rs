//! Failures of a language model behind a server.

/// Failure of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFailure {
    /// Kind of the failure.
    pub kind: RemoteFailureKind,
    /// Sentence that names the server and a remedy.
    pub message: String,
}

/// Kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemoteFailureKind {
    /// No connection to the server.
    Unreachable,
    /// A time limit passed.
    Late,
    /// The server refused key or account.
    Denied,
    /// The server has too much to do for this account.
    Limited,
    /// The server refused the request: unknown model, too long a conversation.
    Rejected,
    /// The server failed.
    Server,
    /// The answer is malformed, too large, or broke off.
    Broken,
    /// The answer has neither text nor a call.
    Empty,
}

impl RemoteFailureKind {
    /// Every kind, in the order of the variants.
    pub const ALL: [Self; 8] = [
        Self::Unreachable,
        Self::Late,
        Self::Denied,
        Self::Limited,
        Self::Rejected,
        Self::Server,
        Self::Broken,
        Self::Empty,
    ];

    /// Name for metrics and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Late => "late",
            Self::Denied => "denied",
            Self::Limited => "limited",
            Self::Rejected => "rejected",
            Self::Server => "server",
            Self::Broken => "broken",
            Self::Empty => "empty",
        }
    }
}
