//! Services that the server gives a call.

use std::sync::Arc;

use repartee_media::vad::BargeInPolicy;

use super::{CallLimits, CallSummary};
use crate::budget::call_budget::CallBudget;
use crate::headroom::Headroom;
use crate::long_work::CallerWork;
use crate::metrics::Metrics;
use crate::telemetry::CallSpan;
use crate::turn_judge::TurnModelPool;

/// Services that the server gives a call, besides its session.
#[derive(Debug)]
pub struct CallServices {
    /// Time limits of the call.
    pub limits: CallLimits,
    /// Budget of the call's key.
    pub budget: CallBudget,
    /// Metrics that the call updates.
    pub metrics: Arc<Metrics>,
    /// Figures that the call updates.
    pub summary: Arc<CallSummary>,
    /// The turn-detection model; `None` if eagerness alone ends turns.
    pub judge: Option<TurnModelPool>,
    /// Long computations of the call.
    pub long_work: CallerWork,
    /// Headroom of the machine; speculation is shed by it.
    pub headroom: Headroom,
    /// Trace span of the call, if traces are on.
    pub trace: CallSpan,
    /// True if the echo of our playback is cancelled.
    pub cancels_echo: bool,
    /// Policy by which a voice interrupts an answer.
    pub barge_in: BargeInPolicy,
}

#[cfg(test)]
impl CallServices {
    /// Services of a call without limits and spans.
    pub fn new(metrics: Arc<Metrics>, judge: Option<TurnModelPool>) -> Self {
        let (limits, budget) = (CallLimits::default(), CallBudget::default());
        let (summary, long_work, headroom, trace, barge_in) = Default::default();
        Self { limits, budget, metrics, summary, judge, long_work, headroom, trace, cancels_echo: true, barge_in }
    }
}
