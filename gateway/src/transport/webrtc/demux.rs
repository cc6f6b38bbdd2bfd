//! Demultiplexing of the shared UDP socket: maps datagrams to calls. Each call has an entry with its ICE agent and a
//! bounded queue of datagrams that its connection reads.
//!
//! Locks: an entry's lock may be taken while the table's is held, never the other way round.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use futures_util::task::AtomicWaker;

use super::arrivals::ArrivalTimes;
use super::ice::{LiteAgent, Route};
use super::srtp_state::SrtpCounters;
use super::ssrcs::PacketKind;
use super::stun::{self, Binding, MessageClass};

/// Datagrams that may wait for one call.
const INBOX_CAPACITY: usize = 512;

/// Calls by ICE user fragment, by source address and by SSRC.
#[derive(Default)]
pub(super) struct DemuxTable {
    by_ufrag: HashMap<String, Arc<MuxEntry>>,
    by_route: HashMap<Route, Arc<MuxEntry>>,
    by_ssrc: HashMap<u32, Arc<MuxEntry>>,
}

impl DemuxTable {
    /// Returns the call that a datagram belongs to; `ssrc` is the SSRC if it is RTP.
    pub fn owner(&self, route: Route, datagram: &[u8], ssrc: Option<u32>) -> Option<Arc<MuxEntry>> {
        // A STUN request names its call, also if another call owns the address.
        if stun::is_stun(datagram)
            && let Some(binding) = Binding::parse(datagram)
            && binding.kind() == MessageClass::Request
        {
            let (ufrag, _) = binding.ufrags()?;
            return self.by_ufrag.get(&ufrag).cloned();
        }
        self.by_route.get(&route).or_else(|| self.by_ssrc.get(&ssrc?)).cloned()
    }

    /// Adds a call.
    pub fn add(&mut self, entry: &Arc<MuxEntry>) {
        self.by_ufrag.insert(entry.ufrag.clone(), entry.clone());
        for ssrc in entry.agent().ssrcs() {
            self.by_ssrc.entry(*ssrc).or_insert_with(|| entry.clone());
        }
    }

    /// Assigns datagrams from `route` to this call. The newest call from an address owns it: a caller may dial again
    /// from the same socket.
    pub fn add_route(&mut self, route: Route, entry: &Arc<MuxEntry>) {
        if self.has(entry) {
            self.by_route.insert(route, entry.clone());
        }
    }

    /// Removes the route, if this call owns it.
    pub fn remove_route(&mut self, route: Route, entry: &Arc<MuxEntry>) {
        if self.by_route.get(&route).is_some_and(|owner| Arc::ptr_eq(owner, entry)) {
            self.by_route.remove(&route);
        }
    }

    /// Assigns RTP with this SSRC to this call, unless another call owns the SSRC.
    pub fn add_ssrc(&mut self, ssrc: u32, entry: &Arc<MuxEntry>) {
        if self.has(entry) {
            self.by_ssrc.entry(ssrc).or_insert_with(|| entry.clone());
        }
    }

    /// Number of RTP and RTCP datagrams that SRTP refused in the running calls.
    pub fn refused(&self) -> u64 {
        self.by_ufrag.values().map(|entry| entry.srtp.refused()).sum()
    }

    /// Number of calls.
    pub fn calls(&self) -> usize {
        self.by_ufrag.len()
    }

    /// Numbers of addresses and of SSRCs that belong to calls.
    #[cfg(test)]
    pub fn routes(&self) -> (usize, usize) {
        (self.by_route.len(), self.by_ssrc.len())
    }

    /// True while the call is in the table: it may end while one of its datagrams is handled.
    fn has(&self, entry: &Arc<MuxEntry>) -> bool {
        self.by_ufrag.get(&entry.ufrag).is_some_and(|owner| Arc::ptr_eq(owner, entry))
    }

    /// Removes a call with all its routes and SSRCs.
    pub fn remove(&mut self, entry: &Arc<MuxEntry>) {
        self.by_ufrag.remove(&entry.ufrag);
        let agent = entry.agent();
        for route in agent.routes() {
            self.remove_route(route, entry);
        }
        for ssrc in agent.ssrcs() {
            if self.by_ssrc.get(ssrc).is_some_and(|owner| Arc::ptr_eq(owner, entry)) {
                self.by_ssrc.remove(ssrc);
            }
        }
    }
}

/// The mux's entry of one call.
pub(super) struct MuxEntry {
    ufrag: String,
    agent: Mutex<LiteAgent>,
    inbox: Mutex<VecDeque<Vec<u8>>>,
    waker: AtomicWaker,
    srtp: Arc<SrtpCounters>,
    arrivals: Mutex<ArrivalTimes>,
}

impl MuxEntry {
    pub fn new(ufrag: String, agent: LiteAgent) -> Self {
        let srtp = agent.srtp();
        let (inbox, arrivals) = (Mutex::default(), Mutex::default());
        Self { ufrag, agent: Mutex::new(agent), inbox, waker: AtomicWaker::new(), srtp, arrivals }
    }

    /// Counters of the call's SRTP packets.
    pub fn srtp(&self) -> &Arc<SrtpCounters> {
        &self.srtp
    }

    pub fn agent(&self) -> MutexGuard<'_, LiteAgent> {
        // A datagram is handled wholly or not at all.
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inbox(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        // Only moves happen under the lock.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrivals(&self) -> MutexGuard<'_, ArrivalTimes> {
        // An arrival is replaced as a whole.
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the arrival of the RTP packet at the socket; `None` if it is no longer stored.
    pub fn arrival(&self, ssrc: u32, sequence: u16) -> Option<Instant> {
        self.arrivals().get(ssrc, sequence)
    }

    /// Queues a datagram from the socket for the call's connection; false if there is no room.
    pub fn deliver(&self, datagram: Vec<u8>) -> bool {
        self.arrivals().record(&datagram, Instant::now());
        let mut inbox = self.inbox();
        let room = inbox.len() < INBOX_CAPACITY;
        if room {
            inbox.push_back(datagram);
        }
        drop(inbox);
        self.waker.wake();
        room
    }

    /// Polls for the next datagram for the call's connection.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Vec<u8>> {
        if let Some(datagram) = self.take() {
            return Poll::Ready(datagram);
        }
        // A probe with a no-op waker must not replace the real one.
        if !cx.waker().will_wake(Waker::noop()) {
            self.waker.register(cx.waker());
        }
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Takes the next datagram; counts it if it is for SRTP.
    fn take(&self) -> Option<Vec<u8>> {
        let datagram = self.inbox().pop_front()?;
        if PacketKind::of(&datagram) != PacketKind::Other {
            self.srtp.count_read();
        }
        Some(datagram)
    }
}
