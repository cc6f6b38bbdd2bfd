//! The planner: which slots a stage advances in a tick, and by how many rows. It has no clock and knows no model.
//!
//! A session's deadline is the moment when its caller runs out of audio. Sessions about to underrun come first, then those
//! that wait for their first packet, then the rest by earliest deadline. A tick gets as much time as the most urgent
//! deadline leaves, by the measured costs of steps, and every stage leaves time for urgent work in the stages after it. So a
//! long prompt is prefilled in chunks that do not delay a due frame.

use std::time::{Duration, Instant};

/// How soon the output of a stage is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// The caller is playing audio.
    Playing {
        /// When the audio sent so far has been played.
        runs_out: Instant,
    },
    /// The caller waits for the first packet.
    First {
        /// When the response was requested.
        since: Instant,
    },
    /// Silent prefill: no response was requested yet.
    Silent {
        /// When the rows became ready.
        since: Instant,
    },
}

/// Rows of one slot that a stage could advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// The slot.
    pub slot: usize,
    /// Ready rows; at least 1.
    pub rows: usize,
    /// How soon they are needed.
    pub urgency: Urgency,
    /// When its response was requested; [`Order::Arrival`] sorts by it.
    pub arrived: Instant,
}

/// Rows of one slot that a stage advances in a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The slot.
    pub slot: usize,
    /// Rows, at most [`Want::rows`].
    pub rows: usize,
}

/// The order in which slots are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// By deadline.
    #[default]
    Deadline,
    /// First come, first served, without a time budget; for comparison.
    Arrival,
}

/// Upper bounds of a stage's rows in one tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rows of all slots together.
    pub batch: usize,
    /// Rows of one slot.
    pub chunk: usize,
}

/// Unplayed audio below which a session is about to underrun.
const MARGIN: Duration = Duration::from_millis(240);
/// Least time of a tick, however urgent something is: in shorter ticks the fixed cost of steps would prevail.
const SHORTEST_TICK: Duration = Duration::from_millis(5);
/// Silent prefill is due this long after its rows became ready.
const SILENT: Duration = Duration::from_secs(1);
/// Weight of the newest step in the measured costs.
const NEWEST: f64 = 0.05;
/// Rows below which a chunk of a prompt does not pay.
const LEAST_CHUNK: usize = 16;

/// Cost of a stage's step: a line over the number of rows, fitted to the steps so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Weighted means of rows, seconds, rows squared, and rows times seconds; nothing measured while `weight` is 0.
    weight: f64,
    rows: f64,
    seconds: f64,
    rows_rows: f64,
    rows_seconds: f64,
}

impl Cost {
    /// Adds the measurement of a step.
    pub fn measured(&mut self, rows: usize, took: Duration) {
        let (rows, seconds) = (rows as f64, took.as_secs_f64());
        // The first steps count more, until there are enough of them.
        self.weight += 1.0;
        let newest = NEWEST.max(1.0 / self.weight);
        let mix = |old: &mut f64, new: f64| *old += newest * (new - *old);
        mix(&mut self.rows, rows);
        mix(&mut self.seconds, seconds);
        mix(&mut self.rows_rows, rows * rows);
        mix(&mut self.rows_seconds, rows * seconds);
    }

    /// Seconds for each further row.
    pub fn row(&self) -> f64 {
        let spread = self.rows_rows - self.rows * self.rows;
        let slope = (self.rows_seconds - self.rows * self.seconds) / spread;
        // Steps of one size do not determine the slope. Then the whole cost counts as cost of rows, so ticks are too short
        // rather than too long.
        let most = self.seconds / self.rows.max(1.0);
        if spread > 1e-6 * self.rows_rows && slope.is_finite() { slope.clamp(0.0, most) } else { most }
    }

    /// Seconds of a step without its rows.
    pub fn fixed(&self) -> f64 {
        (self.seconds - self.row() * self.rows).max(0.0)
    }
}

/// Time left of a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Seconds; infinite while nothing is due.
    left: f64,
    /// Whether a session waits for its first packet or is about to underrun.
    pressing: bool,
}

/// Plans ticks for a chain of stages.
#[derive(Debug, Clone)]
pub struct Planner {
    order: Order,
    limits: Vec<Limits>,
    costs: Vec<Cost>,
}

impl Planner {
    /// A planner for stages with these limits.
    pub fn new(order: Order, limits: Vec<Limits>) -> Self {
        Self { order, costs: vec![Cost::default(); limits.len()], limits }
    }

    /// Adds the measurement of a stage's step.
    pub fn measured(&mut self, stage: usize, rows: usize, took: Duration) {
        self.costs[stage].measured(rows, took);
    }

    /// The measured cost of a stage's steps.
    pub fn cost(&self, stage: usize) -> Cost {
        self.costs[stage]
    }

    /// The time of a tick that begins at `now`; `wants` holds the wants of every stage.
    pub fn budget(&self, now: Instant, wants: &[Vec<Want>]) -> Budget {
        let all = || wants.iter().flatten();
        let due = all().filter_map(|want| match want.urgency {
            Urgency::Playing { runs_out } => Some(runs_out.saturating_duration_since(now)),
            _ => None,
        });
        let left = match (self.order, due.min()) {
            (Order::Arrival, _) | (_, None) => f64::INFINITY,
            (Order::Deadline, Some(slack)) => slack.saturating_sub(MARGIN / 2).max(SHORTEST_TICK).as_secs_f64(),
        };
        Budget { left, pressing: all().any(|want| class(want, now) < 2) }
    }

    /// The shares of `stage` in this tick, from its own wants and those of the stages after it.
    pub fn plan(
        &self,
        stage: usize,
        now: Instant,
        wants: &[Want],
        later: &[Vec<Want>],
        budget: &mut Budget,
    ) -> Vec<Share> {
        let Limits { batch, chunk } = self.limits[stage];
        let mut wants = wants.to_vec();
        if self.order == Order::Arrival {
            wants.sort_by_key(|want| (want.arrived, want.slot));
            let mut left = batch;
            let share = |want: Want| {
                let rows = want.rows.min(chunk).min(left);
                left -= rows;
                Share { slot: want.slot, rows }
            };
            return wants.into_iter().map(share).filter(|share| share.rows > 0).collect();
        }
        wants.sort_by_key(|want| (class(want, now), deadline(want), want.slot));

        // Urgent work of later stages must still fit into the tick.
        let urgent_later: f64 = later
            .iter()
            .enumerate()
            .map(|(i, wants)| {
                let rows: usize = wants.iter().filter(|want| class(want, now) == 0).map(|want| want.rows.min(1)).sum();
                let cost = self.costs[stage + 1 + i];
                if rows > 0 { cost.fixed() + rows as f64 * cost.row() } else { 0.0 }
            })
            .sum();
        let (fixed, row) = (self.costs[stage].fixed(), self.costs[stage].row());
        let mut left = budget.left - urgent_later - fixed;
        // While something presses, the rest rides along for at most the fixed cost of the step.
        let mut ride = if budget.pressing { fixed } else { f64::INFINITY };
        let mut rows_left = batch;
        let mut shares: Vec<Share> = Vec::new();
        let mut longest = true;
        for want in wants {
            let first = shares.is_empty();
            let class = class(&want, now);
            let affordable = |seconds: f64| if row > 0.0 { (seconds.max(0.0) / row) as usize } else { usize::MAX };
            let most = match class {
                // A due slot always runs, so every tick makes progress.
                0 => affordable(left).max(1),
                // The slot that waits longest always gets a chunk.
                1 => affordable(left).max(if std::mem::take(&mut longest) { LEAST_CHUNK } else { 0 }),
                _ => affordable(left.min(ride)).max(if first && !budget.pressing { LEAST_CHUNK } else { 0 }),
            };
            let rows = want.rows.min(chunk).min(rows_left).min(most);
            // A shorter chunk of a prompt costs more in steps than it gains.
            if rows == 0 || (class > 0 && rows < want.rows.min(chunk).min(LEAST_CHUNK)) {
                continue;
            }
            rows_left -= rows;
            left -= rows as f64 * row;
            if class == 2 {
                ride -= rows as f64 * row;
            }
            shares.push(Share { slot: want.slot, rows });
        }
        if !shares.is_empty() {
            let rows: usize = shares.iter().map(|share| share.rows).sum();
            budget.left -= fixed + rows as f64 * row;
        }
        shares
    }
}

/// Priority: 0 about to underrun, 1 waits for its first packet, 2 the rest.
fn class(want: &Want, now: Instant) -> u8 {
    match want.urgency {
        Urgency::Playing { runs_out } if runs_out.saturating_duration_since(now) < MARGIN => 0,
        Urgency::First { .. } => 1,
        // Overdue silent prefill counts as a first packet, so that it does not starve.
        Urgency::Silent { since } if now >= since + SILENT => 1,
        _ => 2,
    }
}

fn deadline(want: &Want) -> Instant {
    match want.urgency {
        Urgency::Playing { runs_out } => runs_out,
        Urgency::First { since } => since,
        Urgency::Silent { since } => since + SILENT,
    }
}
