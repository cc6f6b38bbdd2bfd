//! Time limits of a call.

use std::time::Duration;

/// Time limits of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// Maximum duration from the call's beginning; `None` for no limit.
    pub max_duration: Option<Duration>,
    /// Maximum time with no event or sound from the caller while the session is idle; `None` for no limit.
    pub idle_timeout: Option<Duration>,
    /// Longest turn that turn detection leaves open; `None` for no limit.
    pub longest_turn: Option<Duration>,
}
