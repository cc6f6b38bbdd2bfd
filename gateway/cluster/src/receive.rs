//! Messages that arrive: of other nodes, and the echo of our own.

use crate::beat::{BeatMessage, MessageKind};
use crate::peer::{Departure, Liveness, Peer};
use crate::record::NodeRecord;
use crate::table::{MAX_NODES, Table, TableEffect};
use crate::tag::NodeTag;

impl Table {
    pub(crate) fn receive(&mut self, bytes: &[u8], effects: &mut Vec<TableEffect>) {
        let message = match self.codec.decode(bytes) {
            Ok(message) => message,
            Err(error) => return self.counts.refuse(error),
        };
        if message.record.tag != self.own.tag {
            return self.receive_other(message, effects);
        }
        if message.record.name == self.own.name && message.record.incarnation == self.own.incarnation {
            self.echoed(message.seq, effects);
        } else {
            self.counts.tag_taken += 1;
        }
    }

    fn receive_other(&mut self, message: BeatMessage, effects: &mut Vec<TableEffect>) {
        let BeatMessage { kind, seq, record, .. } = message;
        let (tag, now) = (record.tag, self.time());
        let before = self.peers.get(&tag);
        let ended = before.and_then(|peer| peer.ended);
        if ended == Some(Departure::Bye) {
            self.counts.of_ended += 1;
            return;
        }
        if before.is_some_and(|peer| seq <= peer.seq) {
            self.counts.late += 1;
            return;
        }
        // A run that another one seemed to follow may be the one that is there after all.
        if (before.is_none() || ended.is_some()) && !self.supersede(&record, effects) {
            self.counts.superseded += 1;
            return;
        }
        if let Some(peer) = self.peers.get_mut(&tag) {
            if peer.reported_gone || peer.ended.is_some() {
                effects.push(TableEffect::Joined(tag));
            }
            peer.update(&self.own, record, seq, now);
        } else {
            if !self.has_capacity() {
                self.counts.no_capacity += 1;
                return;
            }
            self.peers.insert(tag, Peer::new(&self.own, record, seq, now));
            effects.push(TableEffect::Joined(tag));
        }
        self.counts.taken += 1;
        let spent = self.peers.get_mut(&tag).map(Peer::take_use).unwrap_or_default();
        if !spent.is_empty() {
            effects.push(TableEffect::Spent(spent));
        }
        match kind {
            MessageKind::Beat => {}
            MessageKind::Hello => self.beat_soon(),
            MessageKind::Bye => self.end(tag, Departure::Bye, effects),
        }
    }

    /// Ends the other runs of a node's name. Returns false if this run is an earlier one: another began later and is there.
    fn supersede(&mut self, run: &NodeRecord, effects: &mut Vec<TableEffect>) -> bool {
        if run.name == self.own.name {
            if run.incarnation < self.own.incarnation {
                return false;
            }
            effects.push(TableEffect::NameTaken(run.tag));
        }
        let now = self.time();
        let is_rival =
            |peer: &&Peer| peer.ended.is_none() && peer.record.name == run.name && peer.record.tag != run.tag;
        let rivals: Vec<&Peer> = self.peers.values().filter(is_rival).collect();
        // A node's own clock may have gone back at its restart: a run that is silent is the earlier one whatever its time.
        let is_later =
            |peer: &&Peer| peer.record.incarnation >= run.incarnation && self.liveness(peer, now) == Liveness::Fresh;
        if rivals.iter().any(is_later) {
            return false;
        }
        let tags: Vec<NodeTag> = rivals.into_iter().map(Peer::tag).collect();
        for tag in tags {
            self.end(tag, Departure::Restarted, effects);
        }
        true
    }

    fn end(&mut self, tag: NodeTag, departure: Departure, effects: &mut Vec<TableEffect>) {
        if let Some(peer) = self.peers.get_mut(&tag) {
            peer.ended = Some(departure);
            effects.push(TableEffect::Left(tag, Liveness::Ended(departure)));
        }
    }

    /// Makes space for one node more: evicts the one that has been silent for longest of those that ended or are gone.
    fn has_capacity(&mut self) -> bool {
        if self.peers.len() < MAX_NODES {
            return true;
        }
        let unused = self.peers.values().filter(|peer| peer.ended.is_some() || peer.reported_gone);
        let Some(oldest) = unused.min_by_key(|peer| peer.arrived).map(Peer::tag) else { return false };
        self.peers.remove(&oldest);
        true
    }
}
