//! Shared by the tests: records, tables, and a random number generator with a seed.

use std::time::{Duration, Instant};

use repartee_cluster::{
    BeatCodec, BeatMessage, ClusterSecrets, Liveness, MessageKind, NodeLoad, NodePhase, NodeRecord, NodeTag, Table,
    TableEffect, TableInput,
};

/// Secret of the tests' cluster.
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Longest call of the tests, an hour.
pub const KEEP: Duration = Duration::from_secs(3_600);

pub fn secrets() -> ClusterSecrets {
    ClusterSecrets::new(SECRET, None).unwrap()
}

pub fn codec() -> BeatCodec {
    BeatCodec::new(&secrets(), "test")
}

pub fn tag(number: u32) -> NodeTag {
    format!("{number:08x}").parse().unwrap()
}

/// Node `node-<number>` with this tag and four slots.
pub fn record(number: u32) -> NodeRecord {
    NodeRecord {
        tag: tag(number),
        name: format!("node-{number}"),
        incarnation: 1_790_000_000_000,
        address: format!("10.0.0.{}:8080", number % 250 + 1),
        zone: String::new(),
        model: "demo".to_owned(),
        version: "0.1.0".to_owned(),
        phase: NodePhase::Serving,
        load: load(4, 4),
        keys: Vec::new(),
        voices: 0,
    }
}

pub fn load(slots: u32, free: u32) -> NodeLoad {
    NodeLoad { slots, free, first_packet_p95_ms: None }
}

/// Message of a node.
pub fn message(kind: MessageKind, seq: u64, record: NodeRecord) -> Vec<u8> {
    codec().encode(&BeatMessage::new(kind, seq, record))
}

pub fn beat(seq: u64, record: NodeRecord) -> Vec<u8> {
    message(MessageKind::Beat, seq, record)
}

/// Table of node 1.
pub fn table(now: Instant) -> Table {
    Table::new(record(1), codec(), KEEP, now)
}

/// Gives an input, and every message that it publishes back to the table; returns the other effects.
pub fn echoing(table: &mut Table, input: TableInput<'_>, now: Instant) -> Vec<TableEffect> {
    let (mut all, mut queue) = (Vec::new(), table.handle(input, now));
    while !queue.is_empty() {
        let effect = queue.remove(0);
        if let TableEffect::Publish(_, bytes) = &effect {
            queue.extend(table.handle(TableInput::Message(bytes), now));
        }
        all.push(effect);
    }
    all
}

/// Tags of the nodes that get new calls.
pub fn fresh(table: &Table, now: Instant) -> Vec<NodeTag> {
    table.nodes(now).filter(|(_, liveness)| *liveness == Liveness::Fresh).map(|(record, _)| record.tag).collect()
}

/// Random numbers of a seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.bits() >> 16) % limit
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
