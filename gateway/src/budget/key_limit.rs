//! Limits of a key's budget by name, and their refusals.

use std::time::Duration;

use thiserror::Error;

/// Limit of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLimit {
    /// Calls at once, completions and texts read aloud included.
    Calls,
    /// Valid ephemeral keys.
    EphemeralKeys,
    /// Prompt tokens that are computed in a minute.
    PrefillTokens,
    /// Tokens that are generated in a minute.
    DecodeTokens,
    /// Seconds of input sound in a minute.
    Sound,
    /// Seconds of input sound that wait to be heard.
    WaitingSound,
}

impl KeyLimit {
    /// Every limit, in the order of the variants.
    pub const ALL: [Self; 6] =
        [Self::Calls, Self::EphemeralKeys, Self::PrefillTokens, Self::DecodeTokens, Self::Sound, Self::WaitingSound];

    /// Name of the limit's setting under `limits`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls_per_key",
            Self::EphemeralKeys => "ephemeral_keys",
            Self::PrefillTokens => "prefill_tokens_per_minute",
            Self::DecodeTokens => "decode_tokens_per_minute",
            Self::Sound => "sound_s_per_minute",
            Self::WaitingSound => "waiting_sound_s",
        }
    }
}

/// Refusal by a limit of a key's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("limits.{}: this key has used its {most}: try again in {} s", .limit.name(), .retry_after.as_secs() + 1)]
pub struct OverBudget {
    /// Limit that refused the request.
    pub limit: KeyLimit,
    /// Most that the key may use.
    pub most: u64,
    /// Time until the key may use more.
    pub retry_after: Duration,
}
