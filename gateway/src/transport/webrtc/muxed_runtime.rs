//! Runtime for the WebRTC library whose UDP sockets are all the call's [`MuxedSocket`].
//!
//! The library binds its own socket for each connection; that socket is closed at once, and only its address stays as
//! the local address. Every peer has the same made-up address: the muxed socket knows the real one (see `ice`).

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Instrument as _;
use webrtc::runtime::{
    AsyncInterval, AsyncTcpListener, AsyncTcpStream, AsyncUdpSocket, JoinHandle, RecvMeta, Runtime, TokioRuntime,
    Transmit,
};

use super::muxed_socket::MuxedSocket;

/// Made-up address of the caller for the library.
fn peer() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9))
}

/// Tokio runtime, except for UDP sockets.
#[derive(Debug)]
pub(super) struct MuxedRuntime(pub Arc<MuxedSocket>);

impl Runtime for MuxedRuntime {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) -> Box<dyn JoinHandle> {
        // The library's tasks log within the call's span.
        TokioRuntime.spawn(Box::pin(future.in_current_span()))
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(MuxedUdpSocket { socket: self.0.clone(), name: socket.local_addr()? }))
    }

    fn wrap_tcp_listener(&self, listener: std::net::TcpListener) -> io::Result<Arc<dyn AsyncTcpListener>> {
        TokioRuntime.wrap_tcp_listener(listener)
    }

    fn connect_tcp<'a>(
        &'a self,
        remote: SocketAddr,
    ) -> Pin<Box<dyn Future<Output = io::Result<Arc<dyn AsyncTcpStream>>> + Send + 'a>> {
        TokioRuntime.connect_tcp(remote)
    }

    fn resolve_host<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>> {
        TokioRuntime.resolve_host(host)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        TokioRuntime.sleep(duration)
    }

    fn interval(&self, period: Duration) -> Box<dyn AsyncInterval> {
        TokioRuntime.interval(period)
    }

    fn block_on(&self, future: Pin<Box<dyn Future<Output = ()> + '_>>) {
        TokioRuntime.block_on(future);
    }

    fn yield_now(&self) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        TokioRuntime.yield_now()
    }
}

/// A [`MuxedSocket`] behind the library's socket trait.
#[derive(Debug)]
struct MuxedUdpSocket {
    socket: Arc<MuxedSocket>,
    name: SocketAddr,
}

impl AsyncUdpSocket for MuxedUdpSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.name)
    }

    fn poll_send(&self, _: &mut Context<'_>, transmit: &Transmit<'_>) -> Poll<io::Result<usize>> {
        self.socket.send(transmit.contents);
        Poll::Ready(Ok(transmit.contents.len()))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let (Some(buffer), Some(meta)) = (buffers.first_mut(), meta.first_mut()) else {
            return Poll::Ready(Ok(0));
        };
        let Poll::Ready(datagram) = self.socket.poll_recv(cx) else { return Poll::Pending };
        // A longer datagram is cut off, as a socket does; no peer of ours sends one.
        let length = datagram.len().min(buffer.len());
        buffer[..length].copy_from_slice(&datagram[..length]);
        *meta = RecvMeta::default();
        (meta.len, meta.stride, meta.addr) = (length, length.max(1), peer());
        Poll::Ready(Ok(1))
    }
}
