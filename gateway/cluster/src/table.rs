//! The directory: which nodes are there. (Input, now) -> effects; `now` is this node's monotonic clock, and no clock of another
//! node is compared with it.
//!
//! Silence of a node counts on the clock of our own echoes: messages that this node publishes come back to it by the way
//! that those of the others take. While they do not, nobody grows older, so a lost broker loses no node.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::beat::{BeatCodec, BeatMessage, MessageKind};
use crate::counts::TableCounts;
use crate::key_use::{KeyReport, KeySpent, KeyUse};
use crate::peer::{Departure, Liveness, Peer, Target};
use crate::record::{NodeLoad, NodePhase, NodeRecord};
use crate::tag::NodeTag;

/// Time between two beats.
pub const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Silence after which a node gets no new calls; also the age of our last echo at which the feed is stale.
pub const SILENT_AFTER: Duration = Duration::from_millis(2_500);
/// Silence after which a node counts as gone.
pub const GONE_AFTER: Duration = Duration::from_secs(10);
/// Maximum number of other nodes in the table, those that ended included.
pub const MAX_NODES: usize = 1_024;
/// Shortest time between two beats, except at a change of phase, and between two looks for nodes that are gone.
pub(crate) const SHORTEST_GAP: Duration = Duration::from_millis(100);
/// Age that an echo has when the next one is late.
const ECHO_GRACE: Duration = Duration::from_millis(1_250);
/// Own messages whose echo is awaited.
const MAX_AWAITED: usize = 64;

/// Input of the table.
#[derive(Debug, Clone, Copy)]
pub enum TableInput<'a> {
    /// A message arrived, perhaps our own one.
    Message(&'a [u8]),
    /// This node's slots have changed.
    Load(NodeLoad),
    /// Present use of this node by all of its API keys.
    Keys(&'a [KeyUse]),
    /// Calls that one key may have on all nodes; 0 for no limit.
    KeyLimit(u32),
    /// This node's recorded voices or consents have changed so often.
    Voices(u32),
    /// This node takes no new calls any more.
    Drain,
    /// This node ends; its calls have ended.
    Stop,
    /// The node answered a forward; `true` if it took a slot for it.
    Answered(NodeTag, bool),
    /// The node answered that it is full.
    Full(NodeTag),
    /// The node did not answer a forward.
    Failed(NodeTag),
    /// Nothing but time has passed.
    Tick,
}

/// Effect of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableEffect {
    /// Publish these bytes to all nodes, this one included.
    Publish(MessageKind, Vec<u8>),
    /// A node is there that was not.
    Joined(NodeTag),
    /// A node is silent for long, or has ended.
    Left(NodeTag, Liveness),
    /// Keys have used this on another node.
    Spent(Vec<KeySpent>),
    /// The feed of messages has changed.
    Feed(Feed),
    /// Another running node has this node's name, and the others believe that one: names have to differ.
    NameTaken(NodeTag),
}

/// Feed of messages, as our own echoes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// Our messages come back.
    Live,
    /// They do not: the table stays as it is.
    Stale,
}

/// Owner of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// This node, for every id with its tag.
    Own,
    /// Another node; ask it, even if it is silent.
    Other(Target, Liveness),
    /// A node that has ended: what it owned has ended too.
    Ended(Departure),
    /// No node of the table.
    Unknown,
}

/// Table of the nodes of one cell.
#[derive(Debug)]
pub struct Table {
    pub(crate) codec: BeatCodec,
    pub(crate) own: NodeRecord,
    pub(crate) peers: BTreeMap<NodeTag, Peer>,
    pub(crate) counts: TableCounts,
    /// Use of this node by its keys.
    pub(crate) report: KeyReport,
    /// Calls that one key may have on all nodes; 0 for no limit.
    pub(crate) key_limit: u32,
    /// True if this node writes messages of the version before.
    is_previous: bool,
    /// Time for which a node that is gone is kept: the longest call.
    keep: Duration,
    /// Latest time of an input: a clock that goes back stands still here.
    now: Instant,
    seq: u64,
    stopped: bool,
    next_beat: Instant,
    /// Time of the next look for nodes that are gone.
    next_sweep: Instant,
    last_beat: Option<Instant>,
    /// Own messages on their way, by number.
    awaited: VecDeque<(u64, Instant)>,
    pub(crate) feed: FeedClock,
}

/// Clock of our own echoes.
#[derive(Debug)]
pub(crate) struct FeedClock {
    /// Sending time of the latest message that came back.
    echoed: Instant,
    /// Time from which silence counts: the start, or the end of a gap in the echoes.
    pub resumed: Instant,
    state: Feed,
}

impl Table {
    /// Table of the node `own` that begins now. `keep` is the longest time that a call may take.
    pub fn new(own: NodeRecord, codec: BeatCodec, keep: Duration, now: Instant) -> Self {
        Self {
            codec,
            own,
            peers: BTreeMap::new(),
            counts: TableCounts::default(),
            report: KeyReport::default(),
            key_limit: 0,
            is_previous: false,
            keep: keep.max(GONE_AFTER),
            now,
            seq: 0,
            stopped: false,
            next_beat: now,
            next_sweep: now,
            last_beat: None,
            awaited: VecDeque::new(),
            feed: FeedClock { echoed: now, resumed: now, state: Feed::Stale },
        }
    }

    /// The same table, whose node writes messages as the version before does: for tests of a roll.
    #[must_use]
    pub fn with_previous_beats(self) -> Self {
        Self { is_previous: true, ..self }
    }

    /// Takes an input. The first one, whatever it is, publishes a hello.
    pub fn handle(&mut self, input: TableInput<'_>, now: Instant) -> Vec<TableEffect> {
        self.now = self.now.max(now);
        let mut effects = Vec::new();
        if self.last_beat.is_none() && !self.stopped {
            self.publish(MessageKind::Hello, &mut effects);
        }
        match input {
            TableInput::Message(bytes) => self.receive(bytes, &mut effects),
            TableInput::Load(load) => self.set_load(load),
            TableInput::Keys(keys) => {
                self.report.set(keys);
                if self.may_reach_limit() {
                    self.beat_soon();
                }
            }
            TableInput::KeyLimit(most) => self.key_limit = most,
            TableInput::Voices(changes) => {
                if std::mem::replace(&mut self.own.voices, changes) != changes {
                    self.beat_soon();
                }
            }
            TableInput::Drain => {
                if self.own.phase != NodePhase::Draining {
                    self.own.phase = NodePhase::Draining;
                    self.publish(MessageKind::Beat, &mut effects);
                }
            }
            TableInput::Stop => {
                if !self.stopped {
                    self.own.phase = NodePhase::Draining;
                    self.publish(MessageKind::Bye, &mut effects);
                    self.stopped = true;
                }
            }
            TableInput::Answered(tag, took) => self.with_peer(tag, |peer, _| {
                peer.reached();
                // The slot is free after all; a message that came in between has reset the number.
                peer.sent = peer.sent.saturating_sub(u32::from(!took));
            }),
            TableInput::Full(tag) => self.with_peer(tag, |peer, _| {
                peer.reached();
                peer.record.load.free = 0;
            }),
            TableInput::Failed(tag) => self.with_peer(tag, |peer, now| {
                peer.failed(now);
                peer.sent = peer.sent.saturating_sub(1);
            }),
            TableInput::Tick => {}
        }
        self.advance(&mut effects);
        effects
    }

    /// Time at which [`TableInput::Tick`] is due.
    pub fn next_tick(&self) -> Instant {
        self.next_beat
    }

    /// Record of this node.
    pub fn own(&self) -> &NodeRecord {
        &self.own
    }

    /// Other nodes with their liveness at `now`.
    pub fn nodes(&self, now: Instant) -> impl Iterator<Item = (&NodeRecord, Liveness)> {
        self.peers.values().map(move |peer| (&peer.record, self.liveness(peer, now)))
    }

    /// State of the feed of messages at `now`.
    pub fn feed(&self, now: Instant) -> Feed {
        match self.feed.state {
            Feed::Live if now.saturating_duration_since(self.feed.echoed) <= SILENT_AFTER => Feed::Live,
            _ => Feed::Stale,
        }
    }

    /// True if no message can have come for a while, because our own do not come back.
    pub(crate) fn lacks_news(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.feed.echoed) > SILENT_AFTER
    }

    /// Messages by what became of them.
    pub fn counts(&self) -> &TableCounts {
        &self.counts
    }

    /// Finds the owner of an id by its [tag](crate::tag_of_id).
    pub fn owner(&self, tag: NodeTag, now: Instant) -> Owner {
        if tag == self.own.tag {
            return Owner::Own;
        }
        let Some(peer) = self.peers.get(&tag) else { return Owner::Unknown };
        match self.liveness(peer, now) {
            Liveness::Ended(departure) => Owner::Ended(departure),
            liveness => Owner::Other(Target::of(peer), liveness),
        }
    }

    pub(crate) fn liveness(&self, peer: &Peer, now: Instant) -> Liveness {
        if let Some(departure) = peer.ended {
            return Liveness::Ended(departure);
        }
        match self.feed.silence(peer.arrived, now) {
            silence if silence > GONE_AFTER => Liveness::Gone,
            silence if silence > SILENT_AFTER => Liveness::Silent,
            _ => Liveness::Fresh,
        }
    }

    /// Time of the present input.
    pub(crate) fn time(&self) -> Instant {
        self.now
    }

    /// Counts a call that is forwarded to the node, until its next message.
    pub(crate) fn count_sent(&mut self, tag: NodeTag) {
        self.with_peer(tag, |peer, _| peer.sent = peer.sent.saturating_add(1));
    }

    fn with_peer(&mut self, tag: NodeTag, change: impl FnOnce(&mut Peer, Instant)) {
        if let Some(peer) = self.peers.get_mut(&tag) {
            change(peer, self.now);
        }
    }

    fn set_load(&mut self, load: NodeLoad) {
        let before = std::mem::replace(&mut self.own.load, load);
        if (before.free == 0) != (load.free == 0) {
            self.beat_soon();
        }
    }

    /// Brings the next beat forward.
    pub(crate) fn beat_soon(&mut self) {
        let soonest = self.last_beat.map_or(self.now, |last| last + SHORTEST_GAP);
        self.next_beat = self.next_beat.min(soonest);
    }

    pub(crate) fn publish(&mut self, kind: MessageKind, effects: &mut Vec<TableEffect>) {
        self.seq += 1;
        self.own.keys = self.report.tell();
        let write = if self.is_previous { BeatMessage::previous } else { BeatMessage::new };
        let message = write(kind, self.seq, self.own.clone());
        effects.push(TableEffect::Publish(kind, self.codec.encode(&message)));
        if self.awaited.len() == MAX_AWAITED {
            self.awaited.pop_front();
        }
        self.awaited.push_back((self.seq, self.now));
        self.last_beat = Some(self.now);
        self.next_beat = self.now + BEAT_EVERY;
    }

    /// Own message that came back: moves the clock of the echoes to its sending.
    pub(crate) fn echoed(&mut self, seq: u64, effects: &mut Vec<TableEffect>) {
        self.counts.echoes += 1;
        while let Some(&(first, sent)) = self.awaited.front().filter(|(first, _)| *first <= seq) {
            self.awaited.pop_front();
            if first == seq {
                // After a gap the messages of others may come later than this one.
                if sent.saturating_duration_since(self.feed.echoed) > SILENT_AFTER {
                    self.feed.resumed = self.now;
                    self.publish(MessageKind::Hello, effects);
                }
                self.feed.echoed = self.feed.echoed.max(sent);
                if self.feed.state == Feed::Stale && self.now.saturating_duration_since(sent) <= SILENT_AFTER {
                    self.feed.state = Feed::Live;
                    effects.push(TableEffect::Feed(Feed::Live));
                }
            }
        }
    }

    fn advance(&mut self, effects: &mut Vec<TableEffect>) {
        if self.now >= self.next_beat && !self.stopped {
            self.publish(MessageKind::Beat, effects);
        }
        if self.stopped {
            self.next_beat = self.now + BEAT_EVERY;
        }
        if self.feed.state == Feed::Live && self.feed(self.now) == Feed::Stale {
            self.feed.state = Feed::Stale;
            effects.push(TableEffect::Feed(Feed::Stale));
        }
        if self.now < self.next_sweep {
            return;
        }
        self.next_sweep = self.now + SHORTEST_GAP;
        let (feed, now, keep) = (&self.feed, self.now, self.keep);
        for (tag, peer) in &mut self.peers {
            if peer.ended.is_none() && !peer.reported_gone && feed.silence(peer.arrived, now) > GONE_AFTER {
                peer.reported_gone = true;
                effects.push(TableEffect::Left(*tag, Liveness::Gone));
            }
        }
        self.peers.retain(|_, peer| feed.silence(peer.arrived, now) <= keep);
    }
}

impl FeedClock {
    /// Time since which a message makes its node fresh; `None` if every node is.
    pub fn fresh_since(&self, now: Instant) -> Option<Instant> {
        let since = now.min(self.echoed + ECHO_GRACE).checked_sub(SILENT_AFTER)?;
        (self.resumed < since).then_some(since)
    }

    /// Silence of a node whose latest message arrived at `arrived`.
    fn silence(&self, arrived: Instant, now: Instant) -> Duration {
        now.min(self.echoed + ECHO_GRACE).saturating_duration_since(arrived.max(self.resumed))
    }
}
