//! Records: the address, model, phase and free slots of a node, as it tells them itself.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::key_use::{KeyUse, is_zero};
use crate::tag::NodeTag;

/// Maximum length of a name, a zone or a version, in bytes.
const MAX_NAME: usize = 64;
/// Maximum length of an address or a model's name, in bytes.
const MAX_TEXT: usize = 128;

/// Record of a node: on the wire as JSON, under the names in quotes. A later version adds fields and removes none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Tag of this run of the node.
    pub tag: NodeTag,
    /// Name of the node, the same after a restart.
    pub name: String,
    /// Time of the start in milliseconds since 1970 by the node's own clock: orders runs of one name, nothing else.
    #[serde(rename = "run")]
    pub incarnation: u64,
    /// Host and port at which other nodes reach it over HTTP.
    #[serde(rename = "http")]
    pub address: String,
    /// Zone that it stands in; empty for none.
    #[serde(default)]
    pub zone: String,
    /// Name of the model that it serves.
    pub model: String,
    /// Version of its binary.
    #[serde(default)]
    pub version: String,
    /// Phase of its life.
    pub phase: NodePhase,
    /// Its slots and what is free of them.
    #[serde(flatten)]
    pub load: NodeLoad,
    /// Use by its busiest API keys, at most [`MAX_KEYS`](crate::MAX_KEYS) of them. Since version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyUse>,
    /// Number of changes of its recorded voices and consents in this run; 0 while it has none. Since version 2.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub voices: u32,
}

/// Slots of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Sessions that it can hold.
    pub slots: u32,
    /// Sessions that it can still take.
    pub free: u32,
    /// p95 of the time to the first packet, in ms; `None` before the first one.
    #[serde(default, rename = "p95_ms", skip_serializing_if = "Option::is_none")]
    pub first_packet_p95_ms: Option<u32>,
}

/// Phase of a node's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePhase {
    /// It takes calls.
    Serving,
    /// It ends its calls and takes no new ones. So does a node in a phase that a later version adds.
    #[serde(other)]
    Draining,
}

/// Field of a record that is not as it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the field `{field}` of the record is not as it has to be")]
pub struct RecordError {
    /// Name of the field on the wire.
    pub field: &'static str,
}

impl NodeRecord {
    /// Fails if a field is too long, has characters that no header could carry, or is empty where it must not be.
    pub fn check(&self) -> Result<(), RecordError> {
        let visible = |text: &str, most| text.len() <= most && text.bytes().all(|byte| byte.is_ascii_graphic());
        let printed = |text: &str| text.len() <= MAX_TEXT && !text.chars().any(char::is_control);
        let port = self.address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then_some(port));
        let port = port.and_then(|port| port.parse::<u16>().ok()).unwrap_or_default();
        let checks = [
            ("name", !self.name.is_empty() && visible(&self.name, MAX_NAME)),
            ("http", port > 0 && visible(&self.address, MAX_TEXT)),
            ("zone", visible(&self.zone, MAX_NAME)),
            ("model", !self.model.is_empty() && printed(&self.model)),
            ("version", visible(&self.version, MAX_NAME)),
            ("free", self.load.free <= self.load.slots),
        ];
        checks.into_iter().find(|(_, right)| !right).map_or(Ok(()), |(field, _)| Err(RecordError { field }))
    }
}
