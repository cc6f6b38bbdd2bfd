//! Policies of interruptions: how sure the network has to be, and how long it may take.
//!
//! They were chosen on speakers that neither train nor judge, in a finer grid than the recipe's step `choose` prints (models/interruptions).

use std::time::Duration;

/// Policy of interruptions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BargeInPolicy {
    /// Voices are judged by their length alone. A playback that cannot pause ends with 120 ms of voice.
    #[default]
    Immediate,
    /// Interrupts soon, and now and then for a backchannel.
    Eager,
    /// Between eager and patient.
    Balanced,
    /// Waits longer, and lets more sounds pass.
    Patient,
}

impl BargeInPolicy {
    /// Thresholds of the network; `None` without one.
    pub(crate) fn thresholds(self) -> Option<Thresholds> {
        let thresholds = |sure, at_end, holding, decided_ms, longest_ms| Thresholds {
            sure,
            at_end,
            holding,
            decided: Duration::from_millis(decided_ms),
            longest: Duration::from_millis(longest_ms),
        };
        match self {
            Self::Immediate => None,
            Self::Eager => Some(thresholds(0.8, 0.25, 0.5, 384, 3_000)),
            Self::Balanced => Some(thresholds(0.9, 0.35, 0.5, 512, 3_000)),
            Self::Patient => Some(thresholds(0.95, 0.5, 0.7, 512, 3_000)),
        }
    }
}

/// Thresholds of a policy: probabilities of an interruption, and times from the opening of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Thresholds {
    /// Least probability of two frames in a row that interrupt at once.
    pub sure: f32,
    /// Least probability with which a voice that has ended interrupts, as a command does.
    pub at_end: f32,
    /// Probability below which a voice that goes on is held until `longest`.
    pub holding: f32,
    /// Time after which a voice that goes on interrupts, and the longest time that it is held.
    pub decided: Duration,
    pub longest: Duration,
}

/// The network's judgement of a voice after one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NetworkJudgement {
    /// Probability of an interruption.
    pub interruption: f32,
    pub thresholds: Thresholds,
    /// True if the playback is paused meanwhile: then the network is asked once the voice has ended, or goes on.
    pub is_paused: bool,
}
