//! The one UDP socket of all calls.
//!
//! A datagram belongs to the call that its STUN request names, else to the call that knows its source address, else to
//! the call whose voice has its SSRC; anything else is dropped and counted. Each call has a *seat*: its [`LiteAgent`] and
//! a bounded queue from which the call's connection reads (see `view`).
//!
//! Overflow: a full queue drops the newest datagram, and a socket that takes nothing at the moment drops what is sent, as
//! the network does; both are counted.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use rtc::crypto::{RTCCryptoProvider, default_provider};
use rtc::shared::ifaces::ifaces;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use webrtc::runtime::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::WebRtcSettings;
use super::ice::{Credentials, LiteAgent, Output, Route};
use super::stun::{self, Binding, Kind};

/// Datagrams that wait for one call.
const INBOX: usize = 512;
/// A coalesced read holds up to 64 datagrams of one Ethernet frame each.
const READ_BUFFER: usize = 64 * 1_500;
/// What the system is asked to hold for the socket, each way.
const SOCKET_BUFFER: usize = 4 << 20;
/// Addresses that an answer names at most.
const MAX_CANDIDATES: usize = 16;
/// Between two tries to read from a socket that is broken.
const BROKEN_PAUSE: Duration = Duration::from_millis(100);

/// The UDP socket of all calls. Dropping it closes the socket once the last call has ended.
#[derive(Debug)]
pub struct Port {
    shared: Arc<Shared>,
    settings: WebRtcSettings,
    reader: JoinHandle<()>,
}

/// What was dropped since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Datagrams that belong to no call.
    pub strangers: u64,
    /// Datagrams of calls that did not read them in time.
    pub unread: u64,
    /// Datagrams that the socket did not take.
    pub unsent: u64,
}

pub(super) struct Shared {
    socket: UdpSocket,
    /// Knows what the system offers: several datagrams a read, and the address at which each arrived.
    system: UdpSocketState,
    address: SocketAddr,
    crypto: Arc<dyn RTCCryptoProvider>,
    seats: Mutex<Seats>,
    strangers: AtomicU64,
    unread: AtomicU64,
    unsent: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Which datagram belongs to which call.
#[derive(Default)]
struct Seats {
    by_fragment: HashMap<String, Arc<Seat>>,
    by_route: HashMap<Route, Arc<Seat>>,
    by_voice: HashMap<u32, Arc<Seat>>,
}

/// One call's place at the port.
struct Seat {
    fragment: String,
    agent: Mutex<LiteAgent>,
    inbox: Mutex<VecDeque<Vec<u8>>>,
    waiting: AtomicWaker,
}

impl Seat {
    fn agent(&self) -> MutexGuard<'_, LiteAgent> {
        // A datagram is taken wholly or not at all.
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inbox(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        // Only moves happen under the lock.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was room.
    fn deliver(&self, datagram: Vec<u8>) -> bool {
        let mut inbox = self.inbox();
        let room = inbox.len() < INBOX;
        if room {
            inbox.push_back(datagram);
        }
        drop(inbox);
        self.waiting.wake();
        room
    }
}

impl Port {
    /// Binds the socket. Must be called within a runtime.
    pub fn bind(settings: WebRtcSettings) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(settings.udp)?;
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        let system = UdpSocketState::new(UdpSockRef::from(&socket))?;
        enlarge(&system, &socket);
        let crypto = default_provider().map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            socket,
            system,
            address,
            crypto,
            seats: Mutex::default(),
            strangers: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
        });
        let reader = tokio::spawn(read(shared.clone()));
        Ok(Self { shared, settings, reader })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// What the calls at this port go by.
    pub fn settings(&self) -> &WebRtcSettings {
        &self.settings
    }

    /// How many calls have a place here.
    pub fn calls(&self) -> usize {
        self.shared.seats().by_fragment.len()
    }

    /// Takes a datagram as if it had come from the network.
    #[cfg(test)]
    pub(super) fn receive(&self, route: Route, datagram: &[u8], now: Instant) {
        self.shared.receive(route, datagram, now);
    }

    /// How many addresses and SSRCs belong to calls.
    #[cfg(test)]
    pub(super) fn routes(&self) -> (usize, usize) {
        let seats = self.shared.seats();
        (seats.by_route.len(), seats.by_voice.len())
    }

    /// What was dropped so far.
    pub fn dropped(&self) -> Dropped {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Dropped {
            strangers: count(&self.shared.strangers),
            unread: count(&self.shared.unread),
            unsent: count(&self.shared.unsent),
        }
    }

    /// The addresses under which callers find the port, the best one first.
    pub(super) fn candidates(&self) -> Vec<SocketAddr> {
        let own = self.shared.address;
        let mut addresses = self.settings.advertised.clone();
        if addresses.is_empty() {
            addresses = if own.ip().is_unspecified() { interfaces(own.is_ipv6()) } else { vec![own.ip()] };
        }
        addresses.truncate(MAX_CANDIDATES);
        addresses.into_iter().map(|address| SocketAddr::new(address, own.port())).collect()
    }

    /// A place for a call whose caller is known by `theirs` and has announced the SSRCs `voices`.
    pub(super) fn take_seat(&self, theirs: Credentials, voices: Vec<u32>) -> Result<Place, getrandom::Error> {
        let ours = Credentials { fragment: random_text(12)?, password: random_text(28)? };
        let crypto = self.shared.crypto.clone();
        let seat = Arc::new(Seat {
            fragment: ours.fragment.clone(),
            agent: Mutex::new(LiteAgent::new(ours.clone(), theirs, voices, crypto)),
            inbox: Mutex::default(),
            waiting: AtomicWaker::new(),
        });
        {
            let mut seats = self.shared.seats();
            for voice in seat.agent().voices() {
                seats.by_voice.entry(*voice).or_insert_with(|| seat.clone());
            }
            seats.by_fragment.insert(ours.fragment.clone(), seat.clone());
        }
        Ok(Place { shared: self.shared.clone(), seat, ours })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Calls that are still there keep the socket, but nobody hears them any more.
        self.reader.abort();
    }
}

/// A call's end of the port. Dropping it gives the place up.
pub(super) struct Place {
    shared: Arc<Shared>,
    seat: Arc<Seat>,
    ours: Credentials,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("agent", &*self.seat.agent()).finish_non_exhaustive()
    }
}

impl Place {
    /// What the caller has to know.
    pub fn credentials(&self) -> &Credentials {
        &self.ours
    }

    /// The round trip to the caller, as STUN measures it.
    pub fn round_trip(&self) -> Option<Duration> {
        self.seat.agent().round_trip()
    }

    /// How often the caller's address has changed.
    pub fn moves(&self) -> u64 {
        self.seat.agent().moves()
    }

    /// Sends a datagram of the call's connection to wherever the caller is.
    pub fn send(&self, datagram: &[u8]) {
        if stun::is_stun(datagram) {
            let replies = self.seat.agent().inner(datagram);
            for reply in replies {
                self.deliver(reply);
            }
            return;
        }
        let active = self.seat.agent().active();
        if let Some(route) = active {
            self.shared.send(route, datagram);
        }
    }

    /// The next datagram for the call's connection.
    pub fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Vec<u8>> {
        if let Some(datagram) = self.seat.inbox().pop_front() {
            return Poll::Ready(datagram);
        }
        // A probe must not take the place of whoever waits.
        if !cx.waker().will_wake(Waker::noop()) {
            self.seat.waiting.register(cx.waker());
        }
        match self.seat.inbox().pop_front() {
            Some(datagram) => Poll::Ready(datagram),
            None => Poll::Pending,
        }
    }

    fn deliver(&self, datagram: Vec<u8>) {
        if !self.seat.deliver(datagram) {
            self.shared.unread.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (routes, voices): (Vec<_>, Vec<_>) = {
            let agent = self.seat.agent();
            (agent.routes().collect(), agent.voices().to_vec())
        };
        let mut seats = self.shared.seats();
        let ours = |seat: Option<&Arc<Seat>>| seat.is_some_and(|seat| Arc::ptr_eq(seat, &self.seat));
        seats.by_fragment.remove(&self.seat.fragment);
        for route in routes {
            // Another call may have come from there since.
            if ours(seats.by_route.get(&route)) {
                seats.by_route.remove(&route);
            }
        }
        for voice in voices {
            if ours(seats.by_voice.get(&voice)) {
                seats.by_voice.remove(&voice);
            }
        }
    }
}

impl Shared {
    fn seats(&self) -> MutexGuard<'_, Seats> {
        // Insertions and removals leave nothing half done.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one datagram from the network.
    pub(super) fn receive(&self, route: Route, datagram: &[u8], now: Instant) {
        let voice = voice(datagram);
        let Some(seat) = self.seats().owner(route, datagram, voice) else {
            self.strangers.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let outputs = if stun::is_stun(datagram) {
            seat.agent().stun(route, datagram, now)
        } else {
            seat.agent().media(route, datagram, voice, now)
        };
        for output in outputs {
            match output {
                Output::Send(route, datagram) => self.send(route, &datagram),
                Output::Deliver(datagram) => {
                    if !seat.deliver(datagram) {
                        self.unread.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Output::Learn(route) => {
                    // The newest call from an address owns it: a caller may dial again from the same socket.
                    self.seats().by_route.insert(route, seat.clone());
                }
                Output::Forget(route) => {
                    let mut seats = self.seats();
                    if seats.by_route.get(&route).is_some_and(|owner| Arc::ptr_eq(owner, &seat)) {
                        seats.by_route.remove(&route);
                    }
                }
                Output::Voice(voice) => {
                    self.seats().by_voice.entry(voice).or_insert_with(|| seat.clone());
                }
            }
        }
    }

    fn send(&self, route: Route, datagram: &[u8]) {
        let transmit = Transmit {
            destination: route.remote,
            ecn: None,
            contents: datagram,
            segment_size: None,
            src_ip: route.local,
        };
        // The descriptor does not block, and nobody waits for it to take more.
        if self.system.try_send(UdpSockRef::from(&self.socket), &transmit).is_err() {
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Seats {
    fn owner(&self, route: Route, datagram: &[u8], voice: Option<u32>) -> Option<Arc<Seat>> {
        // A request says for whom it is, whoever owned the address before.
        if stun::is_stun(datagram)
            && let Some(binding) = Binding::parse(datagram)
            && binding.kind() == Kind::Request
        {
            let (fragment, _) = binding.fragments()?;
            return self.by_fragment.get(&fragment).cloned();
        }
        self.by_route.get(&route).or_else(|| self.by_voice.get(&voice?)).cloned()
    }
}

/// The SSRC of an RTP packet. RTCP shares the port and its types lie between 192 and 223 (RFC 5761).
pub(super) fn voice(datagram: &[u8]) -> Option<u32> {
    let is_rtp = datagram.len() >= 12 && datagram[0] >> 6 == 2 && !(192..=223).contains(&datagram[1]);
    is_rtp.then(|| u32::from_be_bytes([datagram[8], datagram[9], datagram[10], datagram[11]]))
}

/// Hands every datagram to its call.
async fn read(shared: Arc<Shared>) {
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
            // A caller's machine may say that its port is closed; that is its own affair.
            Err(error) if is_remote(&error) => {}
            Err(error) => {
                tracing::error!(%error, "the UDP port of the calls cannot be read");
                tokio::time::sleep(BROKEN_PAUSE).await;
            }
        }
    }
}

/// Bursts of many calls arrive faster than they are read; the system may grant less than this.
fn enlarge(system: &UdpSocketState, socket: &UdpSocket) {
    for set in [UdpSocketState::set_recv_buffer_size, UdpSocketState::set_send_buffer_size] {
        if let Err(error) = set(system, UdpSockRef::from(socket), SOCKET_BUFFER) {
            tracing::debug!(%error, "the UDP port keeps its usual buffers");
        }
    }
}

fn is_remote(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | HostUnreachable | Interrupted | NetworkUnreachable)
}

/// The machine's own addresses, loopback last.
fn interfaces(v6_too: bool) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = ifaces()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|interface| interface.addr)
        .map(|address| address.ip())
        .filter(|address| match address {
            IpAddr::V4(address) => !address.is_unspecified(),
            // Link-local addresses mean nothing without the name of an interface.
            IpAddr::V6(address) => v6_too && !address.is_unspecified() && !address.is_unicast_link_local(),
        })
        .collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses.dedup();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::LOCALHOST.into());
    }
    addresses
}

/// Random characters that ICE allows, six bits each.
fn random_text(length: usize) -> Result<String, getrandom::Error> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.into_iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect())
}
