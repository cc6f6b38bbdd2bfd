//! A language model behind a server, as the engine sees it: questions in, events out. The engine does not wait for it.

use std::fmt;

use super::{AnswerForm, RemoteFailure, Sampling, Tool, WakeSignal};

/// Language model outside of the engine.
pub trait RemoteThinker: fmt::Debug + Send + Sync + 'static {
    /// Begins an answer, without blocking; all failures come as events. `wake` is signalled once
    /// [`RemoteAnswer::poll`] may give an event again after it gave none.
    fn ask(&self, request: RemoteRequest, wake: WakeSignal) -> Box<dyn RemoteAnswer>;
}

/// Answer on its way. Dropping it cancels the request.
///
/// The queue behind it is bounded: events that are not polled hold up the server. It ends by itself, in time, with
/// [`RemoteEvent::Finished`] or [`RemoteEvent::Failed`].
pub trait RemoteAnswer: Send {
    /// Next event, if there is one. Never blocks.
    fn poll(&mut self) -> Option<RemoteEvent>;
}

/// Request for an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteRequest {
    /// Messages of the conversation, the oldest first. The results of calls follow their calls.
    pub messages: Vec<RemoteMessage>,
    /// Functions that the model may call.
    pub tools: Vec<Tool>,
    /// Form that the answer is held to.
    pub form: AnswerForm,
    /// Upper bound of the answer's tokens; `None` for the server's.
    pub max_tokens: Option<u32>,
    /// Sampling of the text; `None` for the server's.
    pub sampling: Option<Sampling>,
}

/// Message of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteMessage {
    /// Instructions of the session, or a message with the role of the system.
    System(String),
    /// Message of the caller.
    User(String),
    /// Message of the model.
    Assistant {
        /// Text; empty if it only called functions.
        text: String,
        /// Calls, each with a result among the messages that follow.
        calls: Vec<RemoteCall>,
    },
    /// Result of a call.
    ToolResult {
        /// Id of the call.
        call: String,
        /// Output of the function.
        output: String,
    },
}

/// Call of a function in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCall {
    /// Id, unique within its request.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// Arguments, as JSON text.
    pub arguments: String,
}

/// Event of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteEvent {
    /// The server is at work: reasoning text, or another attempt.
    Progress,
    /// Next piece of the text; never ends within a character.
    Text(String),
    /// A call of a function begins. Text that came before is complete.
    CallBegun,
    /// A complete call of a function, or one that was cut at the limit of tokens.
    Call {
        /// Name of the function.
        name: String,
        /// Arguments, as JSON text.
        arguments: String,
    },
    /// Tokens, as the server counts them.
    Usage(RemoteUsage),
    /// End of the answer; the last event.
    Finished(RemoteEnd),
    /// Failure of the answer; the last event.
    Failed(RemoteFailure),
}

/// Numbers of tokens, as a server counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteUsage {
    /// Tokens of the request.
    pub input_tokens: u32,
    /// Tokens of the request that the server had in its cache.
    pub cached_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
}

/// Reason for an answer's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteEnd {
    /// The model ended it.
    Stop,
    /// It reached the limit of tokens.
    Length,
}
