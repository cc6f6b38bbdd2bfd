//! Addresses of both sides: ours by each transport, who may connect, and connections that end.

use core::net::SocketAddr;
use std::time::Instant;

use crate::agent::UserAgent;
use crate::call::Phase;
use crate::dial::DialPhase;
use crate::event::SipEvent;
use crate::hop::{Hop, SignalTransport};

/// Status of a request whose connection cannot be made, or ends before an answer (RFC 3261, 8.1.3.1).
const UNREACHABLE: u16 = 503;

impl UserAgent {
    /// Our address by this transport; without one, the first.
    pub(crate) fn local(&self, transport: SignalTransport) -> Hop {
        let local = &self.settings.local;
        let own = local.iter().find(|local| local.transport == transport).or(local.first());
        own.copied().unwrap_or(Hop::new(transport, ([0, 0, 0, 0], 0).into()))
    }

    /// True for an address of those who may call.
    pub(crate) fn is_peer(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.settings.peers.iter().any(|network| network.contains(&ip))
    }

    /// True for an address that may open a connection: of those who may call, and of the trunk.
    pub fn may_connect(&self, address: SocketAddr) -> bool {
        self.is_peer(address) || self.is_trunk(address)
    }

    /// Counts a connection of an address that may open none.
    pub fn forbid(&mut self) {
        self.counts.forbidden += 1;
    }

    /// True if a call needs this connection.
    pub fn needs(&self, hop: Hop) -> bool {
        let is_of = |phase, at| !matches!(phase, Phase::Over | Phase::Refused) && at == hop;
        self.calls.values().any(|call| is_of(call.phase, call.dialog.hop))
            || self.dials.values().any(|dial| dial.phase != DialPhase::Over && dial.trunk.address == hop)
    }

    /// Takes the news that the connection to `hop` has ended, or could not be made. Calls go on over another one, if the other
    /// side's agent can be reached.
    pub fn closed(&mut self, hop: Hop, now: Instant) {
        let mut again = Vec::new();
        for call in self.calls.values_mut().filter(|call| call.dialog.hop == hop) {
            if let Some(fallback) = call.dialog.fallback.take() {
                call.dialog.hop = fallback;
                again.extend(call.open.iter().map(|request| (fallback, request.bytes.clone())));
            }
        }
        for (to, bytes) in again {
            self.send(to, bytes);
        }
        let lost: Vec<_> = self.dials.iter().filter(|(_, dial)| dial.is_lost_with(hop)).map(|(key, _)| *key).collect();
        for key in lost {
            if self.dials.remove(&key).is_some_and(|mut dial| dial.give_up(now)) {
                self.event(key, SipEvent::Failed(UNREACHABLE));
            }
        }
        self.registration_lost(hop, UNREACHABLE, now);
    }
}
