//! `rate_limits.updated`: sent at the start of every response. The list is empty on a server without limits of tokens.

use serde::{Deserialize, Serialize};

/// Payload of `rate_limits.updated`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RateLimitsUpdated {
    /// Limits in effect.
    pub rate_limits: Vec<RateLimit>,
}

/// One rate limit of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Limited quantity: `requests` or `tokens`.
    pub name: String,
    /// Maximum per period.
    pub limit: u64,
    /// Number left in this period.
    pub remaining: u64,
    /// Seconds until the limit resets.
    pub reset_seconds: f64,
}
