//! Events of a server as the engine takes them. The engine's thread polls; it is woken when something arrives.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use repartee_chat_client::{ChatError, ChatEvent, ChatStream, ExchangeStats, FinishReason, TokenUsage};
use repartee_engine_api::{RemoteAnswer, RemoteEnd, RemoteEvent, RemoteFailureKind, RemoteUsage, WakeSignal};

use super::failure::{failure_kind, failure_of};
use crate::metrics::{ThinkerMetrics, ThinkerOutcome};

/// Wakes the engine.
pub(super) struct EngineWaker(pub WakeSignal);

impl Wake for EngineWaker {
    fn wake(self: Arc<Self>) {
        self.0.signal();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.signal();
    }
}

/// Answer of a server. Dropping it cancels the request.
pub(super) struct ChatAnswer {
    stream: ChatStream,
    waker: Waker,
    metrics: ThinkerMetrics,
    end: RemoteEnd,
    /// True once text or a call has come.
    said: bool,
    /// True once the end or a failure has been given.
    ended: bool,
}

impl ChatAnswer {
    pub fn new(stream: ChatStream, waker: Waker, metrics: ThinkerMetrics) -> Self {
        Self { stream, waker, metrics, end: RemoteEnd::Stop, said: false, ended: false }
    }

    fn finished(&mut self, stats: &ExchangeStats) -> RemoteEvent {
        self.ended = true;
        // A limit that the reasoning used up is no failure.
        if !self.said && self.end == RemoteEnd::Stop {
            self.metrics.observe(ThinkerOutcome::Failed(RemoteFailureKind::Empty), stats.time_to_first_token);
            tracing::warn!(kind = RemoteFailureKind::Empty.name(), "no answer of the language model");
            return RemoteEvent::Failed(failure_of(RemoteFailureKind::Empty));
        }
        self.metrics.observe(ThinkerOutcome::Completed, stats.time_to_first_token);
        RemoteEvent::Finished(self.end)
    }

    fn failed(&mut self, error: &ChatError) -> RemoteEvent {
        self.ended = true;
        let kind = failure_kind(&error.failure);
        self.metrics.observe(ThinkerOutcome::Failed(kind), error.stats.time_to_first_token);
        tracing::warn!(kind = kind.name(), attempts = error.stats.attempts, %error, "no answer of the language model");
        RemoteEvent::Failed(failure_of(kind))
    }
}

impl RemoteAnswer for ChatAnswer {
    fn poll(&mut self) -> Option<RemoteEvent> {
        loop {
            let polled = self.stream.poll_next(&mut Context::from_waker(&self.waker));
            let Poll::Ready(Some(event)) = polled else { return None };
            return Some(match event {
                Ok(ChatEvent::Text(text)) => {
                    self.said = true;
                    RemoteEvent::Text(text)
                }
                Ok(ChatEvent::Reasoning(_) | ChatEvent::ToolCallArguments { .. }) => RemoteEvent::Progress,
                Ok(ChatEvent::Retry { attempt, failure, .. }) => {
                    self.metrics.retries.inc();
                    tracing::info!(attempt, %failure, "the language model is asked again");
                    RemoteEvent::Progress
                }
                Ok(ChatEvent::ToolCallBegin { .. }) => RemoteEvent::CallBegun,
                Ok(ChatEvent::ToolCall { tool_call, .. }) => {
                    self.said = true;
                    RemoteEvent::Call { name: tool_call.name, arguments: tool_call.arguments }
                }
                Ok(ChatEvent::Finish(reason)) => {
                    if reason == FinishReason::Length {
                        self.end = RemoteEnd::Length;
                    }
                    continue;
                }
                Ok(ChatEvent::Usage(usage)) => RemoteEvent::Usage(remote_usage(usage)),
                Ok(ChatEvent::End(stats)) => self.finished(&stats),
                Err(error) => self.failed(&error),
            });
        }
    }
}

impl Drop for ChatAnswer {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.observe(ThinkerOutcome::Cancelled, None);
        }
    }
}

fn remote_usage(usage: TokenUsage) -> RemoteUsage {
    let count = |tokens| u32::try_from(tokens).unwrap_or(u32::MAX);
    RemoteUsage {
        input_tokens: count(usage.prompt_tokens),
        cached_tokens: count(usage.cached_tokens),
        output_tokens: count(usage.completion_tokens),
    }
}
