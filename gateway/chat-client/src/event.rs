//! Events of an answer.

use std::time::Duration;

use crate::failure::ChatFailure;
use crate::quote::prefix;
use crate::tool_call::ToolCall;

/// Part of an answer, in the order of the stream. [`ChatEvent::ToolCall`], [`ChatEvent::Finish`], [`ChatEvent::Usage`] and
/// [`ChatEvent::End`] come last and in this order; [`ChatEvent::End`] always comes.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatEvent {
    /// An attempt failed before its first token; another one follows.
    Retry {
        /// Number of the failed attempt, from 1.
        attempt: u32,
        /// Time until the next attempt.
        delay: Duration,
        /// Reason.
        failure: Box<ChatFailure>,
    },
    /// Text of the answer; never empty.
    Text(String),
    /// Text of the model's reasoning, which is no part of the answer; never empty.
    Reasoning(String),
    /// A call of a function has begun.
    ToolCallBegin {
        /// Position of the call in the answer, from 0.
        position: usize,
        /// Identifier of the call, made up here if the server sends none.
        id: String,
        /// Name of the function.
        name: String,
    },
    /// Next piece of the arguments of a call that has begun.
    ToolCallArguments {
        /// Position of the call in the answer.
        position: usize,
        /// Piece of JSON; never empty.
        delta: String,
    },
    /// A complete call. Its arguments may be broken off if the answer reached its length.
    ToolCall {
        /// Position of the call in the answer.
        position: usize,
        /// The call.
        tool_call: ToolCall,
    },
    /// Reason why the answer ended; left out if the server sends none.
    Finish(FinishReason),
    /// Tokens of request and answer; left out if the server sends none.
    Usage(TokenUsage),
    /// End of the answer. No other event follows.
    End(ExchangeStats),
}

/// Reason why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop sequence did.
    Stop,
    /// It reached the maximum of tokens.
    Length,
    /// The model waits for the results of its calls. Some servers say [`FinishReason::Stop`] in this case.
    ToolCalls,
    /// The server's filter ended it.
    ContentFilter,
    /// Another reason, at most 64 bytes of it.
    Other(String),
}

impl FinishReason {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "stop" => Self::Stop,
            "length" => Self::Length,
            "tool_calls" | "function_call" => Self::ToolCalls,
            "content_filter" => Self::ContentFilter,
            other => Self::Other(prefix(other, 64).to_owned()),
        }
    }
}

/// Numbers of tokens, as the server counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens of the request.
    pub prompt_tokens: u64,
    /// Tokens of the request that the server had in its cache.
    pub cached_tokens: u64,
    /// Tokens of the answer, reasoning included.
    pub completion_tokens: u64,
    /// Tokens of the reasoning.
    pub reasoning_tokens: u64,
}

/// Measurements of an exchange, for metrics and logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExchangeStats {
    /// Number of attempts, from 1; a stale connection that was replaced counts as none.
    pub attempts: u32,
    /// True if the last attempt went over a connection that had served before.
    pub connection_reused: bool,
    /// Time that the last connection took to open, TLS and proxy included; `None` if none was opened.
    pub connect_time: Option<Duration>,
    /// Time from the request to the first token, failed attempts included; `None` if none came.
    pub time_to_first_token: Option<Duration>,
    /// Time from the request to the end.
    pub total_time: Duration,
    /// Characters of text and reasoning.
    pub characters: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finish_reasons_are_read() {
        assert_eq!(FinishReason::parse("stop"), FinishReason::Stop);
        assert_eq!(FinishReason::parse("function_call"), FinishReason::ToolCalls);
        assert_eq!(FinishReason::parse("eos"), FinishReason::Other("eos".to_owned()));
        assert_eq!(FinishReason::parse(&"é".repeat(100)), FinishReason::Other("é".repeat(32)));
    }
}
