//! Services that the server gives a call.

use std::sync::Arc;

use super::CallLimits;
use crate::metrics::Metrics;
use crate::telemetry::CallSpan;
use crate::turn_judge::TurnModelPool;

/// Services that the server gives a call, besides its session.
#[derive(Debug)]
pub struct CallServices {
    /// Time limits of the call.
    pub limits: CallLimits,
    /// Metrics that the call updates.
    pub metrics: Arc<Metrics>,
    /// The turn-detection model; `None` if eagerness alone ends turns.
    pub judge: Option<TurnModelPool>,
    /// Trace span of the call, if traces are on.
    pub trace: CallSpan,
}

#[cfg(test)]
impl CallServices {
    /// Services of a call without limits and spans.
    pub fn new(metrics: Arc<Metrics>, judge: Option<TurnModelPool>) -> Self {
        Self { limits: CallLimits::default(), metrics, judge, trace: CallSpan::default() }
    }
}
