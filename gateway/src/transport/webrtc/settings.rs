//! Addresses and limits of calls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Label of the data channel that carries the protocol's events.
pub const DATA_CHANNEL_LABEL: &str = "oai-events";
/// A peer is gone if nothing arrives from it for this long.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// Addresses and limits of WebRTC calls. The default serves callers on the same machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebRtcSettings {
    /// The one UDP port of all calls; port 0 takes any free one.
    pub udp: SocketAddr,
    /// Addresses to announce instead of the bound ones, for instance behind a 1:1 NAT; the port stays. Empty: the bound
    /// ones.
    pub advertised: Vec<IpAddr>,
    /// Largest accepted message of a peer, in bytes; at most 262144.
    pub max_message_size: u32,
    /// Time limit between answer and connection; after it the call is freed.
    pub connect_within: Duration,
    /// Assumed jitter buffer of a receiver: audio sent within this time was not heard yet.
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
