//! Which datagram belongs to which call, and each call's place at the port: its [`LiteAgent`] and a bounded queue from
//! which its connection reads.
//!
//! Locks: the table's may be held while a seat's is taken, never the other way round.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use super::ice::{Credentials, LiteAgent, Output, Route};
use super::port::Shared;
use super::stun::{self, Binding, Kind};

/// Datagrams that wait for one call.
const INBOX: usize = 512;

/// Which datagram belongs to which call.
#[derive(Default)]
pub(super) struct Seats {
    by_fragment: HashMap<String, Arc<Seat>>,
    by_route: HashMap<Route, Arc<Seat>>,
    by_voice: HashMap<u32, Arc<Seat>>,
}

impl Seats {
    /// Whose datagram this is; `voice` is the SSRC if it is RTP.
    pub fn owner(&self, route: Route, datagram: &[u8], voice: Option<u32>) -> Option<Arc<Seat>> {
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

    /// A new call.
    pub fn add(&mut self, seat: &Arc<Seat>) {
        self.by_fragment.insert(seat.fragment.clone(), seat.clone());
        for voice in seat.agent().voices() {
            self.by_voice.entry(*voice).or_insert_with(|| seat.clone());
        }
    }

    /// Datagrams from `route` belong to this call. The newest call from an address owns it: a caller may dial again from
    /// the same socket.
    pub fn learn(&mut self, route: Route, seat: &Arc<Seat>) {
        if self.has(seat) {
            self.by_route.insert(route, seat.clone());
        }
    }

    /// No longer.
    pub fn forget(&mut self, route: Route, seat: &Arc<Seat>) {
        if self.by_route.get(&route).is_some_and(|owner| Arc::ptr_eq(owner, seat)) {
            self.by_route.remove(&route);
        }
    }

    /// RTP with this SSRC belongs to this call, unless it is another's already.
    pub fn recognise(&mut self, voice: u32, seat: &Arc<Seat>) {
        if self.has(seat) {
            self.by_voice.entry(voice).or_insert_with(|| seat.clone());
        }
    }

    /// How many calls there are.
    pub fn calls(&self) -> usize {
        self.by_fragment.len()
    }

    /// How many addresses and SSRCs belong to calls.
    #[cfg(test)]
    pub fn routes(&self) -> (usize, usize) {
        (self.by_route.len(), self.by_voice.len())
    }

    /// Whether the call is still there: it may have ended while a datagram of it was being taken.
    fn has(&self, seat: &Arc<Seat>) -> bool {
        self.by_fragment.get(&seat.fragment).is_some_and(|owner| Arc::ptr_eq(owner, seat))
    }

    fn remove(&mut self, seat: &Arc<Seat>) {
        self.by_fragment.remove(&seat.fragment);
        let agent = seat.agent();
        for route in agent.routes() {
            self.forget(route, seat);
        }
        for voice in agent.voices() {
            if self.by_voice.get(voice).is_some_and(|owner| Arc::ptr_eq(owner, seat)) {
                self.by_voice.remove(voice);
            }
        }
    }
}

/// One call's place at the port.
pub(super) struct Seat {
    fragment: String,
    agent: Mutex<LiteAgent>,
    inbox: Mutex<VecDeque<Vec<u8>>>,
    waiting: AtomicWaker,
}

impl Seat {
    pub fn new(fragment: String, agent: LiteAgent) -> Self {
        Self { fragment, agent: Mutex::new(agent), inbox: Mutex::default(), waiting: AtomicWaker::new() }
    }

    pub fn agent(&self) -> MutexGuard<'_, LiteAgent> {
        // A datagram is taken wholly or not at all.
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inbox(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        // Only moves happen under the lock.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was room.
    pub fn deliver(&self, datagram: Vec<u8>) -> bool {
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
    pub fn new(shared: Arc<Shared>, seat: Arc<Seat>, ours: Credentials) -> Self {
        Self { shared, seat, ours }
    }

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

    /// For how long nothing has come from the caller; `None` before the call has begun.
    pub fn silence(&self) -> Option<Duration> {
        self.seat.agent().silence(Instant::now())
    }

    /// Asks a silent caller whether it is still there.
    pub fn ask_silent(&self) {
        let outputs = self.seat.agent().ask_silent(Instant::now());
        for output in outputs {
            if let Output::Send(route, datagram) = output {
                self.shared.send(route, &datagram);
            }
        }
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
        self.shared.seats().remove(&self.seat);
    }
}
