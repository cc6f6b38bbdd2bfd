//! The UDP mux: one socket for all calls.
//!
//! A datagram belongs to the call that its STUN request names, else to the call that knows its source address, else to
//! the call that has its SSRC; all others are dropped and counted. `demux` holds the tables, `muxed_runtime` is the
//! call's side.
//!
//! Overflow: a full queue drops the newest datagram, and a socket without room drops outgoing datagrams, as the network
//! does; both are counted.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rtc::crypto::{RTCCryptoProvider, default_provider};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use webrtc::runtime::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::WebRtcSettings;
use super::addresses::{local_addr_towards, local_addresses};
use super::demux::{DemuxTable, MuxEntry};
use super::ice::{IceOutput, Route};
use super::probe_budget::ProbeBudget;
use super::ssrcs::PacketKind;
use super::stun;

/// A coalesced read holds up to 64 datagrams of one Ethernet frame each.
const READ_BUFFER: usize = 64 * 1_500;
/// Requested size of the socket's buffers, each way, in bytes.
const SOCKET_BUFFER: usize = 4 << 20;
/// Maximum candidates in an answer.
const MAX_CANDIDATES: usize = 16;
/// Pause after a read error.
const READ_RETRY: Duration = Duration::from_millis(100);

/// UDP socket of all calls. Dropping it closes the socket once the last call has ended.
#[derive(Debug)]
pub struct UdpMux {
    shared: Arc<MuxShared>,
    settings: WebRtcSettings,
    reader: JoinHandle<()>,
}

/// Numbers of dropped datagrams since the start, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedDatagrams {
    /// Datagrams that belong to no call.
    pub unmatched: u64,
    /// Datagrams of calls that did not read them in time.
    pub unread: u64,
    /// Datagrams that the socket did not accept.
    pub unsent: u64,
    /// RTP and RTCP of calls with an SSRC that is not theirs.
    pub unknown_ssrcs: u64,
    /// RTP and RTCP that SRTP refused: replayed, forged or too old.
    pub refused: u64,
    /// STUN that was not sent, because its address is not validated and its budget is spent.
    pub unvalidated: u64,
}

/// The socket with its demux table and counters, which calls keep alive.
pub(super) struct MuxShared {
    socket: UdpSocket,
    /// Socket features of the system: several datagrams a read, and the local address of each.
    system: UdpSocketState,
    address: SocketAddr,
    crypto: Arc<dyn RTCCryptoProvider>,
    demux: Mutex<DemuxTable>,
    unmatched: AtomicU64,
    unread: AtomicU64,
    unsent: AtomicU64,
    unknown_ssrcs: AtomicU64,
    /// Refused datagrams of calls that have ended.
    refused: AtomicU64,
    unvalidated: AtomicU64,
    probes: Mutex<ProbeBudget>,
}

impl std::fmt::Debug for MuxShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("address", &self.address).finish_non_exhaustive()
    }
}

impl UdpMux {
    /// Binds the socket. Must be called within a runtime.
    pub fn bind(settings: WebRtcSettings) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(settings.udp)?;
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        let system = UdpSocketState::new(UdpSockRef::from(&socket))?;
        enlarge_buffers(&system, &socket);
        let crypto = default_provider().map_err(io::Error::other)?;
        let shared = Arc::new(MuxShared {
            socket,
            system,
            address,
            crypto,
            demux: Mutex::default(),
            unmatched: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            unknown_ssrcs: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unvalidated: AtomicU64::new(0),
            probes: Mutex::default(),
        });
        let reader = tokio::spawn(read(shared.clone()));
        Ok(Self { shared, settings, reader })
    }

    /// Local address of the socket.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Settings of calls at this mux.
    pub fn settings(&self) -> &WebRtcSettings {
        &self.settings
    }

    /// Number of calls.
    pub fn calls(&self) -> usize {
        self.shared.demux().calls()
    }

    /// Handles a datagram as if it had come from the network.
    #[cfg(test)]
    pub(super) fn receive(&self, route: Route, datagram: &[u8], now: Instant) {
        self.shared.receive(route, datagram, now);
    }

    /// Numbers of addresses and of SSRCs that belong to calls.
    #[cfg(test)]
    pub(super) fn routes(&self) -> (usize, usize) {
        self.shared.demux().routes()
    }

    /// Returns the numbers of dropped datagrams so far.
    pub fn dropped(&self) -> DroppedDatagrams {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DroppedDatagrams {
            unmatched: count(&self.shared.unmatched),
            unread: count(&self.shared.unread),
            unsent: count(&self.shared.unsent),
            unknown_ssrcs: count(&self.shared.unknown_ssrcs),
            refused: count(&self.shared.refused) + self.shared.demux().refused(),
            unvalidated: count(&self.shared.unvalidated),
        }
    }

    /// Our ICE candidates for a caller at this address, the preferred one first. A caller learns only our address on
    /// the route to it, and none of our other networks; without a known route, all our addresses.
    pub(super) fn candidates(&self, caller: Option<IpAddr>) -> Vec<SocketAddr> {
        let own = self.shared.address;
        let mut addresses = self.settings.advertised.clone();
        if addresses.is_empty() {
            let reached = || caller.and_then(local_addr_towards).filter(|address| address.is_ipv4() || own.is_ipv6());
            addresses = match own.ip() {
                ip if !ip.is_unspecified() => vec![ip],
                _ => reached().map_or_else(|| local_addresses(own.is_ipv6()), |address| vec![address]),
            };
        }
        addresses.truncate(MAX_CANDIDATES);
        addresses.into_iter().map(|address| SocketAddr::new(address, own.port())).collect()
    }

    /// Returns the state that the sockets of the calls share.
    pub(super) fn shared(&self) -> Arc<MuxShared> {
        self.shared.clone()
    }
}

impl Drop for UdpMux {
    fn drop(&mut self) {
        // Running calls keep the socket, but nothing is read from it any more.
        self.reader.abort();
    }
}

impl MuxShared {
    /// Cryptography provider of the calls.
    pub(super) fn crypto(&self) -> Arc<dyn RTCCryptoProvider> {
        self.crypto.clone()
    }

    /// Adds the datagrams that a call's SRTP refused, at the call's end.
    pub(super) fn count_refused(&self, datagrams: u64) {
        self.refused.fetch_add(datagrams, Ordering::Relaxed);
    }

    fn probes(&self) -> MutexGuard<'_, ProbeBudget> {
        // Plain numbers: a panic cannot leave them half-changed.
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn demux(&self) -> MutexGuard<'_, DemuxTable> {
        // A panic cannot leave an insertion or removal half-done.
        self.demux.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles one datagram from the network.
    fn receive(&self, route: Route, datagram: &[u8], now: Instant) {
        let packet = PacketKind::of(datagram);
        let Some(entry) = self.demux().owner(route, datagram, packet.rtp()) else {
            self.unmatched.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let outputs = if stun::is_stun(datagram) {
            entry.agent().stun(route, datagram, now)
        } else {
            entry.agent().media(route, datagram, packet, now)
        };
        for output in outputs {
            match output {
                IceOutput::Send(route, datagram) => {
                    if entry.agent().is_validated(route) || self.probes().take(route.remote.ip(), now) {
                        self.send(route, &datagram);
                    } else {
                        self.unvalidated.fetch_add(1, Ordering::Relaxed);
                    }
                }
                IceOutput::Deliver(datagram) => self.deliver(&entry, datagram),
                IceOutput::AddRoute(route) => self.demux().add_route(route, &entry),
                IceOutput::RemoveRoute(route) => self.demux().remove_route(route, &entry),
                IceOutput::AddSsrc(ssrc) => self.demux().add_ssrc(ssrc, &entry),
                IceOutput::UnknownSsrc => {
                    self.unknown_ssrcs.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Queues a datagram for a call's connection, or counts it as unread.
    pub(super) fn deliver(&self, entry: &MuxEntry, datagram: Vec<u8>) {
        if !entry.deliver(datagram) {
            self.unread.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a datagram, or counts it as unsent.
    pub(super) fn send(&self, route: Route, datagram: &[u8]) {
        let transmit = Transmit {
            destination: route.remote,
            ecn: None,
            contents: datagram,
            segment_size: None,
            src_ip: route.local,
        };
        // The descriptor does not block, and no task waits for room.
        if self.system.try_send(UdpSockRef::from(&self.socket), &transmit).is_err() {
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reads the socket and hands every datagram to its call.
async fn read(shared: Arc<MuxShared>) {
    let mut buffer = vec![0; READ_BUFFER];
    loop {
        let mut meta = [RecvMeta::default()];
        let read = shared.socket.async_io(Interest::READABLE, || {
            let mut buffers = [IoSliceMut::new(&mut buffer)];
            shared.system.recv(UdpSockRef::from(&shared.socket), &mut buffers, &mut meta)
        });
        match read.await {
            Ok(_) => {
                let [meta] = meta;
                let now = Instant::now();
                let route = Route { remote: meta.addr, local: meta.dst_ip };
                for datagram in buffer[..meta.len.min(READ_BUFFER)].chunks(meta.stride.max(1)) {
                    shared.receive(route, datagram, now);
                }
            }
            // An ICMP error of one caller's machine must not stop the other calls.
            Err(error) if is_remote(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot read the UDP socket of the calls");
                tokio::time::sleep(READ_RETRY).await;
            }
        }
    }
}

/// Requests larger socket buffers, because bursts of many calls arrive faster than they are read.
fn enlarge_buffers(system: &UdpSocketState, socket: &UdpSocket) {
    for set in [UdpSocketState::set_recv_buffer_size, UdpSocketState::set_send_buffer_size] {
        if let Err(error) = set(system, UdpSockRef::from(socket), SOCKET_BUFFER) {
            tracing::debug!(%error, "the UDP socket keeps the default buffer sizes");
        }
    }
}

fn is_remote(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | HostUnreachable | Interrupted | NetworkUnreachable)
}
