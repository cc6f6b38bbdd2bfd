//! What the server gives a call.

use std::sync::Arc;

use super::CallLimits;
use crate::metrics::Metrics;
use crate::telemetry::CallSpan;
use crate::turn_judge::TurnModelPool;

/// What the server gives a call besides its session.
#[derive(Debug)]
pub struct CallServices {
    /// How long it may last.
    pub limits: CallLimits,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
    /// The turn-detection model; `None` where eagerness alone decides.
    pub judge: Option<TurnModelPool>,
    /// Its span, where spans are kept.
    pub trace: CallSpan,
}

#[cfg(test)]
impl CallServices {
    /// Those of a call without limits and spans.
    pub fn new(metrics: Arc<Metrics>, judge: Option<TurnModelPool>) -> Self {
        Self { limits: CallLimits::default(), metrics, judge, trace: CallSpan::default() }
    }
}
