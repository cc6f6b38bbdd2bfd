//! Sockets of the signalling.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use repartee_sip::{Hop, SignalTransport};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::service::{SipCommand, SipService};
use super::stream_tls::SipTls;
use super::streams::Streams;
use crate::config::{SipAddress, SipConfig, SipScheme};
use crate::server::start_error::ServerStartError;
use crate::server::tls::CertificateResolver;
use crate::transport::sip::PortRange;

/// Sockets of the signalling, before the server serves.
#[derive(Debug)]
pub(in crate::server) struct SipSockets {
    udp: Option<std::net::UdpSocket>,
    tcp: Option<TcpListener>,
    tls: Option<TcpListener>,
    keys: SipTls,
    /// Addresses as others reach them.
    pub(super) addresses: Vec<Hop>,
    announced: IpAddr,
    /// IP address that they are bound to.
    bound: IpAddr,
}

/// Binds the sockets; `None` without `sip.listen`. `certificates` is the server's own.
pub(in crate::server) fn bind(
    config: &SipConfig,
    certificates: Option<Arc<CertificateResolver>>,
) -> Result<Option<SipSockets>, ServerStartError> {
    let (Some(first), Some(announced)) = (config.listen.first(), config.announced()) else { return Ok(None) };
    let mut sockets = SipSockets {
        udp: None,
        tcp: None,
        tls: None,
        keys: SipTls::new(config, certificates)?,
        addresses: Vec::new(),
        announced,
        bound: first.address.ip(),
    };
    for listen in &config.listen {
        sockets.add(listen).map_err(|error| ServerStartError::Sip { address: *listen, error })?;
    }
    Ok(Some(sockets))
}

impl SipSockets {
    fn add(&mut self, listen: &SipAddress) -> io::Result<()> {
        let address = if listen.scheme == SipScheme::Udp {
            let socket = std::net::UdpSocket::bind(listen.address)?;
            socket.set_nonblocking(true)?;
            self.udp.insert(socket).local_addr()?
        } else {
            let listener = TcpListener::bind(listen.address)?;
            listener.set_nonblocking(true)?;
            let place = if listen.scheme == SipScheme::Tcp { &mut self.tcp } else { &mut self.tls };
            place.insert(listener).local_addr()?
        };
        self.addresses.push(Hop::new(transport(listen.scheme), SocketAddr::new(self.announced, address.port())));
        Ok(())
    }

    /// Creates the service of the server's state, and the commands' other end for [`spawn`](super::spawn).
    pub fn service(&self, config: &SipConfig) -> (SipService, mpsc::Receiver<SipCommand>) {
        let ports = PortRange::new((config.first_port, config.last_port));
        SipService::new(self.addresses.clone(), self.announced, self.bound, ports)
    }

    /// Hands the sockets to the runtime. Must be called within one.
    pub(super) fn open(self) -> io::Result<(Option<UdpSocket>, Streams)> {
        let listen = |listener: Option<TcpListener>| listener.map(tokio::net::TcpListener::from_std).transpose();
        let streams = Streams::new(listen(self.tcp)?, listen(self.tls)?, self.keys);
        Ok((self.udp.map(UdpSocket::from_std).transpose()?, streams))
    }
}

/// Transport of an address of the settings.
pub(super) fn transport(scheme: SipScheme) -> SignalTransport {
    match scheme {
        SipScheme::Udp => SignalTransport::Udp,
        SipScheme::Tcp => SignalTransport::Tcp,
        SipScheme::Tls => SignalTransport::Tls,
    }
}
