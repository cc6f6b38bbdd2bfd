//! Planner of ticks: chooses the slots that a stage advances in a tick, and the rows of each. It has no clock and
//! depends on no model.
//!
//! A session's deadline is the moment at which its caller runs out of audio. Sessions about to underrun come first,
//! then those that wait for their first packet, then the rest by earliest deadline. A prompt that takes long is due later,
//! so a short one need not wait for those that came before it. A tick gets as much time as the
//! most urgent deadline leaves, by the measured costs of steps. Every stage leaves time for urgent work in the stages
//! after it. So a long prompt is prefilled in chunks that fit into the time before the next frame is due. Part of the
//! time is a reserve, because a step can take longer than the steps before it. With no time left, a waiting prompt
//! still gets a small chunk now and then, so that it does not starve.

pub mod cost;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use self::cost::{StageCost, StepRows};
use crate::stage::RowKind;

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
    /// Number of ready rows; at least 1.
    pub rows: usize,
    /// Kind of the rows.
    pub kind: RowKind,
    /// Urgency of the rows.
    pub urgency: Urgency,
    /// Request time of the response; sort key of [`SchedulingOrder::Arrival`].
    pub arrived: Instant,
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

/// Order in which slots are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchedulingOrder {
    /// Earliest deadline first.
    #[default]
    Deadline,
    /// First come, first served, without a time budget; for comparison.
    Arrival,
}

/// Upper bounds of a stage's rows in one tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Upper bound of all slots' rows together.
    pub batch: usize,
    /// Upper bound of one slot's rows.
    pub chunk: usize,
}

/// Unplayed audio below which a session is about to underrun.
const MARGIN: Duration = Duration::from_millis(240);
/// Least time of a tick, however urgent its work: in shorter ticks the fixed cost of steps would prevail.
const SHORTEST_TICK: Duration = Duration::from_millis(5);
/// Reserve before a deadline, because a step may take longer than the steps before it: the larger of this and a quarter
/// of the time.
const SPARE: Duration = Duration::from_millis(40);
/// Least interval of chunks without time for them: while a session is about to underrun, a waiting prompt gets one this
/// often, so that it does not starve.
const FORCED_CHUNK_INTERVAL: Duration = Duration::from_millis(100);
/// Deadline of the next piece of a text after the last one: about reading speed.
const TEXT: Duration = Duration::from_millis(200);
/// Deadline of silent prefill after its rows became ready.
const SILENT: Duration = Duration::from_secs(1);
/// Time that a prompt may take, as a multiple of what its rows cost: so short prompts pass long ones, and a long one that
/// has waited this long is passed no more.
const PATIENCE: f64 = 4.0;
/// Share of the urgent rows' cost that other rows may add while a session waits for its first packet or is about to
/// underrun.
const PIGGYBACK_SHARE: f64 = 0.25;

/// Time left of a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TickBudget {
    /// Seconds; infinite while nothing is due.
    left: f64,
    /// True if a session is about to underrun.
    due: bool,
    /// True if a session waits for its first packet or is about to underrun.
    pressing: bool,
}

/// Plans the ticks of a chain of stages.
#[derive(Debug, Clone)]
pub struct Planner {
    order: SchedulingOrder,
    limits: Vec<StepLimits>,
    costs: Vec<StageCost>,
    /// Time of each stage's last chunk without time for it.
    forced: Vec<Option<Instant>>,
}

impl Planner {
    /// Creates a planner for stages with these limits.
    pub fn new(order: SchedulingOrder, limits: Vec<StepLimits>) -> Self {
        Self { order, costs: vec![StageCost::default(); limits.len()], forced: vec![None; limits.len()], limits }
    }

    /// Adds the measurement of a stage's step.
    pub fn measured(&mut self, stage: usize, rows: StepRows, took: Duration) {
        self.costs[stage].record(rows, took.as_secs_f64());
    }

    /// Returns the budget of a tick that begins at `now`; `wants` holds the wants of every stage.
    pub fn budget(&self, now: Instant, wants: &[Vec<ReadyRows>]) -> TickBudget {
        let all = || wants.iter().flatten();
        let due = all().filter_map(|want| match want.urgency {
            Urgency::Playing { runs_out } => Some(runs_out.saturating_duration_since(now)),
            _ => None,
        });
        let left = match (self.order, due.min()) {
            (SchedulingOrder::Arrival, _) | (_, None) => f64::INFINITY,
            (SchedulingOrder::Deadline, Some(slack)) => {
                slack.saturating_sub(SPARE.max(slack / 4)).max(SHORTEST_TICK).as_secs_f64()
            }
        };
        let most_urgent = all().map(|want| class(want, now)).min();
        TickBudget { left, due: most_urgent == Some(0), pressing: most_urgent.is_some_and(|class| class < 2) }
    }

    /// Returns the shares of `stage` in this tick, from its own wants and those of the stages after it.
    pub fn plan(
        &mut self,
        stage: usize,
        now: Instant,
        wants: &[ReadyRows],
        later: &[Vec<ReadyRows>],
        budget: &mut TickBudget,
    ) -> Vec<ScheduledRows> {
        let StepLimits { batch, chunk } = self.limits[stage];
        let mut wants = wants.to_vec();
        if self.order == SchedulingOrder::Arrival {
            wants.sort_by_key(|want| (want.arrived, want.slot));
            let mut left = batch;
            let share = |want: ReadyRows| {
                let rows = want.rows.min(chunk).min(left);
                left -= rows;
                ScheduledRows { slot: want.slot, kind: want.kind, rows }
            };
            return wants.into_iter().map(share).filter(|share| share.rows > 0).collect();
        }
        wants.sort_by_key(|want| (class(want, now), deadline(want, &self.costs[stage]), want.slot));

        // Due slots pass through the later stages in this tick, so their rows there must still fit.
        let is_due = |want: &&ReadyRows| class(want, now) == 0;
        let mut due: BTreeSet<usize> = wants.iter().filter(is_due).map(|want| want.slot).collect();
        let mut urgent_later = 0.0;
        for (cost, wants) in self.costs[stage + 1..].iter().zip(later) {
            let ready = wants.iter().filter(is_due);
            let rows = ready.clone().fold(StepRows::default(), |rows, want| rows.and(want.kind, 1));
            due.extend(ready.clone().map(|want| want.slot));
            urgent_later += cost.known_seconds(rows.and(cost.usual_output(), due.len() - ready.count()));
        }
        let cost = &self.costs[stage];
        let available = budget.left - urgent_later;
        // All planned rows, and the planned rows of priorities 0 and 1.
        let (mut planned, mut pressing) = (StepRows::default(), StepRows::default());
        let mut rows_left = batch;
        let mut shares: Vec<ScheduledRows> = Vec::new();
        let may_force = match self.forced[stage] {
            Some(at) if budget.due => now >= at + FORCED_CHUNK_INTERVAL,
            _ => true,
        };
        let mut longest = true;
        for want in wants {
            let class = class(&want, now);
            let whole = want.rows.min(chunk).min(rows_left);
            // A batch may be smaller than the least chunk.
            let least = want.kind.least_chunk().min(whole);
            let spent = cost.known_seconds(planned);
            let affordable = |seconds: f64| cost.affordable(planned, want.kind, whole, seconds - spent);
            let most = match class {
                // A due slot always runs, so every tick makes progress.
                0 => affordable(available).max(least),
                1 => {
                    let most = affordable(available);
                    // The slot that waits longest gets a chunk even so.
                    let force = std::mem::take(&mut longest) && may_force && most < least;
                    if force {
                        self.forced[stage] = Some(now);
                    }
                    if force { least } else { most }
                }
                _ if budget.pressing => {
                    affordable(available.min(cost.known_seconds(pressing) * (1.0 + PIGGYBACK_SHARE)))
                }
                _ => affordable(available).max(if shares.is_empty() { least } else { 0 }),
            };
            let rows = whole.min(most);
            // A shorter chunk of a prompt costs more in steps than it gains.
            if rows == 0 || (class > 0 && rows < least) {
                continue;
            }
            rows_left -= rows;
            planned = planned.and(want.kind, rows);
            if class < 2 {
                pressing = planned;
            }
            shares.push(ScheduledRows { slot: want.slot, kind: want.kind, rows });
        }
        budget.left -= cost.known_seconds(planned);
        shares
    }
}

/// Priority: 0 about to underrun, 1 waits for its first packet, 2 the rest, 3 background.
fn class(want: &ReadyRows, now: Instant) -> u8 {
    match want.urgency {
        Urgency::Playing { runs_out } if runs_out.saturating_duration_since(now) < MARGIN => 0,
        Urgency::First { .. } => 1,
        // Overdue text and silent prefill count as a first packet, so that they do not starve.
        Urgency::Text { since } if now >= since + TEXT => 1,
        Urgency::Silent { since } if now >= since + SILENT => 1,
        Urgency::Background { .. } => 3,
        _ => 2,
    }
}

fn deadline(want: &ReadyRows, cost: &StageCost) -> Instant {
    let patience = || match want.kind {
        RowKind::Prefill => cost.known_seconds(StepRows::of(want.kind, want.rows)) * PATIENCE,
        RowKind::Decode | RowKind::Window | RowKind::SolverStep => 0.0,
    };
    let due = match want.urgency {
        Urgency::Playing { runs_out } => return runs_out,
        Urgency::First { since } | Urgency::Background { since } => since,
        Urgency::Text { since } => since + TEXT,
        Urgency::Silent { since } => since + SILENT,
    };
    due + Duration::try_from_secs_f64(patience()).unwrap_or_default()
}
