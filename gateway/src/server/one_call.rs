//! Answers with at most one call of a function (`parallel_tool_calls: false`), of models that choose freely.

use repartee_engine_api::{Command, Event, FinishReason, ResponseId};

/// Filter of one response's events. It lets the first call through; at the second one the response is cancelled, and ends as
/// if it had stopped by itself.
#[derive(Debug, Default)]
pub(super) struct OneCall {
    has_call: bool,
    /// Response that was cancelled at its second call.
    stopped: Option<ResponseId>,
}

impl OneCall {
    /// Takes an event; returns it if it is part of the answer, and the command that ends the response.
    pub fn filter(&mut self, event: Event) -> (Option<Event>, Option<Command>) {
        match event {
            Event::ToolCall { response, .. } if self.has_call => {
                let cancel = self.stopped.is_none().then_some(Command::Cancel { response });
                self.stopped = Some(response);
                (None, cancel)
            }
            Event::ToolCall { .. } => {
                self.has_call = true;
                (Some(event), None)
            }
            Event::SegmentFinished { response, usage, reason: FinishReason::Cancelled }
                if self.stopped == Some(response) =>
            {
                (Some(Event::SegmentFinished { response, reason: FinishReason::Stop, usage }), None)
            }
            // What the model says or computes before it learns of the end.
            Event::ToolArguments { .. } | Event::Text { .. } | Event::Audio { .. } if self.stopped.is_some() => {
                (None, None)
            }
            event => (Some(event), None),
        }
    }
}
