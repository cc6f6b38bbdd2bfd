//! Memory of slots: the bytes of one, and the number that the configured memory has room for.

use std::ops::Add;

use crate::config::{ConfigError, EngineConfig};
use crate::model::SlotCounts;

/// Memory of one slot in all stages together, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotBytes {
    /// Bytes for each position of the context: keys and values, encoded audio, rows on their way to later stages.
    pub position: usize,
    /// Bytes that do not depend on the context: further positions of later stages, convolution tails, rings, masks.
    pub fixed: usize,
}

impl Add for SlotBytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { position: self.position + other.position, fixed: self.fixed + other.fixed }
    }
}

/// Computes the slots that fit into the configured memory. Each has room for a whole context: `context` positions, or
/// `session_tokens` if that is less. Fewer sessions than configured is a warning.
///
/// # Errors
///
/// If not even one slot fits.
pub fn fit_slots(config: &EngineConfig, context: usize, bytes: SlotBytes) -> Result<SlotCounts, ConfigError> {
    let context = context.min(config.session_tokens);
    let each = context * bytes.position + bytes.fixed;
    let affordable = (config.cache_mib << 20) / each.max(1);
    if affordable == 0 {
        let needed = each.div_ceil(1 << 20);
        let allowed =
            format!("one session of {context} tokens takes {needed} MiB: allow more, or lower session_tokens");
        return Err(ConfigError::new("cache_mib", config.cache_mib, allowed));
    }
    // Sessions matter more than out-of-band responses, which get at most a third of the slots.
    let out_of_band = config.out_of_band.min(affordable / 3);
    let sessions = config.sessions.min(affordable - out_of_band);
    if sessions < config.sessions {
        tracing::warn!(
            sessions,
            asked = config.sessions,
            "engine.cache_mib has room for fewer sessions of {context} tokens ({} KiB each)",
            each >> 10
        );
    }
    Ok(SlotCounts { sessions, out_of_band, context })
}
