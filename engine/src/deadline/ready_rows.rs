//! Rows that stages could advance, and the order in which they do.

use std::time::{Duration, Instant};

use super::cost::{StageCost, StepRows};
use crate::stage::RowKind;

/// Unplayed audio below which a session is about to underrun.
const MARGIN: Duration = Duration::from_millis(240);
/// Deadline of the next piece of a text after the last one: about reading speed.
const TEXT: Duration = Duration::from_millis(200);
/// Deadline of silent prefill after its rows became ready.
const SILENT: Duration = Duration::from_secs(1);

/// Urgency of a stage's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// The caller is playing audio.
    Playing {
        /// Time at which the audio sent so far has been played.
        runs_out: Instant,
    },
    /// The caller waits for the first packet.
    First {
        /// Request time of the response.
        since: Instant,
    },
    /// The caller reads text: a response without speech, after its first text.
    Text {
        /// Time of the last piece of text.
        since: Instant,
    },
    /// Silent prefill: no response was requested yet.
    Silent {
        /// Time at which the rows became ready.
        since: Instant,
    },
    /// Background work: no caller waits for it.
    Background {
        /// Request time of the response.
        since: Instant,
    },
}

/// Rows of one slot that a stage could advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyRows {
    /// Index of the slot.
    pub slot: usize,
    /// Tenant of the slot's session.
    pub tenant: u64,
    /// Number of ready rows; at least 1.
    pub rows: usize,
    /// Kind of the rows.
    pub kind: RowKind,
    /// Urgency of the rows.
    pub urgency: Urgency,
    /// Request time of the response; sort key of [`super::SchedulingOrder::Arrival`].
    pub arrived: Instant,
}

impl ReadyRows {
    /// Priority: 0 about to underrun, 1 waits for its first packet, 2 the rest, 3 background.
    pub fn class(&self, now: Instant) -> u8 {
        match self.urgency {
            Urgency::Playing { runs_out } if runs_out.saturating_duration_since(now) < MARGIN => 0,
            Urgency::First { .. } => 1,
            // Overdue text and silent prefill count as a first packet, so that they do not starve.
            Urgency::Text { since } if now >= since + TEXT => 1,
            Urgency::Silent { since } if now >= since + SILENT => 1,
            Urgency::Background { .. } => 3,
            _ => 2,
        }
    }

    /// True for rows in whose order tenants take turns: prompts and windows that are not due.
    pub fn takes_turns(&self, now: Instant) -> bool {
        matches!(self.kind, RowKind::Prefill | RowKind::Window) && self.class(now) > 0
    }

    /// Time that a prompt takes for which somebody waits; zero for all other rows.
    pub fn length(&self, now: Instant, cost: &StageCost) -> Duration {
        if self.kind != RowKind::Prefill || self.class(now) != 1 {
            return Duration::ZERO;
        }
        let seconds = cost.known_seconds(StepRows::of(self.kind, self.rows));
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Time at which the rows are to be computed.
    pub fn deadline(&self) -> Instant {
        match self.urgency {
            Urgency::Playing { runs_out } => runs_out,
            Urgency::First { since } | Urgency::Background { since } => since,
            Urgency::Text { since } => since + TEXT,
            Urgency::Silent { since } => since + SILENT,
        }
    }
}

/// Upper bounds of a stage's rows in one tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Upper bound of all slots' rows together.
    pub batch: usize,
    /// Upper bound of one slot's rows.
    pub chunk: usize,
}

/// Rows of one slot that a stage advances in a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledRows {
    /// Index of the slot.
    pub slot: usize,
    /// Kind of the rows.
    pub kind: RowKind,
    /// Number of rows, at most [`ReadyRows::rows`].
    pub rows: usize,
}
