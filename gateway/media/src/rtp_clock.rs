//! Conversions between RTP ticks and durations.

use std::time::{Duration, Instant};

/// RTP clock rate in Hz; Opus always uses 48 kHz.
const CLOCK: u64 = 48_000;

/// Duration of extended RTP ticks, at most one day.
pub(crate) fn ticks_to_duration(ticks: u64) -> Duration {
    // One day exceeds every duration that callers compare with, and does not overflow.
    Duration::from_micros(ticks.min(CLOCK * 86_400) * 1_000_000 / CLOCK)
}

/// RTP ticks of a duration.
pub(crate) fn duration_to_ticks(duration: Duration) -> u64 {
    duration.as_micros() as u64 * CLOCK / 1_000_000
}

/// Extended RTP timestamp in microseconds.
pub(crate) fn tick_micros(ticks: u64) -> i64 {
    // Extended timestamps stay far below 2^40 in the lifetime of a call.
    (u128::from(ticks) * 1_000_000 / u128::from(CLOCK)) as i64
}

/// Microseconds from `b` to `a`.
pub(crate) fn signed_micros(a: Instant, b: Instant) -> i64 {
    let magnitude = a.max(b).duration_since(a.min(b)).as_micros() as i64;
    if a >= b { magnitude } else { -magnitude }
}
