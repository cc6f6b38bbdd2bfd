//! What runs next: which sessions a stage advances in a tick, and by how many rows. Pure: no clock, no models.
//!
//! A session's deadline is when its caller runs out of sound. The order is: those about to run out, then those who wait for
//! their first sound, then everybody else by deadline. A tick is given as much time as the most urgent deadline leaves,
//! by what steps were measured to cost, and every stage leaves time for what is urgent in the stages after it; so a long
//! prompt is read in chunks that never delay a frame that is due.

use std::time::{Duration, Instant};

/// How soon somebody needs what a stage makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// The caller listens; this is when it has nothing more to hear.
    Playing {
        /// When.
        runs_out: Instant,
    },
    /// The caller waits for the first sound.
    First {
        /// Since when.
        since: Instant,
    },
    /// Nobody waits yet: what a caller has said so far is read while it goes on.
    Silent {
        /// Since when.
        since: Instant,
    },
}

/// One session's wish of one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Who.
    pub lane: usize,
    /// Rows that could be advanced; at least 1.
    pub rows: usize,
    /// How soon.
    pub urgency: Urgency,
    /// Since when its answer has been asked for; what [`Order::Arrival`] goes by.
    pub arrived: Instant,
}

/// What a stage does for one session in a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Who.
    pub lane: usize,
    /// Rows, at most those that were wanted.
    pub rows: usize,
}

/// In which order wishes are granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// By deadline, as this module's description says.
    #[default]
    Deadline,
    /// Who came first, everybody at once; to compare with.
    Arrival,
}

/// What a stage may take in one tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rows of all sessions together.
    pub batch: usize,
    /// Rows of one session.
    pub chunk: usize,
}

/// Sound ahead of the listener below which a session is about to run out.
const MARGIN: Duration = Duration::from_millis(240);
/// What a tick may always take, however urgent something is: below this the fixed cost of steps would eat the machine.
const SHORTEST_TICK: Duration = Duration::from_millis(5);
/// Sound that is read silently is due this long after it came.
const SILENT: Duration = Duration::from_secs(1);
/// How fast measured costs follow, as the weight of the newest step.
const NEWEST: f64 = 0.05;
/// Rows below which cutting a prompt into chunks does not pay.
const LEAST_CHUNK: usize = 16;

/// What a step of a stage takes: a fixed part and one for each row, fitted to the steps so far.
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
    /// Takes a step's measurement in.
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

    /// Seconds for every further row.
    pub fn row(&self) -> f64 {
        let spread = self.rows_rows - self.rows * self.rows;
        let slope = (self.rows_seconds - self.rows * self.seconds) / spread;
        // Steps of one size tell nothing about the slope: then all is put down to rows, which errs towards short ticks.
        let most = self.seconds / self.rows.max(1.0);
        if spread > 1e-6 * self.rows_rows && slope.is_finite() { slope.clamp(0.0, most) } else { most }
    }

    /// Seconds of a step, however many rows it has.
    pub fn fixed(&self) -> f64 {
        (self.seconds - self.row() * self.rows).max(0.0)
    }
}

/// The time that a tick has left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Seconds; infinite while nothing is due.
    left: f64,
    /// Whether somebody waits for a first sound or is about to run out.
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
    /// For stages with these limits.
    pub fn new(order: Order, limits: Vec<Limits>) -> Self {
        Self { order, costs: vec![Cost::default(); limits.len()], limits }
    }

    /// Takes the measurement of one step in.
    pub fn measured(&mut self, stage: usize, rows: usize, took: Duration) {
        self.costs[stage].measured(rows, took);
    }

    /// What a stage's steps were measured to cost.
    pub fn cost(&self, stage: usize) -> Cost {
        self.costs[stage]
    }

    /// The time of a tick that begins at `now`: `wants` has the wishes of every stage.
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

    /// What `stage` does in this tick, given its own wishes and those of the stages after it.
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
            wants.sort_by_key(|want| (want.arrived, want.lane));
            let mut left = batch;
            let share = |want: Want| {
                let rows = want.rows.min(chunk).min(left);
                left -= rows;
                Share { lane: want.lane, rows }
            };
            return wants.into_iter().map(share).filter(|share| share.rows > 0).collect();
        }
        wants.sort_by_key(|want| (class(want, now), deadline(want), want.lane));

        // What is urgent in the stages after this one must still fit into the tick.
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
        // Those who can wait ride along for as much as the step costs anyway, while others press.
        let mut ride = if budget.pressing { fixed } else { f64::INFINITY };
        let mut rows_left = batch;
        let mut shares: Vec<Share> = Vec::new();
        let mut longest = true;
        for want in wants {
            let first = shares.is_empty();
            let class = class(&want, now);
            let affordable = |seconds: f64| if row > 0.0 { (seconds.max(0.0) / row) as usize } else { usize::MAX };
            let most = match class {
                // Nobody is left to wait who cannot, and something always runs.
                0 => affordable(left).max(1),
                // Whoever waits longest gets on, if only by little.
                1 => affordable(left).max(if std::mem::take(&mut longest) { LEAST_CHUNK } else { 0 }),
                _ => affordable(left.min(ride)).max(if first && !budget.pressing { LEAST_CHUNK } else { 0 }),
            };
            let rows = want.rows.min(chunk).min(rows_left).min(most);
            // A sliver of a prompt costs more in steps than it brings.
            if rows == 0 || (class > 0 && rows < want.rows.min(chunk).min(LEAST_CHUNK)) {
                continue;
            }
            rows_left -= rows;
            left -= rows as f64 * row;
            if class == 2 {
                ride -= rows as f64 * row;
            }
            shares.push(Share { lane: want.lane, rows });
        }
        if !shares.is_empty() {
            let rows: usize = shares.iter().map(|share| share.rows).sum();
            budget.left -= fixed + rows as f64 * row;
        }
        shares
    }
}

/// 0 for those about to run out, 1 for those who wait for a first sound, 2 for everybody else.
fn class(want: &Want, now: Instant) -> u8 {
    match want.urgency {
        Urgency::Playing { runs_out } if runs_out.saturating_duration_since(now) < MARGIN => 0,
        Urgency::First { .. } => 1,
        // What nobody asked for yet presses once it is overdue, so that it is not put off for ever.
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
