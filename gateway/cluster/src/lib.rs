//! Many nodes: which are there, which one owns a call, where a new call goes, and what they sign for each other. No I/O and
//! no clock: everything is (input, now) -> effects, and random numbers are parameters.
//!
//! ```text
//! beats, loads, ticks -> Table -> beats to publish, nodes that came and went
//!                          ^
//! a new call -> Placement -+-> serve it here, forward it, or refuse it
//! an id      -> tag_of_id -+-> Owner
//! ```
//!
//! A node tells of itself once a second; nothing else is shared, and nothing is looked up in a store. The table may be wrong
//! for a moment: the node that gets a call decides by its own slots, and an id names its owner.
//!
//! | file | content |
//! |---|---|
//! | `secret` | [`ClusterSecrets`]: what the nodes share, and signatures by purpose |
//! | `record` | [`NodeRecord`]: what a node tells of itself |
//! | `key_use` | [`KeyUse`]: what a node tells of the use by API keys |
//! | `beat` | [`BeatCodec`]: records as signed messages, within limits |
//! | `tag` | [`NodeTag`], and the tag in an id |
//! | `peer` | another node as the table has it |
//! | `counts` | [`TableCounts`]: messages by what became of them |
//! | `table` | [`Table`]: the directory |
//! | `receive` | messages of others, and the echo of our own |
//! | `choose` | the node of a new call |
//! | `key_limits` | calls of a key on other nodes |
//! | `home` | [`NodeHome`]: the node that keeps a recorded voice |
//! | `placement` | [`Placement`]: the attempts of one call |
//! | `patience` | [`Patience`]: the wait for one answer |
//! | `hop` | [`HopSigner`]: signed header of a forwarded request |
//! | `signed_key` | [`KeySigner`]: ephemeral keys that every node checks by itself |

mod beat;
mod choose;
mod counts;
mod home;
mod hop;
mod key_limits;
mod key_use;
mod patience;
mod peer;
mod placement;
mod receive;
mod record;
mod secret;
mod signed_key;
mod table;
mod tag;

pub use beat::{BeatCodec, BeatError, BeatMessage, MAX_BEAT, MessageKind};
pub use choose::Choice;
pub use counts::TableCounts;
pub use home::{NodeHome, VoiceSource};
pub use hop::{HOP_HEADER, HOP_LIFETIME, Hop, HopError, HopSigner};
pub use key_use::{KeySpent, KeyUse, MAX_KEYS};
pub use patience::Patience;
pub use peer::{Departure, Liveness, Target};
pub use placement::{MAX_FORWARDS, Placement, PlacementStep};
pub use record::{NodeLoad, NodePhase, NodeRecord, RecordError};
pub use secret::{ClusterSecrets, MIN_SECRET, SealError, Sealer, SecretError};
pub use signed_key::{KeyGrant, KeySession, KeySigner, MAX_SESSION_IN_KEY, SignedKeyError};
pub use table::{BEAT_EVERY, Feed, GONE_AFTER, MAX_NODES, Owner, SILENT_AFTER, Table, TableEffect, TableInput};
pub use tag::{NodeTag, TagError, tag_of_id, tag_of_ufrag};
