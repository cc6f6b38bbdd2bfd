//! Addresses and limits of calls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::config::WebRtc;

/// Addresses and limits of calls. The default serves callers on the same machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebRtcSettings {
    /// The one UDP port of all calls; port 0 takes any free one.
    pub udp: SocketAddr,
    /// Addresses to announce instead of the bound ones, behind a 1:1 NAT for instance; the port stays. Empty: the bound
    /// ones.
    pub advertised: Vec<IpAddr>,
    /// The longest message taken from a peer, in bytes; at most 262144.
    pub max_message_size: u32,
    /// A call that was answered but not taken up for so long is given up.
    pub connect_within: Duration,
    /// Sound that a receiver is assumed to hold back before it plays it: what was sent so recently was not heard yet.
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

impl WebRtcSettings {
    /// Those of a server that listens for HTTP at `address`: calls reach the same interfaces if nothing else is said.
    pub fn of(config: &WebRtc, address: IpAddr) -> Self {
        Self {
            udp: config.udp.unwrap_or(SocketAddr::new(address, 0)),
            advertised: config.advertised.clone(),
            max_message_size: config.max_message_bytes,
            connect_within: config.connect_within,
            receiver_buffer: config.receiver_buffer,
        }
    }
}
