//! Kinds of a server's failures, and what callers are told. The log has the server's name and its words; callers get
//! neither.

use repartee_chat_client::ChatFailure;
use repartee_engine_api::{RemoteFailure, RemoteFailureKind};

/// Failure of a kind, for the engine and its callers.
pub(super) fn failure_of(kind: RemoteFailureKind) -> RemoteFailure {
    let message = match kind {
        RemoteFailureKind::Unreachable => "the language model's server cannot be reached: try again later",
        RemoteFailureKind::Late => "the language model's server took too long: try again",
        RemoteFailureKind::Denied => {
            "the language model's server refused its key: the log of this server has the reason"
        }
        RemoteFailureKind::Limited => "the language model's server has too many requests: try again later",
        RemoteFailureKind::Rejected => {
            "the language model's server refused the request: shorten the conversation; the log of this server has the reason"
        }
        RemoteFailureKind::Server => "the language model's server failed: try again later",
        RemoteFailureKind::Broken => "the language model's answer is broken: try again",
        RemoteFailureKind::Empty => "the language model answered nothing: try again",
    };
    RemoteFailure { kind, message: message.to_owned() }
}

/// Kind of a failure.
pub(super) fn failure_kind(failure: &ChatFailure) -> RemoteFailureKind {
    match failure {
        ChatFailure::UnknownHost { .. }
        | ChatFailure::Refused { .. }
        | ChatFailure::Unreachable { .. }
        | ChatFailure::Tls { .. }
        | ChatFailure::Proxy { .. }
        | ChatFailure::Closed { .. }
        | ChatFailure::Stopped => RemoteFailureKind::Unreachable,
        ChatFailure::Late { .. } => RemoteFailureKind::Late,
        ChatFailure::Unauthorized { .. } => RemoteFailureKind::Denied,
        ChatFailure::RateLimited { .. } => RemoteFailureKind::Limited,
        ChatFailure::Request(_)
        | ChatFailure::UnknownModel { .. }
        | ChatFailure::UnknownPath { .. }
        | ChatFailure::Redirected { .. }
        | ChatFailure::Rejected { .. }
        | ChatFailure::NoModel
        | ChatFailure::SeveralModels { .. } => RemoteFailureKind::Rejected,
        ChatFailure::ServerError { .. } | ChatFailure::InStream { .. } => RemoteFailureKind::Server,
        ChatFailure::Empty => RemoteFailureKind::Empty,
        // Neither HTTP nor the form of an answer, too large, or broken off.
        _ => RemoteFailureKind::Broken,
    }
}
