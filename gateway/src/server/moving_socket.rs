//! A socket that goes on on another runtime: a websocket begins as a request, and its call has threads of its own.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};
use tokio::time::{Sleep, sleep};

/// A TCP connection, with a timeout for writing if it has one. The runtime that polls it waits for its readiness: at the first poll on
/// another one it is registered there, and the first one may end.
#[derive(Debug)]
pub(super) struct MovingSocket {
    /// `None` after a move that failed.
    socket: Option<TcpStream>,
    /// Runtime that it is registered at.
    runtime: Id,
    /// Time without a byte written after which it fails; `None` to wait for ever.
    stalled_after: Option<Duration>,
    /// End of the wait for the write that is going on.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl MovingSocket {
    /// Wraps a socket of the current runtime. Writing fails once it accepts no data for `stalled_after`, if that is set.
    pub fn new(socket: TcpStream, stalled_after: Option<Duration>) -> Self {
        Self { socket: Some(socket), runtime: Handle::current().id(), stalled_after, stalled: None }
    }

    /// Returns the socket, registered at the current runtime.
    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        let here = Handle::current().id();
        if here != self.runtime
            && let Some(socket) = self.socket.take()
        {
            self.socket = Some(TcpStream::from_std(socket.into_std()?)?);
            self.runtime = here;
            self.stalled = None;
        }
        self.socket.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Fails a write that waits for too long.
    fn within<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let (true, Some(after)) = (written.is_pending(), self.stalled_after) else {
            self.stalled = None;
            return written;
        };
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(after))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for MovingSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.here()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for MovingSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.here()?.poll_write(context, bytes);
        self.within(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.here()?.poll_write_vectored(context, buffers);
        self.within(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.here()?.poll_flush(context);
        self.within(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = self.here()?.poll_shutdown(context);
        self.within(shut, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    use super::*;

    const STALLED: Duration = Duration::from_secs(10);

    /// Connects two sockets; one of them is registered at the current runtime.
    async fn connected() -> (MovingSocket, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_nonblocking(true).unwrap();
        (MovingSocket::new(listener.accept().await.unwrap().0, Some(STALLED)), peer)
    }

    #[test]
    fn a_socket_outlives_its_first_runtime() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let first = runtime();
        let (mut socket, peer) = first.block_on(connected());
        first.block_on(socket.write_all(b"request")).unwrap();
        drop(first);
        runtime().block_on(async {
            let mut peer = TcpStream::from_std(peer).unwrap();
            let mut bytes = [0; 7];
            peer.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"request");
            // Both wait for the other here, so that the readiness comes from this runtime.
            let (read, ()) = tokio::join!(socket.read_exact(&mut bytes[..5]), async {
                tokio::task::yield_now().await;
                peer.write_all(b"sound").await.unwrap();
            });
            read.unwrap();
            assert_eq!(&bytes[..5], b"sound");
            socket.write_all(b"answer").await.unwrap();
            peer.read_exact(&mut bytes[..6]).await.unwrap();
            assert_eq!(&bytes[..6], b"answer");
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_ends_the_write() {
        let (mut socket, _peer) = connected().await;
        let begun = tokio::time::Instant::now();
        let error = socket.write_all(&vec![0; 64 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= STALLED);
    }
}
