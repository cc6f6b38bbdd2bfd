//! Reads of a connection in portions: a client whose bytes are always there cannot keep a thread of the runtime for itself.
//!
//! A websocket message of single bytes, each in a frame of its own, is read in one go otherwise: only whole messages give
//! control back, and a large buffer takes thousands of frames a read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes after which other tasks run: some two thousand of the smallest frames, milliseconds of work.
const PORTION: usize = 16 << 10;

/// A stream that lets other tasks run after each [`PORTION`] that was read without a wait.
#[derive(Debug)]
pub(super) struct PacedReads<S> {
    stream: S,
    /// Bytes read since the last wait.
    read: usize,
}

impl<S> PacedReads<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, read: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedReads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= PORTION {
            self.read = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let room = (PORTION - self.read).min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        let read = Pin::new(&mut self.stream).poll_read(context, &mut part);
        let count = part.filled().len();
        buffer.advance(count);
        self.read = if read.is_pending() { 0 } else { self.read + count };
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedReads<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn endless_bytes_let_others_run() {
        let wakes = Arc::new(Wakes::default());
        let waker = Arc::clone(&wakes).into();
        let mut context = Context::from_waker(&waker);
        let mut stream = PacedReads::new(tokio::io::repeat(1));
        let mut read = |length: usize| {
            let mut bytes = vec![0; length];
            let mut buffer = ReadBuf::new(&mut bytes);
            Pin::new(&mut stream).poll_read(&mut context, &mut buffer).map(|read| (read.is_ok(), buffer.filled().len()))
        };
        for portion in 1..=3 {
            for _ in 0..4 {
                assert_eq!(read(PORTION / 4), Poll::Ready((true, PORTION / 4)));
            }
            assert_eq!(read(1), Poll::Pending);
            assert_eq!(wakes.0.load(Ordering::Relaxed), portion, "it goes on by itself");
        }
        assert_eq!(read(2 * PORTION), Poll::Ready((true, PORTION)), "a large buffer gets no more");
        assert_eq!(read(1), Poll::Pending);
    }
}
