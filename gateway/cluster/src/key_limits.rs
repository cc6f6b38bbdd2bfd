//! Limits of API keys over all nodes: the calls of a key elsewhere, and the slots that it shares.
//!
//! A node counts what the last messages of the others told. So a key that dials several nodes at once may have more calls
//! than its limit: at most those that it began on the others since their last messages. A node tells of a key's calls before
//! the next beat once as many untold ones on each node would fill the limit. While the feed is stale every node limits alone.

use std::time::Instant;

use crate::peer::{Liveness, Peer};
use crate::record::NodePhase;
use crate::table::{Feed, Table};

impl Table {
    /// Calls of a key on other nodes, as they last told. A node that is silent still counts; one that is gone does not.
    pub fn calls_elsewhere(&self, key: u64, now: Instant) -> u32 {
        let calls = |peer: &Peer| peer.record.keys.iter().find(|of_key| of_key.key == key).map(|of_key| of_key.calls);
        self.counted(now, |liveness| matches!(liveness, Liveness::Fresh | Liveness::Silent))
            .filter_map(calls)
            .fold(0, u32::saturating_add)
    }

    /// Slots of the other nodes that take calls.
    pub fn slots_elsewhere(&self, now: Instant) -> u32 {
        self.counted(now, |liveness| liveness == Liveness::Fresh)
            .filter(|peer| peer.record.phase == NodePhase::Serving)
            .fold(0, |slots, peer| slots.saturating_add(peer.record.load.slots))
    }

    /// True if a key has begun so many calls here since the last message that as many on each node would fill its limit.
    pub(crate) fn may_reach_limit(&self) -> bool {
        if self.key_limit == 0 {
            return false;
        }
        let now = self.time();
        let others = self.counted(now, |liveness| liveness == Liveness::Fresh).count();
        let nodes = u32::try_from(others + 1).unwrap_or(u32::MAX);
        self.report.risen().any(|(key, before, calls)| {
            let begun = (calls - before).saturating_mul(nodes);
            begun.saturating_add(before).saturating_add(self.calls_elsewhere(key, now)) >= self.key_limit
        })
    }

    /// Nodes in these states; none while the feed is stale.
    fn counted(&self, now: Instant, counts: impl Fn(Liveness) -> bool) -> impl Iterator<Item = &Peer> {
        let live = self.feed(now) == Feed::Live;
        self.peers.values().filter(move |peer| live && counts(self.liveness(peer, now)))
    }
}
