//! Homes: the node that keeps a recorded voice or a consent, as its id names it. A home is made of the node's name, because
//! what it keeps outlives the process.

use std::fmt;
use std::time::Instant;

use ring::digest::{SHA256, digest};

use crate::peer::{Liveness, Target};
use crate::table::{Owner, Table};

/// Characters of a home.
const HOME: usize = 8;
/// Characters of an id's random part.
const RANDOM: usize = 32;

/// Node by a hash of its name: eight lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeHome(u32);

impl NodeHome {
    /// Home of the node with this name.
    pub fn of_name(name: &str) -> Self {
        let hash = digest(&SHA256, name.as_bytes());
        let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
        Self(u32::from_be_bytes(first))
    }

    /// Home in the id of a voice or a consent: `voice_<home>_<32 hex digits>`, likewise `cons_`. `None` for every other text.
    pub fn of_id(id: &str) -> Option<Self> {
        let rest = ["voice_", "cons_"].into_iter().find_map(|prefix| id.strip_prefix(prefix))?;
        let (home, random) = rest.split_once('_')?;
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let whole = home.len() == HOME && random.len() == RANDOM && is_hex(home) && is_hex(random);
        u32::from_str_radix(home, 16).ok().filter(|_| whole).map(Self)
    }
}

impl fmt::Display for NodeHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Recorded voices of another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoiceSource {
    /// The node's present run.
    pub target: Target,
    /// Name of the node.
    pub name: String,
    /// Number of changes of its voices and consents in this run; 0 while it has none.
    pub changes: u32,
}

impl Table {
    /// Finds the node of a home. Of several runs the present one; a node that has ended only if there is no other.
    pub fn home(&self, home: NodeHome, now: Instant) -> Owner {
        if NodeHome::of_name(&self.own.name) == home {
            return Owner::Own;
        }
        let runs = self.peers.values().filter(|peer| NodeHome::of_name(&peer.record.name) == home);
        let present = runs.max_by_key(|peer| (peer.ended.is_none(), peer.arrived));
        present.map_or(Owner::Unknown, |peer| self.owner(peer.tag(), now))
    }

    /// Nodes that may be asked for their voices now.
    pub fn voice_sources(&self, now: Instant) -> Vec<VoiceSource> {
        let answers = |liveness| matches!(liveness, Liveness::Fresh | Liveness::Silent);
        let asked = self.peers.values().filter(|peer| answers(self.liveness(peer, now)) && peer.is_reachable(now));
        let source = |peer: &crate::peer::Peer| VoiceSource {
            target: Target::of(peer),
            name: peer.record.name.clone(),
            changes: peer.record.voices,
        };
        asked.map(source).collect()
    }

    /// Nodes whose messages come: those that can be told of a change at once.
    pub fn hearing(&self, now: Instant) -> Vec<Target> {
        let hears = |peer: &&crate::peer::Peer| self.liveness(peer, now) == Liveness::Fresh && peer.is_reachable(now);
        self.peers.values().filter(hears).map(Target::of).collect()
    }

    /// True if a run of the node with this name is in the table, whatever became of it.
    pub fn has_name(&self, name: &str) -> bool {
        self.peers.values().any(|peer| peer.record.name == name)
    }
}
