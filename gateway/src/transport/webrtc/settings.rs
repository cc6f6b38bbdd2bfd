//! Addresses and limits of calls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Addresses and limits of calls. The default serves callers on the same machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebRtcSettings {
    /// The one UDP port of all calls; port 0 takes any free one.
    pub udp: SocketAddr,
    /// Addresses to announce instead of the bound ones, for instance behind a 1:1 NAT; the port stays. Empty: the bound
    /// ones.
    pub advertised: Vec<IpAddr>,
    /// The longest message accepted from a peer, in bytes; at most 262144.
    pub max_message_size: u32,
    /// A call that was answered but not connected for so long is freed.
    pub connect_within: Duration,
    /// The jitter buffer that a receiver is assumed to have: what was sent within it was not heard yet.
    pub receiver_buffer: Duration,
}

impl Default for WebRtcSettings {
    fn default() -> Self {
        Self {
            udp: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertised: Vec::new(),
            max_message_size: 256 * 1024,
            connect_within: Duration::from_secs(30),
            receiver_buffer: Duration::from_millis(60),
        }
    }
}
