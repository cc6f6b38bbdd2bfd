//! Sample rate of the callers, and durations at it.

use std::time::Duration;

/// Sample rate of callers, in Hz: the websocket's default, and supported by Opus.
pub const RATE: u32 = 24_000;

/// Returns the duration of `samples` at [`RATE`].
pub fn duration_of(samples: u64) -> Duration {
    Duration::from_nanos(samples * 1_000_000_000 / u64::from(RATE))
}
