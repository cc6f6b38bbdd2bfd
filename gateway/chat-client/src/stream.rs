//! The answer as the caller reads it.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::base_url::BaseUrl;
use crate::error::ChatError;
use crate::event::{ChatEvent, ExchangeStats};
use crate::exchange::ChatResult;
use crate::failure::ChatFailure;

/// Events of one answer. Dropping it before the end cancels the request and closes its connection at once.
///
/// The queue is bounded: while it is full, nothing more is read from the server.
#[derive(Debug)]
pub struct ChatStream {
    url: BaseUrl,
    events: mpsc::Receiver<ChatResult>,
    task: AbortHandle,
    /// The end or an error has been read.
    ended: bool,
}

impl ChatStream {
    pub(crate) fn new(url: BaseUrl, events: mpsc::Receiver<ChatResult>, task: AbortHandle) -> Self {
        Self { url, events, task, ended: false }
    }

    /// Waits for the next event; `None` after [`ChatEvent::End`] and after an error. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<ChatEvent, ChatError>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Returns the next event if there is one, for callers that do not wait.
    pub fn try_next(&mut self) -> Poll<Option<Result<ChatEvent, ChatError>>> {
        self.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    /// Polls for the next event.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ChatEvent, ChatError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = match self.events.poll_recv(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(next)) => next,
            Poll::Ready(None) => Err(ChatError::new(&self.url, ChatFailure::Stopped, ExchangeStats::default())),
        };
        self.ended = matches!(next, Err(_) | Ok(ChatEvent::End(_)));
        Poll::Ready(Some(next))
    }
}

impl Drop for ChatStream {
    fn drop(&mut self) {
        // After the end the task only keeps the connection for the next request.
        if !self.ended {
            self.task.abort();
        }
    }
}
