//! Addresses and limits of calls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Addresses and limits of calls. The default serves callers on the same machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebRtcSettings {
    /// Where each call binds its UDP socket. Port 0 takes any free one; an unspecified address stands for every interface
    /// but loopback.
    pub bind: Vec<SocketAddr>,
    /// Addresses to announce instead of the bound ones, behind a 1:1 NAT for instance. Empty: the bound ones.
    pub advertised: Vec<IpAddr>,
    /// The longest message taken from a peer, in bytes; at most 262144.
    pub max_message_size: u32,
}

impl Default for WebRtcSettings {
    fn default() -> Self {
        Self {
            bind: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            advertised: Vec::new(),
            max_message_size: 256 * 1024,
        }
    }
}

impl WebRtcSettings {
    /// Settings for a server that listens on `address`: calls reach the same interfaces as its HTTP port does.
    pub fn listening_on(address: IpAddr) -> Self {
        let mut bind = vec![SocketAddr::new(address, 0)];
        if address.is_unspecified() {
            // "Every interface" leaves loopback out.
            bind.push(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        }
        Self { bind, ..Self::default() }
    }
}
