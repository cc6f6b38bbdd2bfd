//! A UDP socket with kernel receive time stamps, so that a late generator does not make the server look late.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendto, setsockopt};
use nix::sys::time::TimeSpec;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Oldest plausible time stamp; beyond this the system's clock was changed.
const OLDEST: Duration = Duration::from_secs(10);

/// A bound UDP socket with receive time stamps.
#[derive(Debug)]
pub struct StampedSocket(UdpSocket);

/// A datagram's length, sender and arrival.
pub type Datagram = (usize, SocketAddr, Instant);

impl StampedSocket {
    /// Binds to `address`; port 0 takes any port.
    ///
    /// # Errors
    /// The address is not available, or the kernel has no receive time stamps.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address).await?;
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        Ok(Self(socket))
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Waits until a datagram is available. Cancel safe.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Sends a datagram, or drops it if the system's buffer is full, as a network does.
    pub fn send(&self, datagram: &[u8], to: SocketAddr) {
        // Bypasses the runtime, which considers a new socket not writable at first. An unreachable peer shows by
        // missing replies.
        let _ = sendto(self.0.as_raw_fd(), datagram, &SockaddrStorage::from(to), MsgFlags::MSG_DONTWAIT);
    }

    /// Receives a datagram without blocking.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, or the error of the system call.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Datagram> {
        self.0.try_io(Interest::READABLE, || {
            let mut pieces = [IoSliceMut::new(buffer)];
            let mut control = nix::cmsg_space!(TimeSpec);
            let fd = self.0.as_raw_fd();
            let message = recvmsg::<SockaddrStorage>(fd, &mut pieces, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
            let stamp = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
                _ => None,
            });
            let from = message.address.as_ref().and_then(socket_addr);
            let from = from.ok_or_else(|| io::Error::other("a datagram without a sender"))?;
            Ok((message.bytes, from, arrival(stamp)))
        })
    }
}

/// Converts a time stamp since 1970 to an arrival; now if it is missing or implausible.
fn arrival(stamp: Option<Duration>) -> Instant {
    let now = Instant::now();
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let age = stamp.and_then(|stamp| today.checked_sub(stamp)).filter(|age| *age < OLDEST);
    now.checked_sub(age.unwrap_or_default()).unwrap_or(now)
}

fn socket_addr(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|address| SocketAddr::V4(SocketAddrV4::from(*address)));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddr::V6(SocketAddrV6::from(*address))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longest time until the system stamps datagrams: Linux turns it on in a work queue.
    const PATIENCE: Duration = Duration::from_secs(10);
    // The system clock and the monotonic clock are read one after the other.
    const SLACK: Duration = Duration::from_millis(1);

    struct Pair {
        socket: StampedSocket,
        peer: StampedSocket,
    }

    impl Pair {
        async fn bound() -> Self {
            let [socket, peer] = [(); 2].map(|()| StampedSocket::bind(([127, 0, 0, 1], 0).into()));
            Self { socket: socket.await.unwrap(), peer: peer.await.unwrap() }
        }

        /// Receives a datagram `late` after it is readable. Returns the delay of its arrival behind that moment.
        async fn received(&self, late: Duration) -> Duration {
            let sent = Instant::now();
            self.peer.send(b"hello", self.socket.local_addr().unwrap());
            self.socket.readable().await.unwrap();
            let noticed = Instant::now();
            tokio::time::sleep(late).await;
            let mut buffer = [0; 100];
            let (length, from, arrival) = self.socket.receive(&mut buffer).unwrap();
            assert_eq!((&buffer[..length], from), (&b"hello"[..], self.peer.local_addr().unwrap()));
            assert!(arrival + SLACK >= sent, "it arrived {:?} before it was sent", sent - arrival);
            arrival.saturating_duration_since(noticed)
        }
    }

    #[tokio::test]
    async fn arrival_is_the_kernels_not_the_readers() {
        let pair = Pair::bound().await;
        let begun = Instant::now();
        while pair.received(5 * SLACK).await > SLACK {
            assert!(begun.elapsed() < PATIENCE, "the system stamps no datagram when it arrives");
        }
        // From here on each datagram is stamped, even with a late reader.
        let behind = pair.received(60 * SLACK).await;
        assert!(behind <= SLACK, "{behind:?}");
    }
}
