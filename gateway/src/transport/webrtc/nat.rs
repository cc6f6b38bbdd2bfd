//! A NAT on loopback between a caller and the mux, for tests: it can change its mapping, and lose audio on the way down.

use std::net::SocketAddr;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A NAT in front of a server. Dropping it ends it.
pub(super) struct Nat {
    inside: SocketAddr,
    server: SocketAddr,
    remap: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Nat {
    /// A NAT that loses no packet.
    pub async fn new(server: SocketAddr) -> Self {
        Self::losing(server, |_| false).await
    }

    /// A NAT that loses the server's RTP packets with these sequence numbers.
    pub async fn losing(server: SocketAddr, lost: fn(u16) -> bool) -> Self {
        let local = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let inside = local.local_addr().unwrap();
        let mut outside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (remap, mut remapped) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let (mut caller, mut up, mut down) = (None, [0; 2_000], [0; 2_000]);
            loop {
                tokio::select! {
                    Ok((length, from)) = local.recv_from(&mut up) => {
                        caller = Some(from);
                        outside.send_to(&up[..length], server).await.unwrap();
                    }
                    Ok((length, _)) = outside.recv_from(&mut down) => {
                        if let Some(caller) = caller
                            && !rtp_sequence(&down[..length]).is_some_and(lost)
                        {
                            local.send_to(&down[..length], caller).await.unwrap();
                        }
                    }
                    Some(()) = remapped.recv() => outside = UdpSocket::bind("127.0.0.1:0").await.unwrap(),
                }
            }
        });
        Self { inside, server, remap, task }
    }

    /// Changes the mapping: the caller's packets leave from another port, and what still comes to the old one is lost.
    pub async fn remap(&self) {
        self.remap.send(()).await.unwrap();
    }

    /// The server's answer with the NAT in place of the server.
    pub fn rewrite(&self, answer: &str) -> String {
        let candidate = |address: SocketAddr| format!("{} {} typ", address.ip(), address.port());
        answer.replace(&candidate(self.server), &candidate(self.inside))
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The sequence number of an RTP packet; `None` for RTCP and everything else on the port (RFC 7983, RFC 5761).
fn rtp_sequence(datagram: &[u8]) -> Option<u16> {
    match datagram {
        [128..=191, kind, high, low, ..] if !(192..=223).contains(kind) => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}
