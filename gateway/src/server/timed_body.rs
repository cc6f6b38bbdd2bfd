//! Request bodies with a deadline, and with chunks of a useful size.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// Number of body bytes that extend the deadline by one second.
pub(super) const MIN_BYTES_PER_S: f64 = 65_536.0;
/// Chunks that a body may have, whatever its size: each is passed through all layers of the server, so a body of single
/// bytes costs as much as one a thousand times its size. A text that streams in by tokens stays below.
const FREE_CHUNKS: usize = 16_384;
/// Bytes that allow one chunk more.
const BYTES_PER_CHUNK: usize = 64;

/// Handle that lifts the deadline of a request's body; an extension of every request. Its user then has to bound the
/// wait for the body.
#[derive(Debug, Clone, Default)]
pub(super) struct BodyDeadline(Arc<AtomicBool>);

impl BodyDeadline {
    /// Lifts the deadline from now on.
    pub fn lift(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn allowed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Request body with a deadline, which its bytes extend at [`MIN_BYTES_PER_S`]. It fails beyond [`FREE_CHUNKS`] chunks that
/// have fewer than [`BYTES_PER_CHUNK`] bytes each.
pub(super) struct TimedBody {
    body: Incoming,
    started: Instant,
    request_timeout: Duration,
    /// Created when the body first has to wait.
    deadline: Option<Pin<Box<Sleep>>>,
    bytes: usize,
    chunks: usize,
    slow: BodyDeadline,
}

impl TimedBody {
    pub fn new(body: Incoming, request_timeout: Duration, slow: BodyDeadline) -> Self {
        Self { body, started: Instant::now(), request_timeout, deadline: None, bytes: 0, chunks: 0, slow }
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            if self.slow.allowed() {
                return Poll::Pending;
            }
            let due =
                self.started + self.request_timeout + Duration::from_secs_f64(self.bytes as f64 / MIN_BYTES_PER_S);
            let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if deadline.deadline() != due {
                deadline.as_mut().reset(due);
            }
            ready!(deadline.as_mut().poll(context));
            let late = io::Error::new(io::ErrorKind::TimedOut, "the request took too long to arrive");
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        };
        if let Some(Ok(frame)) = &frame {
            self.bytes += frame.data_ref().map_or(0, Bytes::len);
            self.chunks += 1;
            if self.chunks > FREE_CHUNKS + self.bytes / BYTES_PER_CHUNK {
                let torn = io::Error::new(io::ErrorKind::InvalidData, "the body's chunks are too small");
                return Poll::Ready(Some(Err(axum::Error::new(torn))));
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
