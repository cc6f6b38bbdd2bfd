//! Another node as the table has it.

use std::time::{Duration, Instant};

use crate::key_use::{KeySpent, KnownUse};
use crate::record::NodeRecord;
use crate::tag::NodeTag;

/// Time without forwards after the first one that failed; it doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
/// Longest time without forwards.
const MAX_BACKOFF: Duration = Duration::from_secs(16);

/// Life of another node, by its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Its messages come.
    Fresh,
    /// No message came for a while: it gets no new calls.
    Silent,
    /// No message came for long; its address is kept for its ids.
    Gone,
    /// It has ended, and its calls have.
    Ended(Departure),
}

/// Reason of a node's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It said so.
    Bye,
    /// It was started again under the same name.
    Restarted,
}

/// Another node that gets a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Tag of the node's present run.
    pub tag: NodeTag,
    /// Host and port of its HTTP listener.
    pub address: String,
}

impl Target {
    pub(crate) fn of(peer: &Peer) -> Self {
        Self { tag: peer.tag(), address: peer.record.address.clone() }
    }
}

/// Another node.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub record: NodeRecord,
    /// Number of its latest message.
    pub seq: u64,
    /// Arrival of its latest message.
    pub arrived: Instant,
    /// Its end, once it is known.
    pub ended: Option<Departure>,
    /// Calls that were sent there since its latest message, and may hold slots that the message counts as free.
    pub sent: u32,
    /// True if it serves the model of this node.
    pub has_own_model: bool,
    /// True if it is in the zone of this node.
    pub is_near: bool,
    /// Reported as gone.
    pub reported_gone: bool,
    /// Use by its keys, as it was charged here.
    known_use: KnownUse,
    backoff: Backoff,
}

#[derive(Debug, Clone, Copy, Default)]
struct Backoff {
    /// Time without forwards after the last failure.
    length: Duration,
    until: Option<Instant>,
}

impl Peer {
    /// Node whose first message came now; `own` is this one.
    pub fn new(own: &NodeRecord, record: NodeRecord, seq: u64, now: Instant) -> Self {
        let mut peer = Self {
            record,
            seq,
            arrived: now,
            ended: None,
            sent: 0,
            has_own_model: false,
            is_near: false,
            reported_gone: false,
            known_use: KnownUse::new(seq),
            backoff: Backoff::default(),
        };
        peer.compare(own);
        peer
    }

    /// Takes a later message; `own` is this node.
    pub fn update(&mut self, own: &NodeRecord, record: NodeRecord, seq: u64, now: Instant) {
        (self.record, self.seq, self.arrived, self.sent) = (record, seq, now, 0);
        (self.ended, self.reported_gone) = (None, false);
        self.compare(own);
    }

    /// Compares texts once a message, not once a call.
    fn compare(&mut self, own: &NodeRecord) {
        (self.has_own_model, self.is_near) = (self.record.model == own.model, self.record.zone == own.zone);
    }

    /// Takes the use by its keys that its latest message told.
    pub fn take_use(&mut self) -> Vec<KeySpent> {
        self.known_use.take(&self.record.keys)
    }

    pub fn tag(&self) -> NodeTag {
        self.record.tag
    }

    /// Slots that are free, as far as this node can tell.
    pub fn free(&self) -> u32 {
        self.record.load.free.saturating_sub(self.sent)
    }

    /// True unless a forward has failed a moment ago.
    pub fn is_reachable(&self, now: Instant) -> bool {
        self.backoff.until.is_none_or(|until| now >= until)
    }

    /// Records a forward that was answered.
    pub fn reached(&mut self) {
        self.backoff = Backoff::default();
    }

    /// Records a forward that got no answer.
    pub fn failed(&mut self, now: Instant) {
        let length = (self.backoff.length * 2).clamp(FIRST_BACKOFF, MAX_BACKOFF);
        self.backoff = Backoff { length, until: Some(now + length) };
    }
}
