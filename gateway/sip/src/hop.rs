//! Address of another agent, with the transport that messages take to it.

use core::fmt;
use core::net::SocketAddr;

/// Transport of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SignalTransport {
    /// A datagram for each message.
    Udp,
    /// Connections, each with many messages.
    Tcp,
    /// Encrypted connections, on port 5061 unless said otherwise.
    Tls,
}

impl SignalTransport {
    /// True if the transport itself repeats what is lost.
    pub fn is_reliable(self) -> bool {
        self != Self::Udp
    }

    /// Port of an address that names none.
    pub(crate) fn port(self) -> u16 {
        if self == Self::Tls { 5061 } else { 5060 }
    }

    /// Name in `Via`.
    pub(crate) fn via(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        }
    }

    /// Parameter of a URI.
    fn parameter(self) -> &'static str {
        match self {
            Self::Udp => "",
            Self::Tcp => ";transport=tcp",
            Self::Tls => ";transport=tls",
        }
    }
}

/// Address of an agent by one transport. The address of a connection's other end stands for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hop {
    /// IP address and port.
    pub address: SocketAddr,
    /// Transport that messages take to it.
    pub transport: SignalTransport,
}

impl Hop {
    /// Address by this transport.
    pub fn new(transport: SignalTransport, address: SocketAddr) -> Self {
        Self { address, transport }
    }

    /// Address by UDP.
    pub fn udp(address: impl Into<SocketAddr>) -> Self {
        Self::new(SignalTransport::Udp, address.into())
    }

    /// Value of `Contact` with this address, behind the name `user` if there is one.
    pub(crate) fn contact(self, user: &str) -> String {
        let at = if user.is_empty() { "" } else { "@" };
        format!("<sip:{user}{at}{}{}>", self.address, self.transport.parameter())
    }

    /// Start of our `Via`, with this address.
    pub(crate) fn via(self, branch: &str) -> String {
        format!("Via: SIP/2.0/{} {};rport;branch={branch}\r\n", self.transport.via(), self.address)
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.transport.via(), self.address)
    }
}
