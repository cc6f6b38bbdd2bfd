//! UDP socket of a call's sound, and whose packets it takes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::UdpSocket;

/// Datagrams that are dropped at the beginning of a call out: as many as a socket's buffer holds.
const MAX_UNREAD: usize = 4_096;

/// Ports of calls: an even one for each.
#[derive(Debug)]
pub struct PortRange {
    first: u16,
    last: u16,
    next: AtomicU16,
}

impl PortRange {
    /// Creates a range; `(0, 0)` takes any free port.
    pub fn new((first, last): (u16, u16)) -> Self {
        Self { first, last, next: AtomicU16::new(first) }
    }

    /// Binds a socket at `address` to the next free port.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub fn bind(&self, address: IpAddr) -> io::Result<SoundSocket> {
        let mut failure = None;
        for _ in 0..=(u32::from(self.last - self.first) / 2) {
            let step = |port: u16| Some(if port >= self.last.saturating_sub(1) { self.first } else { port + 2 });
            let port = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).unwrap_or(self.first);
            let bound = std::net::UdpSocket::bind((address, port)).and_then(|socket| {
                socket.set_nonblocking(true)?;
                UdpSocket::from_std(socket)
            });
            match bound {
                Ok(socket) => return Ok(SoundSocket { port: socket.local_addr()?.port(), socket }),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| io::Error::other("the range of ports is empty")))
    }
}

/// Socket of one call.
#[derive(Debug)]
pub struct SoundSocket {
    pub(super) socket: UdpSocket,
    port: u16,
}

impl SoundSocket {
    /// Drops what has come and was not read.
    pub fn drain(&self) {
        let mut buffer = [0; 1];
        // Bounded, because a flood may fill the socket as fast.
        for _ in 0..MAX_UNREAD {
            if self.socket.try_recv_from(&mut buffer).is_err() {
                return;
            }
        }
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Addresses of one call's sound. Packets from the described address are the call's. Until one has come, the first address
/// of the same machine, or of the signalling's, stands for it: a translator of addresses may be between.
#[derive(Debug)]
pub(super) struct SoundPath {
    /// Address of the call's signalling.
    signalling: IpAddr,
    /// Address in the session description.
    described: SocketAddr,
    /// Address that packets have come from.
    source: Option<SocketAddr>,
}

impl SoundPath {
    pub fn new(signalling: IpAddr, described: SocketAddr) -> Self {
        Self { signalling: signalling.to_canonical(), described, source: None }
    }

    /// Takes another address from a session description.
    pub fn describe(&mut self, described: SocketAddr) {
        if described != self.described {
            (self.described, self.source) = (described, None);
        }
    }

    /// True for a packet that may be this call's.
    pub fn admits(&self, from: SocketAddr) -> bool {
        if from == self.described {
            return true;
        }
        let ip = from.ip().to_canonical();
        let is_near = ip == self.signalling || ip == self.described.ip().to_canonical();
        is_near && self.source.is_none_or(|source| source == from)
    }

    /// Notes the address of a packet of this call.
    pub fn note(&mut self, from: SocketAddr) {
        if from == self.described {
            self.source = Some(from);
        } else {
            self.source.get_or_insert(from);
        }
    }

    /// Address of our packets.
    pub fn target(&self) -> SocketAddr {
        self.source.unwrap_or(self.described)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_goes_where_it_comes_from() {
        let (inside, outside): (SocketAddr, SocketAddr) =
            (([10, 0, 0, 7], 4000).into(), ([192, 0, 2, 1], 61_000).into());
        let stranger: SocketAddr = ([192, 0, 2, 2], 4000).into();
        let mut path = SoundPath::new(outside.ip(), inside);
        assert_eq!(path.target(), inside);
        assert!(path.admits(outside) && path.admits(inside) && !path.admits(stranger));
        path.note(outside);
        assert_eq!(path.target(), outside);
        assert!(!path.admits(([192, 0, 2, 1], 7).into()), "another port of the same machine");
        path.describe(inside);
        assert_eq!(path.target(), outside, "unchanged");
        // The described address has the last word.
        assert!(path.admits(inside));
        path.note(inside);
        assert_eq!(path.target(), inside);
        assert!(!path.admits(outside));
        let moved: SocketAddr = ([10, 0, 0, 8], 4000).into();
        path.describe(moved);
        assert_eq!(path.target(), moved);
        assert!(path.admits(outside));
    }

    #[tokio::test]
    async fn ports_come_from_the_range() {
        let any = PortRange::new((0, 0)).bind([127, 0, 0, 1].into()).unwrap();
        assert_ne!(any.port(), 0);
        let first = any.port() & !1;
        drop(any);
        let range = PortRange::new((first, first + 1));
        // Another process may have taken the port meanwhile.
        if let Ok(one) = range.bind([127, 0, 0, 1].into()) {
            assert_eq!(one.port(), first);
            assert!(range.bind([127, 0, 0, 1].into()).is_err(), "there is one");
        }
    }
}
