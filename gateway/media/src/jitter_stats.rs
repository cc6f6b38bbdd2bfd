//! Statistics of the jitter buffer.

use std::time::Duration;

/// Statistics since the creation of the buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JitterStats {
    /// Released packets, including copies.
    pub released: u64,
    /// Lost packets that arrived as a copy in a later one.
    pub copied: u64,
    /// Lost packets recovered by FEC from the next one.
    pub recovered: u64,
    /// Lost packets that were concealed.
    pub concealed: u64,
    /// Lost packets in gaps too long to conceal.
    pub skipped: u64,
    /// Packets that arrived after their gap timed out; dropped.
    pub late: u64,
    /// Packets that arrived twice; dropped.
    pub duplicate: u64,
    /// Packets that arrived out of order, but in time.
    pub reordered: u64,
    /// Packets that are not Opus, or have a stray sequence number; dropped.
    pub invalid: u64,
    /// Total reported silence.
    pub silence: Duration,
    /// Total concealment of stalls.
    pub stalled: Duration,
}
