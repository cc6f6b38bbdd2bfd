//! `rate_limits.updated`: sent at the beginning of every response. Repartee counts no tokens, so the list is empty.

use serde::{Deserialize, Serialize};

/// `rate_limits.updated`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RateLimitsUpdated {
    /// One entry a limit.
    pub rate_limits: Vec<RateLimit>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateLimit {
    /// `requests` or `tokens`.
    pub name: String,
    /// The limit.
    pub limit: u64,
    /// How many are left.
    pub remaining: u64,
    /// Seconds until the limit is restored.
    pub reset_seconds: f64,
}
