//! What the server gives a call.

use std::sync::Arc;

use super::CallLimits;
use crate::metrics::Metrics;
use crate::turn_judge::TurnJudge;

/// What the server gives a call besides its session.
#[derive(Debug, Clone)]
pub struct CallServices {
    /// How long it may last.
    pub limits: CallLimits,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
    /// The turn-detection model; `None` where eagerness alone decides.
    pub judge: Option<TurnJudge>,
}
