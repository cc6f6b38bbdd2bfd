//! `repartee.decision`: a decision of the server about the caller's sound, with its reason. Repartee's extension, sent to sessions that ask
//! for it.

use serde::{Deserialize, Serialize};

/// Payload of `repartee.decision`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionMade {
    /// The decision: `turn_started`, `interrupted`, `playback_paused`, `playback_resumed`, `voice_dismissed`, `turn_paused`,
    /// `turn_resumed`, `turn_ended`, `echo_found`, `echo_not_found`, `echo_cancelling_ended`, `noise_reduced` or `noise_left`.
    pub decision: String,
    /// Cause of the decision, such as `silence`, `model` or `network_sure`; docs/realtime.md lists them.
    pub reason: String,
    /// Input received until the decision, in ms; the offsets of turns count the same sound.
    pub audio_ms: u64,
    /// Probability that decided: of an interruption by a voice over an answer, or of the end of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f32>,
    /// Length of the voice, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice_ms: Option<u64>,
    /// Length of the silence, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
}
