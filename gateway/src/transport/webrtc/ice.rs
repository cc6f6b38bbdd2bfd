//! Our side of ICE for one call: a lite agent (RFC 8445, 2.5) that also follows a caller whose address changes.
//!
//! No socket and no clock: datagrams and times go in, datagrams come out.
//!
//! A *path* is an address from which the caller has been heard. It counts as *proven* once the caller has answered a
//! request of ours there: whoever can read what we send to it is allowed to receive the call. The call begins on the
//! first path that the caller nominates. It moves to another proven path when the caller nominates that one, or when the
//! present path has fallen silent while the other has not: behind a NAT that forgets its mapping the caller itself does
//! not know that its address has changed. Sound that comes from an unknown address is recognised by its SSRC; it is
//! heard at once (SRTP authenticates it) and makes us ask that address for proof, so that a caller who has moved is
//! answered one round trip later.
//!
//! The library's own agent runs behind this one, sees a single peer that never moves, and has nothing to decide.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtc::crypto::RTCCryptoProvider;

use super::stun::{self, Binding, Id, Kind};

/// Paths of one call that are remembered; beyond, the one that was silent for longest is forgotten.
pub(super) const MAX_PATHS: usize = 8;
/// Streams of one caller that are recognised by their SSRC.
const MAX_VOICES: usize = 4;
/// Proof is asked for at most this often on one path.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// A caller that is silent is asked this often whether it is still there.
const ASK_SILENT: Duration = Duration::from_millis(500);
/// The round trip of a proven path is measured this often, as long as the caller is heard.
const MEASURE_AGAIN: Duration = Duration::from_secs(2);
/// Requests of one path that may wait for their answers; with [`ASK_AGAIN`] the longest round trip that is found.
const MAX_REQUESTS: usize = 16;
/// Silence of the present path after which sound on another one moves the call: packets come every 20 ms.
const MEDIA_SILENCE: Duration = Duration::from_millis(100);
/// Silence of the present path after which a request on another one moves the call.
const SILENCE: Duration = Duration::from_secs(1);

/// The two ends of a path. Answers leave from the address that was asked, which matters on machines with several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Route {
    pub remote: SocketAddr,
    /// Ours, where the system tells.
    pub local: Option<IpAddr>,
}

/// One side's user fragment and password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub fragment: String,
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// What is to be done after a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Send this.
    Send(Route, Vec<u8>),
    /// The datagram, or this one in its place, goes to the library.
    Deliver(Vec<u8>),
    /// Datagrams from here belong to this call from now on.
    Learn(Route),
    /// No longer.
    Forget(Route),
    /// RTP with this SSRC belongs to this call from now on.
    Voice(u32),
}

#[derive(Debug)]
struct Path {
    route: Route,
    /// The caller has signed a request that came from here.
    signed: bool,
    /// The caller has answered a request that was sent here.
    proven: bool,
    /// When the caller last asked to use it.
    nominated: Option<Instant>,
    heard: Instant,
    /// When something other than STUN last came from here.
    media: Option<Instant>,
    /// Requests of ours without answer, the newest last.
    requests: Vec<(Id, Instant)>,
    /// When the newest request was sent.
    asked: Option<Instant>,
    /// Smoothed.
    round_trip: Option<Duration>,
}

/// See the module's description.
pub(super) struct LiteAgent {
    ours: Credentials,
    theirs: Credentials,
    crypto: Arc<dyn RTCCryptoProvider>,
    paths: Vec<Path>,
    active: Option<Route>,
    /// Since when.
    since: Option<Instant>,
    voices: Vec<u32>,
    /// The newest request that nominated the active path: what the library's agent hears again after its own check.
    nomination: Option<Vec<u8>>,
    moves: u64,
}

impl std::fmt::Debug for LiteAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiteAgent")
            .field("paths", &self.paths.len())
            .field("moves", &self.moves)
            .finish_non_exhaustive()
    }
}

impl LiteAgent {
    /// An agent that answers to `ours` and knows the caller by `theirs`; `voices` are the SSRCs that it has announced.
    pub fn new(
        ours: Credentials,
        theirs: Credentials,
        mut voices: Vec<u32>,
        crypto: Arc<dyn RTCCryptoProvider>,
    ) -> Self {
        voices.truncate(MAX_VOICES);
        Self { ours, theirs, crypto, paths: Vec::new(), active: None, since: None, voices, nomination: None, moves: 0 }
    }

    /// Where the call's datagrams go now.
    pub fn active(&self) -> Option<Route> {
        self.active
    }

    /// Addresses that belong to this call.
    pub fn routes(&self) -> impl Iterator<Item = Route> {
        self.paths.iter().map(|path| path.route)
    }

    /// SSRCs that belong to this call.
    pub fn voices(&self) -> &[u32] {
        &self.voices
    }

    /// The round trip of the active path, smoothed.
    pub fn round_trip(&self) -> Option<Duration> {
        let active = self.paths.iter().find(|path| Some(path.route) == self.active)?;
        active.round_trip
    }

    /// How often the call has moved.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// For how long nothing has come from the caller; `None` before the call has begun.
    pub fn silence(&self, now: Instant) -> Option<Duration> {
        self.active?;
        let known = self.paths.iter().filter(|path| path.signed || path.proven);
        known.map(|path| now.saturating_duration_since(path.heard)).min()
    }

    /// Asks a silent caller whether it is still there: some say nothing of their own for longer than we wait.
    pub fn ask_silent(&mut self, now: Instant) -> Vec<Output> {
        let mut outputs = Vec::new();
        if let Some(active) = self.active {
            self.ask_after(ASK_SILENT, active, now, &mut outputs);
        }
        outputs
    }

    /// Takes a STUN datagram. What is not signed by the caller has no effect.
    pub fn stun(&mut self, route: Route, datagram: &[u8], now: Instant) -> Vec<Output> {
        let Some(mut binding) = Binding::parse(datagram) else { return Vec::new() };
        match binding.kind() {
            Kind::Request => self.request(route, &mut binding, datagram, now),
            Kind::Success => self.answered(route, &mut binding, now),
            Kind::Other => Vec::new(),
        }
    }

    /// Takes a datagram that is not STUN. `voice` is the SSRC if it is RTP.
    pub fn media(&mut self, route: Route, datagram: &[u8], voice: Option<u32>, now: Instant) -> Vec<Output> {
        let mut outputs = Vec::new();
        if self.active.is_none() {
            return outputs;
        }
        let recognised = voice.is_some_and(|voice| self.voices.contains(&voice));
        let known = self.paths.iter().any(|path| path.route == route && (path.signed || path.proven));
        if !known && !recognised {
            return outputs;
        }
        let path = self.path(route, now, &mut outputs);
        path.heard = now;
        path.media = Some(now);
        self.ask(route, now, &mut outputs);
        self.consider(route, now);
        if self.active == Some(route)
            && let Some(voice) = voice
            && !recognised
        {
            if self.voices.len() == MAX_VOICES {
                // The newest streams are those that matter.
                self.voices.remove(0);
            }
            self.voices.push(voice);
            outputs.push(Output::Voice(voice));
        }
        outputs.push(Output::Deliver(datagram.to_vec()));
        outputs
    }

    /// Takes a STUN datagram that the library's agent sends; returns what that agent hears in reply.
    pub fn inner(&self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let Some(binding) = Binding::parse(datagram) else { return Vec::new() };
        // Its answers are given by this agent already.
        if binding.kind() != Kind::Request {
            return Vec::new();
        }
        let mapped = SocketAddr::from(([127, 0, 0, 1], 9));
        let success = stun::success(binding.id(), mapped, &self.theirs.password, self.crypto.crypto());
        success.into_iter().chain(self.nomination.clone()).collect()
    }

    fn request(&mut self, route: Route, binding: &mut Binding, datagram: &[u8], now: Instant) -> Vec<Output> {
        let named = binding.fragments();
        let expected = |(to, from): &(String, String)| *to == self.ours.fragment && *from == self.theirs.fragment;
        if !named.as_ref().is_some_and(expected) || !binding.is_signed_with(&self.ours.password, self.crypto.crypto()) {
            return Vec::new();
        }
        let mut outputs = Vec::new();
        let nominates = binding.nominates();
        let path = self.path(route, now, &mut outputs);
        path.heard = now;
        path.signed = true;
        if nominates {
            path.nominated = Some(now);
        }
        if let Some(answer) = stun::success(binding.id(), route.remote, &self.ours.password, self.crypto.crypto()) {
            outputs.push(Output::Send(route, answer));
        }
        self.ask(route, now, &mut outputs);
        if self.active.is_none() && nominates {
            (self.active, self.since) = (Some(route), Some(now));
        }
        self.consider(route, now);
        if self.active == Some(route) {
            if nominates {
                self.nomination = Some(datagram.to_vec());
            }
            outputs.push(Output::Deliver(datagram.to_vec()));
        }
        outputs
    }

    fn answered(&mut self, route: Route, binding: &mut Binding, now: Instant) -> Vec<Output> {
        let id = binding.id();
        let Some(path) = self.paths.iter_mut().find(|path| path.route == route) else { return Vec::new() };
        let Some(place) = path.requests.iter().position(|(request, _)| *request == id) else { return Vec::new() };
        if !binding.is_signed_with(&self.theirs.password, self.crypto.crypto()) {
            return Vec::new();
        }
        // What was asked before is of no interest any more.
        let (_, sent) = path.requests.drain(..=place).next_back().unwrap_or((id, now));
        path.proven = true;
        path.heard = now;
        let measured = now.saturating_duration_since(sent);
        path.round_trip = Some(path.round_trip.map_or(measured, |before| (before * 7 + measured) / 8));
        self.consider(route, now);
        Vec::new()
    }

    /// The path of `route`, which is new perhaps.
    fn path(&mut self, route: Route, now: Instant, outputs: &mut Vec<Output>) -> &mut Path {
        if let Some(place) = self.paths.iter().position(|path| path.route == route) {
            return &mut self.paths[place];
        }
        if self.paths.len() == MAX_PATHS {
            let active = self.active;
            let others = self.paths.iter().enumerate().filter(|(_, path)| Some(path.route) != active);
            if let Some((place, _)) = others.min_by_key(|(_, path)| path.heard) {
                outputs.push(Output::Forget(self.paths.remove(place).route));
            }
        }
        outputs.push(Output::Learn(route));
        self.paths.push(Path {
            route,
            signed: false,
            proven: false,
            nominated: None,
            heard: now,
            media: None,
            requests: Vec::new(),
            asked: None,
            round_trip: None,
        });
        let last = self.paths.len() - 1;
        &mut self.paths[last]
    }

    /// Asks the caller for proof that it is at `route`, if that is due.
    fn ask(&mut self, route: Route, now: Instant, outputs: &mut Vec<Output>) {
        let Some(path) = self.paths.iter().find(|path| path.route == route) else { return };
        match (path.proven, self.active == Some(route)) {
            (false, _) => self.ask_after(ASK_AGAIN, route, now, outputs),
            (true, true) => self.ask_after(MEASURE_AGAIN, route, now, outputs),
            (true, false) => {}
        }
    }

    /// Sends a request to `route`, unless one was sent less than `pause` ago.
    fn ask_after(&mut self, pause: Duration, route: Route, now: Instant, outputs: &mut Vec<Output>) {
        let Some(path) = self.paths.iter_mut().find(|path| path.route == route) else { return };
        if path.asked.is_some_and(|asked| now.saturating_duration_since(asked) < pause) {
            return;
        }
        let mut id = Id::default();
        // Without random numbers nobody is asked: the next datagram tries again.
        if getrandom::fill(&mut id).is_err() {
            return;
        }
        let name = format!("{}:{}", self.theirs.fragment, self.ours.fragment);
        let request = stun::request(id, name, &self.theirs.password, self.crypto.crypto());
        if let Some(request) = request {
            if path.requests.len() == MAX_REQUESTS {
                path.requests.remove(0);
            }
            path.requests.push((id, now));
            path.asked = Some(now);
            outputs.push(Output::Send(route, request));
        }
    }

    /// Moves the call to `route` if it should be there.
    fn consider(&mut self, route: Route, now: Instant) {
        let Some(active) = self.active.filter(|active| *active != route) else { return };
        let find = |wanted: Route| self.paths.iter().find(|path| path.route == wanted);
        let Some(path) = find(route).filter(|path| path.proven) else { return };
        let moves = find(active).is_none_or(|present| {
            let silence = now.saturating_duration_since(present.heard);
            let speaks = path.media.is_some_and(|media| media > present.heard);
            path.nominated > self.since
                || (speaks && silence >= MEDIA_SILENCE)
                || (path.heard > present.heard && silence >= SILENCE)
        });
        if moves {
            (self.active, self.since) = (Some(route), Some(now));
            self.moves += 1;
        }
    }
}

#[cfg(test)]
#[path = "ice_tests.rs"]
mod tests;
