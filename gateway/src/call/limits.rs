//! How long a call may last.

use std::time::Duration;

/// Time limits of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// From its beginning; `None` for no limit.
    pub max_duration: Option<Duration>,
    /// With no event and no sound of the caller, and nothing said to it; `None` for no limit.
    pub idle_timeout: Option<Duration>,
}
