//! Consents, voices, and lists of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Somebody's recorded consent to a voice enrolled from their speech.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// Unique id: `cons_...`.
    pub id: String,
    /// Label that the client chose.
    pub name: String,
    /// Language of the recording, as a BCP 47 tag.
    pub language: String,
    /// Time of creation, in seconds since 1970.
    pub created_at: u64,
}

/// Voice enrolled from a recording. Its id is the voice name in requests to the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voice {
    /// Unique id: `voice_...`.
    pub id: String,
    /// Label that the client chose.
    pub name: String,
    /// Id of its consent.
    pub consent: String,
    /// Transcript of the recording; may be empty.
    pub text: String,
    /// Time of creation, in seconds since 1970.
    pub created_at: u64,
}

/// Voices and consents that a node keeps, as it tells them to the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoiceListing {
    /// Voices whose recordings it can give.
    pub voices: Vec<Voice>,
    /// Consents that it got, at most `voices.most`.
    pub consents: Vec<Consent>,
}

/// Voices and consents of another node.
#[derive(Debug, Default)]
pub(super) struct OtherVoices {
    /// Voices that it lists.
    pub listed: BTreeSet<String>,
    /// Those of them that are enrolled here.
    pub copies: BTreeMap<String, Voice>,
    /// Consents that it lists, at most `voices.most`.
    pub consents: Vec<Consent>,
}
