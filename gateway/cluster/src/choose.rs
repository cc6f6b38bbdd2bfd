//! The node of a new call: this one while it is at most as full as the median, otherwise the freer of two at random.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::peer::{Peer, Target};
use crate::record::{NodeLoad, NodePhase};
use crate::table::Table;
use crate::tag::NodeTag;

/// Node of a new call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// This node takes the call.
    Own,
    /// Another node gets the call.
    Other(Target),
}

impl Table {
    /// Chooses the node of a new call for `model`; a name that nobody serves, or none, means the model of this node. Nodes of
    /// `tried` are left out; `random` are 64 random bits. `None` if no node seems to have a free slot.
    pub fn choose(&self, model: Option<&str>, tried: &[NodeTag], random: u64, now: Instant) -> Option<Choice> {
        let takes_calls = self.taking_calls(now);
        let wanted = self.served_elsewhere(model, &takes_calls);
        let (mut others, mut emptier) = (0_usize, 0_usize);
        let mut usable = Vec::with_capacity(self.peers.len());
        for peer in self.peers.values() {
            let serves = wanted.map_or(peer.has_own_model, |name| peer.record.model == name);
            if !serves || !takes_calls(peer) {
                continue;
            }
            others += 1;
            emptier += usize::from(is_emptier(peer.record.load, peer.free(), self.own.load));
            if peer.is_reachable(now) && !tried.contains(&peer.tag()) {
                usable.push(peer);
            }
        }
        if usable.iter().any(|peer| peer.free() > 0) {
            usable.retain(|peer| peer.free() > 0);
        } else if !self.lacks_news(now) {
            // The calls on their way may have ended: the node's own answer decides.
            usable.retain(|peer| peer.record.load.free > 0);
        } // else nobody knows which nodes are still full.
        // Of all loads in order the own one is not above the middle one.
        let is_below_median = emptier <= others / 2;
        if is_below_median && wanted.is_none() && self.has_slot() && !tried.contains(&self.own.tag) {
            return Some(Choice::Own);
        }
        if usable.iter().any(|peer| peer.is_near) {
            usable.retain(|peer| peer.is_near);
        }
        freer_of_two(&usable, random).map(|peer| Choice::Other(Target::of(peer)))
    }

    /// Models that other nodes take calls for and this one does not serve, in order.
    pub fn other_models(&self, now: Instant) -> BTreeSet<&str> {
        let takes_calls = self.taking_calls(now);
        let others = self.peers.values().filter(|peer| !peer.has_own_model && takes_calls(peer));
        others.map(|peer| peer.record.model.as_str()).collect()
    }

    /// True if a node takes calls for a model that this one does not serve.
    pub fn has_other_models(&self, now: Instant) -> bool {
        let takes_calls = self.taking_calls(now);
        self.peers.values().any(|peer| !peer.has_own_model && takes_calls(peer))
    }

    /// Node to ask about a model that this one does not serve: one that answered the last time, if there is one.
    pub fn serving(&self, model: &str, now: Instant) -> Option<Target> {
        let takes_calls = self.taking_calls(now);
        let serves = |peer: &&Peer| !peer.has_own_model && peer.record.model == model && takes_calls(peer);
        let serving = || self.peers.values().filter(serves);
        serving().find(|peer| peer.is_reachable(now)).or_else(|| serving().next()).map(Target::of)
    }

    /// True if this node has a free slot for a call for `model`: it serves the model, or nobody does.
    pub(crate) fn serves_here(&self, model: Option<&str>, now: Instant) -> bool {
        self.has_slot() && self.served_elsewhere(model, &self.taking_calls(now)).is_none()
    }

    /// Returns the model if other nodes serve it and this one does not.
    fn served_elsewhere<'a>(&self, model: Option<&'a str>, takes_calls: &impl Fn(&Peer) -> bool) -> Option<&'a str> {
        let is_served = |name: &str| self.peers.values().any(|peer| peer.record.model == name && takes_calls(peer));
        model.filter(|name| *name != self.own.model && is_served(name))
    }

    fn has_slot(&self) -> bool {
        self.own.phase == NodePhase::Serving && self.own.load.free > 0
    }

    /// Tells whether a node takes new calls, as far as this node knows.
    fn taking_calls(&self, now: Instant) -> impl Fn(&Peer) -> bool + use<> {
        // Once for all nodes: arithmetic of times is most of a choice.
        let since = self.feed.fresh_since(now);
        move |peer| {
            peer.record.phase == NodePhase::Serving
                && peer.ended.is_none()
                && since.is_none_or(|since| peer.arrived >= since)
        }
    }
}

/// True if a smaller share of the slots is used, with `free` of them free, than of `own`.
fn is_emptier(load: NodeLoad, free: u32, own: NodeLoad) -> bool {
    let used = |slots: u32, free: u32| u64::from(slots - free.min(slots));
    used(load.slots, free) * u64::from(own.slots) < used(own.slots, own.free) * u64::from(load.slots)
}

/// Takes two different nodes at random, and of them the one with more free slots.
fn freer_of_two<'a>(peers: &[&'a Peer], random: u64) -> Option<&'a Peer> {
    let below = |bits: u64, limit: usize| usize::try_from(bits % limit as u64).unwrap_or_default();
    let first = below(random >> 32, peers.len().max(1));
    let one = *peers.get(first)?;
    if peers.len() == 1 {
        return Some(one);
    }
    let step = 1 + below(random & u64::from(u32::MAX), peers.len() - 1);
    let other = peers[(first + step) % peers.len()];
    Some(if other.free() > one.free() { other } else { one })
}
