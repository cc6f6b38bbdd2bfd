//! Use of a node by API keys, as its beats tell it: calls that run, and totals of what is limited in a minute. Totals only
//! grow, so a lost message loses nothing: a later one tells the same and more, and the last use is told several times.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Maximum number of keys in a message: those with the most calls, then those that have used most since they were last told.
pub const MAX_KEYS: usize = 32;
/// Maximum number of keys of another node whose totals are known here; more are not charged.
const MAX_KNOWN: usize = 256;
/// Messages that tell of a key after its last use, because some are lost.
const TELL_TIMES: u32 = 3;
/// Messages of a node's first seconds: all use that they tell is new.
const FIRST_MESSAGES: u64 = 5;

/// Use of a node by one key. A later version adds fields and removes none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    /// First 64 bits of the key's hash; 0 for requests without a key.
    #[serde(rename = "k", serialize_with = "write_hex", deserialize_with = "read_hex")]
    pub key: u64,
    /// Calls that run.
    #[serde(rename = "s", default, skip_serializing_if = "is_zero")]
    pub calls: u32,
    /// Prompt tokens that were computed since the node's start, modulo 2^32.
    #[serde(rename = "p", default, skip_serializing_if = "is_zero")]
    pub prefill: u32,
    /// Tokens that were generated since then, modulo 2^32.
    #[serde(rename = "d", default, skip_serializing_if = "is_zero")]
    pub decode: u32,
    /// Input sound since then in ms, modulo 2^32.
    #[serde(rename = "a", default, skip_serializing_if = "is_zero")]
    pub sound_ms: u32,
}

/// Quantities that a key has used on another node since they were last charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpent {
    /// First 64 bits of the key's hash; 0 for requests without a key.
    pub key: u64,
    /// Prompt tokens that were computed.
    pub prefill: u32,
    /// Tokens that were generated.
    pub decode: u32,
    /// Input sound, in ms.
    pub sound_ms: u32,
}

impl KeySpent {
    fn between(before: &KeyUse, now: &KeyUse) -> Self {
        Self {
            key: now.key,
            prefill: now.prefill.wrapping_sub(before.prefill),
            decode: now.decode.wrapping_sub(before.decode),
            sound_ms: now.sound_ms.wrapping_sub(before.sound_ms),
        }
    }

    /// Tokens and seconds together: orders keys, nothing else.
    fn weight(&self) -> u64 {
        u64::from(self.prefill) + u64::from(self.decode) + u64::from(self.sound_ms / 1_000)
    }

    fn is_none(&self) -> bool {
        (self.prefill, self.decode, self.sound_ms) == (0, 0, 0)
    }
}

/// Use of this node by its keys, for its next message.
#[derive(Debug, Default)]
pub(crate) struct KeyReport {
    present: Vec<KeyUse>,
    /// Use as it was last told, and how often, by key.
    told: BTreeMap<u64, (KeyUse, u32)>,
    /// Calls of all keys at the last message, also of those that it left out.
    at_last: BTreeMap<u64, u32>,
}

impl KeyReport {
    /// Takes the present use by all keys.
    pub fn set(&mut self, present: &[KeyUse]) {
        self.present = present.to_vec();
        // A key that was removed is told no more.
        let known = |of_key: &KeyUse| self.told.get(&of_key.key).map(|told| (of_key.key, *told));
        self.told = present.iter().filter_map(known).collect();
    }

    /// Keys with more calls than at the last message, each with the number then and now.
    pub fn risen(&self) -> impl Iterator<Item = (u64, u32, u32)> {
        self.present.iter().filter_map(|of_key| {
            let before = self.at_last.get(&of_key.key).copied().unwrap_or_default();
            (of_key.calls > before).then_some((of_key.key, before, of_key.calls))
        })
    }

    /// Keys of the next message: at most [`MAX_KEYS`] of those with calls or late use, the most used first.
    pub fn tell(&mut self) -> Vec<KeyUse> {
        let ranked = |of_key: &KeyUse| {
            let (told, times) = self.told.get(&of_key.key).copied().unwrap_or((KeyUse::default(), TELL_TIMES));
            let new = KeySpent::between(&told, of_key).weight();
            let changed = told != (KeyUse { key: told.key, ..*of_key });
            (of_key.calls > 0 || changed || times < TELL_TIMES).then_some((
                *of_key,
                new,
                if changed { 0 } else { times },
            ))
        };
        let running = self.present.iter().filter(|of_key| of_key.calls > 0);
        self.at_last = running.map(|of_key| (of_key.key, of_key.calls)).collect();
        let mut busy: Vec<_> = self.present.iter().filter_map(ranked).collect();
        busy.sort_by_key(|(of_key, new, _)| Reverse((of_key.calls, *new)));
        busy.truncate(MAX_KEYS);
        self.told.extend(busy.iter().map(|(of_key, _, times)| (of_key.key, (*of_key, times + 1))));
        let busy: Vec<KeyUse> = busy.into_iter().map(|(of_key, ..)| of_key).collect();
        busy
    }
}

/// Totals of another node's keys, as its messages told them.
#[derive(Debug, Clone)]
pub(crate) struct KnownUse {
    totals: BTreeMap<u64, KeyUse>,
    /// True if the node was heard from its start: a key that is new counts from zero.
    from_start: bool,
}

impl KnownUse {
    /// Totals of a node whose first message had this number.
    pub fn new(seq: u64) -> Self {
        Self { totals: BTreeMap::new(), from_start: seq <= FIRST_MESSAGES }
    }

    /// Takes the totals of a message; returns what is new. The totals of a key that is heard for the first time from a node
    /// that had begun before are not: they may be days old.
    pub fn take(&mut self, told: &[KeyUse]) -> Vec<KeySpent> {
        let mut spent = Vec::new();
        for of_key in told.iter().take(MAX_KEYS) {
            let before = match self.totals.get(&of_key.key) {
                Some(before) => *before,
                None if self.totals.len() >= MAX_KNOWN => continue,
                None if self.from_start => KeyUse::default(),
                None => *of_key,
            };
            self.totals.insert(of_key.key, *of_key);
            spent.extend(Some(KeySpent::between(&before, of_key)).filter(|spent| !spent.is_none()));
        }
        spent
    }
}

/// Tells a field that is left out.
pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn write_hex<S: Serializer>(key: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{key:016x}"))
}

fn read_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    u64::from_str_radix(&text, 16).map_err(de::Error::custom)
}
