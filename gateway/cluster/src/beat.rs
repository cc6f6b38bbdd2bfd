//! Messages between nodes: a signed record as text, `repartee1.ID.SIGNATURE.JSON`. The signature covers the bytes that
//! were sent, so that a node checks what a later version has added without knowing it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::record::{NodeRecord, RecordError};
use crate::secret::{ClusterSecrets, SealError, Sealer};

/// Maximum size of a message, in bytes; a larger one is refused unread.
pub const MAX_BEAT: usize = 4 << 10;
/// Begins every message.
const FORM: &str = "repartee1";
/// Version of the messages that this binary writes.
const VERSION: u32 = 2;
/// Version that read and wrote no use of keys and no voices.
const FIRST_VERSION: u32 = 1;

/// Message of a node to all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeatMessage {
    /// Version of the writer: it adds fields.
    #[serde(rename = "v")]
    version: u32,
    /// Oldest version of a reader that may read it. It stays 1 as long as fields are only added.
    #[serde(default = "first_version", rename = "min")]
    oldest_reader: u32,
    /// Purpose of the message.
    pub kind: MessageKind,
    /// Number of the message within the node's run, from 1.
    pub seq: u64,
    /// Record of the sender, its fields beside those above.
    #[serde(flatten)]
    pub record: NodeRecord,
}

fn first_version() -> u32 {
    FIRST_VERSION
}

impl BeatMessage {
    /// Message of this binary's version.
    pub fn new(kind: MessageKind, seq: u64, record: NodeRecord) -> Self {
        Self { version: VERSION, oldest_reader: FIRST_VERSION, kind, seq, record }
    }

    /// Message as the version before writes it: without what this one adds.
    pub fn previous(kind: MessageKind, seq: u64, record: NodeRecord) -> Self {
        let record = NodeRecord { keys: Vec::new(), voices: 0, ..record };
        Self { version: FIRST_VERSION, ..Self::new(kind, seq, record) }
    }
}

/// Purpose of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// The node is there.
    Beat,
    /// The node has come, or hears the others again: they answer with a beat.
    Hello,
    /// The node ends; its calls have ended.
    Bye,
}

impl MessageKind {
    /// Name on the wire.
    pub fn label(self) -> &'static str {
        match self {
            Self::Beat => "beat",
            Self::Hello => "hello",
            Self::Bye => "bye",
        }
    }
}

/// Error of [`BeatCodec::decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BeatError {
    /// More bytes than [`MAX_BEAT`].
    #[error("a message of more than {MAX_BEAT} bytes")]
    TooLarge,
    /// Not a message of this form.
    #[error("not a message of a node")]
    Form,
    /// Signed wrongly, or for another cell, or with another secret.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Signed, but not a record.
    #[error("a signed message that is not a record")]
    Json,
    /// For later versions alone.
    #[error("a message for nodes of version {0} or later: upgrade this node")]
    Version(u32),
    /// A record with a field that is not as it has to be.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl BeatError {
    /// Labels of all errors, as [`Self::label`] returns them.
    pub const LABELS: [&str; 7] = ["too_large", "form", "unknown_secret", "signature", "json", "version", "record"];

    /// Label for metrics.
    pub fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }

    pub(crate) fn index(self) -> usize {
        match self {
            Self::TooLarge => 0,
            Self::Form => 1,
            Self::Seal(SealError::UnknownSecret) => 2,
            Self::Seal(SealError::Signature) => 3,
            Self::Json => 4,
            Self::Version(_) => 5,
            Self::Record(_) => 6,
        }
    }
}

/// Reads and writes the messages of one cell: a set of nodes that hear each other.
#[derive(Debug, Clone)]
pub struct BeatCodec(Sealer);

impl BeatCodec {
    /// Codec of the cell with this name.
    pub fn new(secrets: &ClusterSecrets, cell: &str) -> Self {
        Self(secrets.sealer(&format!("beat of {cell}")))
    }

    /// Writes a message.
    pub fn encode(&self, message: &BeatMessage) -> Vec<u8> {
        // A record of texts and numbers always has a form in JSON.
        let json = serde_json::to_string(message).unwrap_or_default();
        format!("{FORM}.{}.{json}", self.0.sign(json.as_bytes())).into_bytes()
    }

    /// Reads a message. Checks the signature before it reads the rest.
    pub fn decode(&self, bytes: &[u8]) -> Result<BeatMessage, BeatError> {
        if bytes.len() > MAX_BEAT {
            return Err(BeatError::TooLarge);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| BeatError::Form)?;
        let mut parts = text.splitn(4, '.');
        let (Some(FORM), Some(id), Some(signature), Some(json)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(BeatError::Form);
        };
        self.0.verify(id, signature, json.as_bytes())?;
        // First the version alone: the rest may be of a form that is not known here.
        let Versions { oldest_reader, .. } = serde_json::from_str(json).map_err(|_| BeatError::Json)?;
        if oldest_reader > VERSION {
            return Err(BeatError::Version(oldest_reader));
        }
        let message: BeatMessage = serde_json::from_str(json).map_err(|_| BeatError::Json)?;
        message.record.check()?;
        Ok(message)
    }
}

/// Versions of a message, whatever else it holds.
#[derive(Deserialize)]
struct Versions {
    #[serde(rename = "v")]
    _version: u32,
    #[serde(default = "first_version", rename = "min")]
    oldest_reader: u32,
}
