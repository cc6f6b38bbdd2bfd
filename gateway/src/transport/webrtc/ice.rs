//! Our side of ICE for one call: a lite agent (RFC 8445, 2.5) that also follows a caller whose address changes.
//!
//! No socket and no clock: datagrams and times go in, datagrams come out.
//!
//! A *path* is an address from which the caller has sent something. It is *validated* once the caller has answered our
//! connectivity check there: a peer that can read our datagrams at an address may receive the call there. The call
//! begins on the first path that the caller nominates. It migrates to another validated path if the caller nominates
//! that one, or if the active path is silent while the other is not: behind a NAT that loses its mapping the caller
//! itself does not know that its address has changed. RTP from an unknown address is recognised by its SSRC. It is
//! delivered at once (SRTP authenticates it) and triggers a check to that address, so that a caller who has moved gets
//! our audio again one round trip later.
//!
//! The library's own agent runs behind this one and sees a single peer whose address never changes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_sdp::IceCredentials;
use rtc::crypto::RTCCryptoProvider;

use super::connectivity::ConnectivityReport;
use super::srtp_state::SrtpCounters;
use super::ssrcs::{PacketKind, Ssrcs};
use super::stun::{self, Binding, MessageClass, StunId};

/// Maximum paths of one call; a further path evicts the one that was silent for longest.
pub(super) const MAX_PATHS: usize = 8;
/// Pause between checks of a path that is not validated.
const VALIDATION_INTERVAL: Duration = Duration::from_millis(100);
/// Pause between checks of a silent caller.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(500);
/// Pause between measurements of the active path's round trip, as long as the caller sends.
const RTT_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum unanswered checks of one path; with [`VALIDATION_INTERVAL`] this gives the longest measurable round trip.
const MAX_PENDING: usize = 16;
/// DTLS datagrams that wait for the library's agent: the first flight of a handshake, in pieces.
const MAX_EARLY: usize = 8;
/// Silence of the active path after which RTP on another path migrates the call: packets come every 20 ms.
const MEDIA_SILENCE: Duration = Duration::from_millis(100);
/// Silence of the active path after which a check on another path migrates the call.
const SILENCE: Duration = Duration::from_secs(1);

/// Address pair of a path. Replies leave from the address that received the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Route {
    pub remote: SocketAddr,
    /// Our address, if the system reports it.
    pub local: Option<IpAddr>,
}

/// Effect of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IceOutput {
    /// Send a datagram.
    Send(Route, Vec<u8>),
    /// Hand a datagram to the library.
    Deliver(Vec<u8>),
    /// Assign datagrams of this route to this call.
    AddRoute(Route),
    /// Remove this route from this call.
    RemoveRoute(Route),
    /// Assign RTP with this SSRC to this call.
    AddSsrc(u32),
    /// Drop the datagram: its SSRC is none of the call's.
    UnknownSsrc,
}

#[derive(Debug)]
struct IcePath {
    route: Route,
    /// The caller has signed a request that came from here.
    signed: bool,
    /// The caller has answered a check that was sent here.
    validated: bool,
    /// Time of the caller's last nomination.
    nominated: Option<Instant>,
    /// Time of the last datagram from here.
    last_received: Instant,
    /// Time of the last datagram other than STUN from here.
    last_media: Option<Instant>,
    /// Our unanswered checks, the newest last.
    pending_checks: Vec<(StunId, Instant)>,
    /// Time of our newest check.
    last_check: Option<Instant>,
    /// Smoothed round trip.
    round_trip: Option<Duration>,
}

/// ICE lite agent of one call.
pub(super) struct LiteAgent {
    ours: IceCredentials,
    theirs: IceCredentials,
    crypto: Arc<dyn RTCCryptoProvider>,
    paths: Vec<IcePath>,
    active: Option<Route>,
    /// Time since which the active path is in use.
    active_since: Option<Instant>,
    ssrcs: Ssrcs,
    /// Counters of the call's SRTP packets.
    srtp: Arc<SrtpCounters>,
    /// Newest request that nominated the active path: the library's agent gets it again after its own check.
    nomination: Option<Vec<u8>>,
    /// DTLS that arrived before the library's agent had its pair, which would drop it; `None` from then on.
    early_dtls: Option<Vec<Vec<u8>>>,
    address_changes: u64,
    /// Number of requests to this call that the caller has not signed.
    refused_checks: u64,
    /// True once a datagram other than STUN, RTP and RTCP has come on a known path.
    has_dtls: bool,
}

impl std::fmt::Debug for LiteAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiteAgent")
            .field("paths", &self.paths.len())
            .field("address_changes", &self.address_changes)
            .finish_non_exhaustive()
    }
}

impl LiteAgent {
    /// Creates an agent with our credentials and the caller's; `ssrcs` are those that the caller announced.
    pub fn new(
        ours: IceCredentials,
        theirs: IceCredentials,
        ssrcs: Vec<u32>,
        crypto: Arc<dyn RTCCryptoProvider>,
    ) -> Self {
        Self {
            ours,
            theirs,
            crypto,
            paths: Vec::new(),
            active: None,
            active_since: None,
            ssrcs: Ssrcs::announced(ssrcs),
            srtp: Arc::default(),
            nomination: None,
            early_dtls: Some(Vec::new()),
            address_changes: 0,
            refused_checks: 0,
            has_dtls: false,
        }
    }

    /// Route of the call's datagrams now.
    pub fn active(&self) -> Option<Route> {
        self.active
    }

    /// Routes of all paths of this call.
    pub fn routes(&self) -> impl Iterator<Item = Route> {
        self.paths.iter().map(|path| path.route)
    }

    /// Returns the progress of the connection so far.
    pub fn connectivity(&self) -> ConnectivityReport {
        let signed = self.paths.iter().filter(|path| path.signed);
        ConnectivityReport {
            refused_checks: self.refused_checks,
            checked: signed.map(|path| path.route.remote).collect(),
            is_validated: self.paths.iter().any(|path| path.validated),
            is_nominated: self.active.is_some(),
            has_dtls: self.has_dtls,
        }
    }

    /// SSRCs that belong to this call.
    pub fn ssrcs(&self) -> &[u32] {
        self.ssrcs.known()
    }

    /// Counters of the call's SRTP packets.
    pub fn srtp(&self) -> Arc<SrtpCounters> {
        self.srtp.clone()
    }

    /// True if the caller has answered a check at this route. Without an answer it gets only a few datagrams there.
    pub fn is_validated(&self, route: Route) -> bool {
        self.paths.iter().any(|path| path.route == route && path.validated)
    }

    /// Smoothed round trip of the active path.
    pub fn round_trip(&self) -> Option<Duration> {
        let active = self.paths.iter().find(|path| Some(path.route) == self.active)?;
        active.round_trip
    }

    /// Number of the call's migrations to another path.
    pub fn address_changes(&self) -> u64 {
        self.address_changes
    }

    /// Time since the caller's last datagram; `None` before the call has begun.
    pub fn silence(&self, now: Instant) -> Option<Duration> {
        self.active?;
        let known = self.paths.iter().filter(|path| path.signed || path.validated);
        known.map(|path| now.saturating_duration_since(path.last_received)).min()
    }

    /// Sends a check to a silent caller: some clients send nothing for longer than the timeout.
    pub fn check_liveness(&mut self, now: Instant) -> Vec<IceOutput> {
        let mut outputs = Vec::new();
        if let Some(active) = self.active {
            self.send_check(LIVENESS_INTERVAL, active, now, &mut outputs);
        }
        outputs
    }

    /// Handles a STUN datagram. One that is not signed by the caller has no effect.
    pub fn stun(&mut self, route: Route, datagram: &[u8], now: Instant) -> Vec<IceOutput> {
        let Some(mut binding) = Binding::parse(datagram) else { return Vec::new() };
        match binding.kind() {
            MessageClass::Request => self.on_request(route, &mut binding, datagram, now),
            MessageClass::Success => self.on_success(route, &mut binding, now),
            MessageClass::Other => Vec::new(),
        }
    }

    /// Handles a datagram of kind `packet` that is not STUN.
    pub fn media(&mut self, route: Route, datagram: &[u8], packet: PacketKind, now: Instant) -> Vec<IceOutput> {
        let mut outputs = Vec::new();
        let known = self.paths.iter().any(|path| path.route == route && (path.signed || path.validated));
        self.has_dtls |= known && packet == PacketKind::Other;
        if self.active.is_none() {
            // Some callers begin DTLS on a working path before they nominate it.
            if known && packet == PacketKind::Other {
                self.hold_early(datagram);
            }
            return outputs;
        }
        if let Some(ssrc) = self.srtp.ssrc().filter(|ssrc| self.ssrcs.authentic(*ssrc)) {
            outputs.push(IceOutput::AddSsrc(ssrc));
        }
        let known_ssrc = packet.rtp().is_some_and(|ssrc| self.ssrcs.known().contains(&ssrc));
        if !known && !known_ssrc {
            return outputs;
        }
        if !self.ssrcs.admit(packet) {
            outputs.push(IceOutput::UnknownSsrc);
            return outputs;
        }
        let path = self.path(route, now, &mut outputs);
        path.last_received = now;
        path.last_media = Some(now);
        self.validate(route, now, &mut outputs);
        self.maybe_migrate(route, now);
        if packet == PacketKind::Other && self.early_dtls.is_some() {
            self.hold_early(datagram);
        } else {
            outputs.push(IceOutput::Deliver(datagram.to_vec()));
        }
        outputs
    }

    /// Stores a datagram until the library's agent has its pair.
    fn hold_early(&mut self, datagram: &[u8]) {
        if let Some(early) = self.early_dtls.as_mut().filter(|early| early.len() < MAX_EARLY) {
            early.push(datagram.to_vec());
        }
    }

    /// Handles a STUN datagram from the library's agent. Returns its replies, which complete the agent's pair, and then
    /// the DTLS that waited for the pair.
    pub fn on_library_stun(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let Some(binding) = Binding::parse(datagram) else { return Vec::new() };
        // This agent has already answered the caller's checks.
        if binding.kind() != MessageClass::Request {
            return Vec::new();
        }
        let mapped = SocketAddr::from(([127, 0, 0, 1], 9));
        let success = stun::success(binding.id(), mapped, &self.theirs.password, self.crypto.crypto());
        let early = if self.nomination.is_some() { self.early_dtls.take().unwrap_or_default() } else { Vec::new() };
        success.into_iter().chain(self.nomination.clone()).chain(early).collect()
    }

    fn on_request(&mut self, route: Route, binding: &mut Binding, datagram: &[u8], now: Instant) -> Vec<IceOutput> {
        let named = binding.ufrags();
        let expected = |(to, from): &(String, String)| *to == self.ours.ufrag && *from == self.theirs.ufrag;
        if !named.as_ref().is_some_and(expected) || !binding.is_signed_with(&self.ours.password, self.crypto.crypto()) {
            self.refused_checks += 1;
            return Vec::new();
        }
        let mut outputs = Vec::new();
        let nominates = binding.nominates();
        let path = self.path(route, now, &mut outputs);
        path.last_received = now;
        path.signed = true;
        if nominates {
            path.nominated = Some(now);
        }
        if let Some(answer) = stun::success(binding.id(), route.remote, &self.ours.password, self.crypto.crypto()) {
            outputs.push(IceOutput::Send(route, answer));
        }
        self.validate(route, now, &mut outputs);
        if self.active.is_none() && nominates {
            (self.active, self.active_since) = (Some(route), Some(now));
        }
        self.maybe_migrate(route, now);
        if self.active == Some(route) {
            if nominates {
                self.nomination = Some(datagram.to_vec());
            }
            outputs.push(IceOutput::Deliver(datagram.to_vec()));
        }
        outputs
    }

    fn on_success(&mut self, route: Route, binding: &mut Binding, now: Instant) -> Vec<IceOutput> {
        let id = binding.id();
        let Some(path) = self.paths.iter_mut().find(|path| path.route == route) else { return Vec::new() };
        let Some(index) = path.pending_checks.iter().position(|(pending, _)| *pending == id) else { return Vec::new() };
        if !binding.is_signed_with(&self.theirs.password, self.crypto.crypto()) {
            return Vec::new();
        }
        // Older checks need no answer any more.
        let (_, sent) = path.pending_checks.drain(..=index).next_back().unwrap_or((id, now));
        path.validated = true;
        path.last_received = now;
        let measured = now.saturating_duration_since(sent);
        path.round_trip = Some(path.round_trip.map_or(measured, |before| (before * 7 + measured) / 8));
        self.maybe_migrate(route, now);
        Vec::new()
    }

    /// Returns the path of `route`, added if it is new.
    fn path(&mut self, route: Route, now: Instant, outputs: &mut Vec<IceOutput>) -> &mut IcePath {
        if let Some(index) = self.paths.iter().position(|path| path.route == route) {
            return &mut self.paths[index];
        }
        if self.paths.len() == MAX_PATHS {
            let active = self.active;
            let others = self.paths.iter().enumerate().filter(|(_, path)| Some(path.route) != active);
            if let Some((index, _)) = others.min_by_key(|(_, path)| path.last_received) {
                outputs.push(IceOutput::RemoveRoute(self.paths.remove(index).route));
            }
        }
        outputs.push(IceOutput::AddRoute(route));
        self.paths.push(IcePath {
            route,
            signed: false,
            validated: false,
            nominated: None,
            last_received: now,
            last_media: None,
            pending_checks: Vec::new(),
            last_check: None,
            round_trip: None,
        });
        let last = self.paths.len() - 1;
        &mut self.paths[last]
    }

    /// Sends a check to `route` if one is due: to validate the path, or to measure the round trip.
    fn validate(&mut self, route: Route, now: Instant, outputs: &mut Vec<IceOutput>) {
        let Some(path) = self.paths.iter().find(|path| path.route == route) else { return };
        match (path.validated, self.active == Some(route)) {
            (false, _) => self.send_check(VALIDATION_INTERVAL, route, now, outputs),
            (true, true) => self.send_check(RTT_INTERVAL, route, now, outputs),
            (true, false) => {}
        }
    }

    /// Sends a check to `route`, unless one was sent less than `pause` ago.
    fn send_check(&mut self, pause: Duration, route: Route, now: Instant, outputs: &mut Vec<IceOutput>) {
        let Some(path) = self.paths.iter_mut().find(|path| path.route == route) else { return };
        if path.last_check.is_some_and(|last_check| now.saturating_duration_since(last_check) < pause) {
            return;
        }
        let mut id = StunId::default();
        // Without random numbers there is no check: the next datagram tries again.
        if getrandom::fill(&mut id).is_err() {
            return;
        }
        let name = format!("{}:{}", self.theirs.ufrag, self.ours.ufrag);
        let request = stun::request(id, name, &self.theirs.password, self.crypto.crypto());
        if let Some(request) = request {
            if path.pending_checks.len() == MAX_PENDING {
                path.pending_checks.remove(0);
            }
            path.pending_checks.push((id, now));
            path.last_check = Some(now);
            outputs.push(IceOutput::Send(route, request));
        }
    }

    /// Migrates the call to `route` if the rules of this module require it.
    fn maybe_migrate(&mut self, route: Route, now: Instant) {
        let Some(active) = self.active.filter(|active| *active != route) else { return };
        let find = |wanted: Route| self.paths.iter().find(|path| path.route == wanted);
        let Some(path) = find(route).filter(|path| path.validated) else { return };
        let due = find(active).is_none_or(|current| {
            let silence = now.saturating_duration_since(current.last_received);
            let has_media = path.last_media.is_some_and(|media| media > current.last_received);
            path.nominated > self.active_since
                || (has_media && silence >= MEDIA_SILENCE)
                || (path.last_received > current.last_received && silence >= SILENCE)
        });
        if due {
            (self.active, self.active_since) = (Some(route), Some(now));
            self.address_changes += 1;
        }
    }
}

#[cfg(test)]
#[path = "ice_tests.rs"]
mod tests;
