//! Reads of a connection in portions: a client whose bytes are always there cannot keep a thread of the runtime for itself.
//!
//! A websocket message of single bytes, each in a frame of its own, is read in one go otherwise: only whole messages give
//! control back, and a large buffer takes thousands of frames a read.
//!
//! Large messages are read [within the budget of bytes](MessageBytes): one without room waits for it, and the connection
//! ends after a time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::timed_body::MIN_BYTES_PER_S;
use crate::transport::message_bytes::{MessageBytes, MessageRefusal};

/// Time between two looks for room.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes after which other tasks run: some two thousand of the smallest frames, milliseconds of work.
const PORTION: usize = 16 << 10;

/// A stream that lets other tasks run after each [`PORTION`] that was read without a wait.
#[derive(Debug)]
pub(super) struct PacedReads<S> {
    stream: S,
    /// Bytes read since the last wait.
    read: usize,
    messages: Arc<MessageBytes>,
    /// Time for which a large message waits for room, and within which it has to come, as a request's body.
    request_timeout: Duration,
    /// Time since which the message has no room.
    waits_since: Option<Instant>,
    /// Next look for room, or the time by which more of a large message has to come.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> PacedReads<S> {
    pub fn new(stream: S, messages: Arc<MessageBytes>, request_timeout: Duration) -> Self {
        Self { stream, read: 0, messages, request_timeout, waits_since: None, timer: None }
    }

    /// Returns ready once there is room for the message that is read, or an error if there was none in time.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(since) = self.waits_since {
            match self.messages.add(0) {
                Ok(()) => self.waits_since = None,
                Err(error) if since.elapsed() >= self.request_timeout => {
                    return self.refuse(MessageRefusal::NoRoom(error));
                }
                Err(_) => ready!(self.poll_time(Instant::now() + LOOK, context)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Returns an error once more of a large message is overdue.
    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((since, bytes)) = self.messages.coming() {
            let due = since + self.request_timeout + Duration::from_secs_f64(bytes as f64 / MIN_BYTES_PER_S);
            if Instant::now() >= due {
                return self.refuse(MessageRefusal::Slow);
            }
            ready!(self.poll_time(due, context));
        }
        Poll::Pending
    }

    fn refuse(&self, reason: MessageRefusal) -> Poll<io::Result<()>> {
        self.messages.refuse(reason);
        Poll::Ready(Err(io::Error::other("a message was refused")))
    }

    /// Returns ready at `time`, or at an earlier one that the timer has already.
    fn poll_time(&mut self, time: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(time)));
        if timer.deadline() > time {
            timer.as_mut().reset(time);
        }
        let passed = timer.as_mut().poll(context);
        if passed.is_ready() {
            self.timer = None;
        }
        passed
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedReads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_room(context))?;
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
        if self.messages.add(count).is_err() {
            self.waits_since = Some(Instant::now());
        }
        if read.is_pending() {
            self.read = 0;
            return self.poll_overdue(context);
        }
        self.read += count;
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

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;
    use crate::admission::ClientIdentity;
    use crate::byte_budget::ByteBudget;
    use crate::transport::message_bytes::{MAX_READ, RESERVED};

    const PATIENCE: Duration = Duration::from_secs(30);

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
        let mut stream = PacedReads::new(tokio::io::repeat(1), Arc::default(), PATIENCE);
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

    /// Connection of a client on this machine, a websocket whose messages count within `budget`.
    fn websocket<S: AsyncRead + Unpin>(budget: &Arc<ByteBudget>, stream: S) -> (PacedReads<S>, Arc<MessageBytes>) {
        let client = ClientIdentity { address: [127, 0, 0, 1].into(), key: None };
        let messages = Arc::new(MessageBytes::default());
        messages.begin(budget.begin(client, None, 0));
        (PacedReads::new(stream, messages.clone(), PATIENCE), messages)
    }

    #[tokio::test(start_paused = true)]
    async fn messages_without_room_wait_and_then_end() {
        let budget = ByteBudget::new(2 * RESERVED as u64 - 1);
        let [mut first, mut second, mut third] = [0; 3].map(|_| websocket(&budget, tokio::io::repeat(1)));
        let mut message = vec![0; MAX_READ];
        first.0.read_exact(&mut message).await.unwrap();
        let start = Instant::now();
        second.0.read_exact(&mut message).await.unwrap_err();
        let waited = start.elapsed();
        assert!((PATIENCE..=PATIENCE + LOOK).contains(&waited), "{waited:?}");
        assert!(matches!(second.1.refusal(), Some(MessageRefusal::NoRoom(_))));
        assert_eq!(budget.total(), RESERVED, "one that waits takes no room from others");
        // Room that is made meanwhile is found.
        let read = tokio::spawn(async move { third.0.read_exact(&mut message).await.map(drop) });
        tokio::time::advance(PATIENCE / 2).await;
        assert!(!read.is_finished());
        first.1.release();
        read.await.unwrap().unwrap();
        assert_eq!(third.1.refusal(), None);
        assert!(start.elapsed() < 2 * PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn large_messages_come_in_time() {
        let budget = ByteBudget::new(RESERVED as u64);
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let (mut stream, messages) = websocket(&budget, server);
        let mut message = vec![0; 4 << 20];
        // Two seconds for 64 KiB are too slow, but the first 30 s are for free.
        let sending = tokio::spawn(async move {
            for piece in 0..64 {
                tokio::time::sleep(Duration::from_secs(if piece < 32 { 0 } else { 2 })).await;
                client.write_all(&[0; 64 << 10]).await.unwrap();
            }
            client
        });
        let start = Instant::now();
        let (read, client) = tokio::join!(stream.read_exact(&mut message), sending);
        assert_eq!((read.unwrap(), messages.refusal()), (4 << 20, None));
        let client = client.unwrap();
        stream.read_exact(&mut message).await.unwrap_err();
        assert_eq!(messages.refusal(), Some(MessageRefusal::Slow));
        assert!(start.elapsed() < Duration::from_secs(100), "{:?}", start.elapsed());
        // While the call works on a message a client may be silent.
        messages.complete();
        assert!(timeout(10 * PATIENCE, stream.read(&mut message)).await.is_err());
        drop(client);
        assert_eq!(stream.read(&mut message).await.unwrap(), 0);
    }
}
