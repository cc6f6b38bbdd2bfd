//! Planner of ticks: chooses the slots that a stage advances in a tick, and the rows of each. It has no clock and
//! depends on no model.
//!
//! A session's deadline is the moment at which its caller runs out of audio. Sessions about to underrun come first,
//! then those that wait for their first packet, then the rest by earliest deadline. Of the prompts that somebody waits
//! for, the one that takes least is prefilled first, and the one that waits longest gets a small chunk in every tick; so a
//! short prompt does not wait for long ones, and no prompt starves. With several slots at work the prompts of a tick take
//! a short time, because a caller may come at any moment. While a caller is near its first packet, the long prompts of
//! others together get a share of the time that passes, and no more: a first packet takes several ticks, and each would
//! be longer by a chunk. Work that nobody waits for yet, such as audio that came at once, gets a share of its own, so that
//! it goes on while others are served. Before that, tenants take turns: the prompts and windows of the one that was served fewest rows
//! come first, so many sessions of one tenant take no turn of another. While a caller is near its first packet, tenants that
//! ask for more than the caller's wait in some ticks.
//!
//! A tick gets as much time as the most urgent deadline leaves, by the measured costs of steps. Every stage leaves time
//! for urgent work in the stages after it. So a long prompt is prefilled in chunks that fit into the time before the next
//! frame is due. Part of the time is a reserve, because a step can take longer than the steps before it. With no time
//! left, a waiting prompt still gets a small chunk now and then, so that it does not starve. Windows of input audio come in units
//! of bounded work, and a tick has few of them, whatever its budget.

pub mod cost;
mod fair_shares;
mod longest;
mod ready_rows;
mod short_ticks;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use self::cost::{StageCost, StepRows};
use self::fair_shares::FairShares;
use self::longest::{longest_of_tenant, longest_prompts};
use self::short_ticks::ShortTicks;
use crate::stage::RowKind;

pub use self::ready_rows::{ReadyRows, ScheduledRows, StepLimits, Urgency};

/// Order in which slots are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchedulingOrder {
    /// Earliest deadline first.
    #[default]
    Deadline,
    /// First come, first served, without a time budget; for comparison.
    Arrival,
}

/// Least time of a tick, however urgent its work: in shorter ticks the fixed cost of steps would prevail.
const SHORTEST_TICK: Duration = Duration::from_millis(5);
/// Reserve before a deadline, because a step may take longer than the steps before it: the larger of this and a quarter
/// of the time.
const SPARE: Duration = Duration::from_millis(40);
/// Least interval of chunks without time for them: while a session is about to underrun, a waiting prompt gets one this
/// often, so that it does not starve.
const FORCED_CHUNK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time of a bounded stage's windows in a tick, if they are more than one: a caller may come at any moment.
const WINDOWS: Duration = Duration::from_millis(40);
/// Share of the urgent rows' cost that other rows may add while a session waits for its first packet or is about to
/// underrun.
const PIGGYBACK_SHARE: f64 = 0.25;

/// Time of a prompt up to which its caller is near the first packet; longer prompts are long ones.
const SHORT_PROMPT: Duration = Duration::from_millis(40);
/// Share of the passing time that long prompts get together in a stage, while another caller is near its first packet.
const LONG_PROMPT_SHARE: f64 = 0.1;
/// Share of the passing time that background work gets together in a stage, while a session waits for its first packet
/// or is about to underrun. All other rows become urgent with time.
const BACKGROUND_SHARE: f64 = 0.1;
/// Longest time between two ticks that counts for these shares; longer ones are pauses.
const LONGEST_TICK: Duration = Duration::from_millis(50);

/// Time left of a tick.
#[derive(Debug, Clone, PartialEq)]
pub struct TickBudget {
    /// Seconds; infinite while nothing is due.
    left: f64,
    /// True if a session is about to underrun.
    due: bool,
    /// True if a session waits for its first packet or is about to underrun.
    pressing: bool,
    /// True if several slots have work.
    shared: bool,
    /// Slots whose callers are near their first packets, with their tenants.
    near: BTreeMap<usize, u64>,
    /// Tenants whose rows wait for the next tick.
    waiting: BTreeSet<u64>,
}

impl TickBudget {
    /// True if a session waits for its first packet or overdue text, or is about to underrun.
    pub fn is_pressing(&self) -> bool {
        self.pressing
    }

    /// True while a caller of another tenant is near its first packet.
    fn is_beside_near(&self, tenant: u64) -> bool {
        self.near.values().any(|near| *near != tenant)
    }

    /// Budget of each of `steps` steps that run at once on `threads` threads: with more steps than threads, some begin when
    /// others have ended, and the tick takes the sum of them.
    #[must_use]
    pub fn of_parallel_steps(self, steps: usize, threads: usize) -> Self {
        let rounds = steps.div_ceil(threads.max(1)).max(1);
        Self { left: self.left / rounds as f64, ..self }
    }
}

/// Plans the ticks of a chain of stages.
#[derive(Debug, Clone)]
pub struct Planner {
    order: SchedulingOrder,
    limits: Vec<StepLimits>,
    costs: Vec<StageCost>,
    /// Time of each stage's last chunk without time for it.
    forced: Vec<Option<Instant>>,
    /// Rows that each stage has served to tenants.
    shares: Vec<FairShares>,
    /// Seconds that each stage may spend on long prompts while callers are near their first packets.
    credits: Vec<f64>,
    /// The same for background work, while sessions wait for their first packets or are about to underrun.
    background_credits: Vec<f64>,
    /// Time for ticks of some tenants alone.
    short_ticks: ShortTicks,
    /// Stage whose windows take a short time in each tick.
    bounded: Option<usize>,
    /// True while several tenants have sessions.
    has_tenants: bool,
    /// Beginning of the last tick.
    last_tick: Option<Instant>,
}

impl Planner {
    /// Creates a planner for stages with these limits.
    pub fn new(order: SchedulingOrder, limits: Vec<StepLimits>) -> Self {
        let stages = limits.len();
        let (costs, shares) = (vec![StageCost::default(); stages], vec![FairShares::default(); stages]);
        let (forced, credits) = (vec![None; stages], vec![0.0; stages]);
        let background_credits = credits.clone();
        Self {
            order,
            costs,
            forced,
            shares,
            limits,
            credits,
            background_credits,
            short_ticks: ShortTicks::default(),
            bounded: None,
            has_tenants: false,
            last_tick: None,
        }
    }

    /// Bounds the time of a stage's windows in a tick: more than one only within [`WINDOWS`]. A window may be a part of what
    /// is encoded, and others wait for no more than this.
    #[must_use]
    pub fn with_bounded_windows(self, stage: usize) -> Self {
        Self { bounded: Some(stage), ..self }
    }

    /// Tells if several tenants have sessions: then the rows of each take a bounded part of a tick.
    pub fn set_tenants(&mut self, several: bool) {
        self.has_tenants = several;
    }

    /// Adds the measurement of a stage's step.
    pub fn measured(&mut self, stage: usize, rows: StepRows, took: Duration) {
        self.costs[stage].record(rows, took.as_secs_f64());
    }

    /// Returns the budget of a tick that begins at `now`; `wants` holds the wants of every stage.
    pub fn budget(&mut self, now: Instant, wants: &[Vec<ReadyRows>]) -> TickBudget {
        let near = self.near(now, wants);
        let presses = |want: &ReadyRows| want.class(now) < 2;
        self.earn_credits(now, !near.is_empty(), wants.iter().flatten().any(presses));
        let waiting = match self.has_tenants && self.order == SchedulingOrder::Deadline {
            true => self.short_ticks.waiting(&near.values().copied().collect(), &self.costs, &self.limits, wants),
            false => BTreeSet::new(),
        };
        let kept = || wants.iter().flatten().filter(|want| !waiting.contains(&want.tenant));
        let due = kept().filter_map(|want| match want.urgency {
            Urgency::Playing { runs_out } => Some(runs_out.saturating_duration_since(now)),
            _ => None,
        });
        let left = match (self.order, due.min()) {
            (SchedulingOrder::Arrival, _) | (_, None) => f64::INFINITY,
            (SchedulingOrder::Deadline, Some(slack)) => {
                slack.saturating_sub(SPARE.max(slack / 4)).max(SHORTEST_TICK).as_secs_f64()
            }
        };
        let (due, pressing) = (kept().any(|want| want.class(now) == 0), kept().any(presses));
        let first = kept().next().map(|want| want.slot);
        let shared = wants.iter().flatten().any(|want| Some(want.slot) != first);
        TickBudget { left, due, pressing, shared, near, waiting }
    }

    /// Returns the slots whose callers are near their first packets, with their tenants.
    fn near(&self, now: Instant, wants: &[Vec<ReadyRows>]) -> BTreeMap<usize, u64> {
        let stages = self.costs.iter().zip(wants);
        let near = stages.flat_map(|(cost, wants)| {
            let waits = |want: &&ReadyRows| matches!(want.urgency, Urgency::First { .. });
            wants.iter().filter(waits).filter(move |want| want.length(now, cost) <= SHORT_PROMPT)
        });
        near.map(|want| (want.slot, want.tenant)).collect()
    }

    /// Adds the shares of the time since the last tick to the credits of long prompts and of background work. Without
    /// callers that they give way to they need none.
    fn earn_credits(&mut self, now: Instant, near: bool, pressing: bool) {
        let last = self.last_tick.replace(now).unwrap_or(now);
        let passed = now.saturating_duration_since(last).min(LONGEST_TICK).as_secs_f64();
        self.short_ticks.passed(passed);
        for (credit, cost) in self.credits.iter_mut().zip(&self.costs) {
            let most = longest_prompts(cost);
            *credit = if near { (*credit + passed * LONG_PROMPT_SHARE).min(most) } else { 0.0 };
        }
        for credit in &mut self.background_credits {
            let most = LONGEST_TICK.as_secs_f64();
            *credit = if pressing { (*credit + passed * BACKGROUND_SHARE).min(most) } else { 0.0 };
        }
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
        let is_kept = |want: &&ReadyRows| !budget.waiting.contains(&want.tenant);
        let mut wants: Vec<ReadyRows> = wants.iter().filter(is_kept).copied().collect();
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
        let taking_turns = wants.iter().filter(|want| want.takes_turns(now)).map(|want| want.tenant).collect();
        let leads: BTreeMap<u64, u64> = self.shares[stage].leads(taking_turns);
        let lead = |want: &ReadyRows| match want.takes_turns(now) {
            true => leads.get(&want.tenant).copied().unwrap_or_default(),
            false => 0,
        };
        let length = |want: &ReadyRows| want.length(now, &self.costs[stage]);
        wants.sort_by_cached_key(|want| (want.class(now), lead(want), length(want), want.deadline(), want.slot));

        // Due slots pass through the later stages in this tick, so their rows there must still fit.
        let is_due = |want: &&ReadyRows| want.class(now) == 0;
        let mut due: BTreeSet<usize> = wants.iter().filter(is_due).map(|want| want.slot).collect();
        let mut urgent_later = 0.0;
        for (cost, wants) in self.costs[stage + 1..].iter().zip(later) {
            let ready = wants.iter().filter(is_kept).filter(is_due);
            let rows = ready.clone().fold(StepRows::default(), |rows, want| rows.and(want.kind, 1));
            due.extend(ready.clone().map(|want| want.slot));
            urgent_later += cost.known_seconds(rows.and(cost.usual_output(), due.len() - ready.count()));
        }
        let cost = &self.costs[stage];
        let available = budget.left - urgent_later;
        // Callers who wait for a first packet wait in the later stages too: prompts leave time for them.
        let waiting_later: f64 = self.costs[stage + 1..]
            .iter()
            .zip(later)
            .map(|(cost, wants)| {
                let waiting = wants.iter().filter(is_kept).filter(|want| want.class(now) == 1);
                cost.known_seconds(waiting.fold(StepRows::default(), |rows, want| rows.and(want.kind, want.rows)))
            })
            .sum();
        let for_prompts = available - waiting_later.min(available / 2.0);
        let longest_prompts = if budget.shared { longest_prompts(cost) } else { f64::INFINITY };
        // All planned rows, and the planned rows of priorities 0 and 1.
        let (mut planned, mut pressing) = (StepRows::default(), StepRows::default());
        let mut rows_left = batch;
        let mut shares: Vec<ScheduledRows> = Vec::new();
        // Seconds of the rows that are due and of those that are not, by tenant.
        let mut taken: BTreeMap<(u64, bool), f64> = BTreeMap::new();
        let may_force = match self.forced[stage] {
            Some(at) if budget.due => now >= at + FORCED_CHUNK_INTERVAL,
            _ => true,
        };
        // Long prompts, and those that nobody waits for yet, give way to other callers near their first packets, unless those
        // are of a tenant that is ahead.
        let gives_way = |want: &ReadyRows| {
            let ahead = |tenant: &u64| leads.get(tenant).copied().unwrap_or_default() > lead(want);
            want.kind == RowKind::Prefill
                && want.class(now) == 1
                && (length(want) > SHORT_PROMPT || matches!(want.urgency, Urgency::Silent { .. }))
                && budget.near.iter().any(|(slot, tenant)| *slot != want.slot && !ahead(tenant))
        };
        // The slot that waits longest for its first packet, of the tenant whose turn it is, and the rows that are kept for
        // it.
        let mut credit = self.credits[stage];
        let has_credit = credit >= cost.known_seconds(StepRows::of(RowKind::Prefill, RowKind::Prefill.least_chunk()));
        let may_go = |want: &ReadyRows| has_credit || !gives_way(want);
        let waiting = wants.iter().filter(|want| may_force && want.class(now) == 1 && may_go(want));
        let oldest = waiting.min_by_key(|want| (lead(want), want.deadline(), want.slot)).copied();
        let mut kept = oldest.map_or(0, |want| want.kind.least_chunk().min(want.rows).min(batch));
        for want in wants {
            let class = want.class(now);
            let is_oldest = oldest.is_some_and(|oldest| oldest.slot == want.slot);
            kept = if is_oldest { 0 } else { kept };
            let free = if class == 0 { rows_left } else { rows_left.saturating_sub(kept) };
            let whole = want.rows.min(chunk).min(free);
            // A batch may be smaller than the least chunk.
            let least = want.kind.least_chunk().min(whole);
            let spent = cost.known_seconds(planned);
            let left = |seconds: f64| match want.kind {
                RowKind::Prefill => {
                    let prompts = cost.known_seconds(StepRows::of(want.kind, planned.of_kind(want.kind)));
                    (seconds.min(for_prompts) - spent).min(longest_prompts - prompts)
                }
                RowKind::Window if self.bounded == Some(stage) => (seconds - spent).min(WINDOWS.as_secs_f64() - spent),
                RowKind::Decode | RowKind::Window | RowKind::SolverStep => seconds - spent,
            };
            let tenant = taken.entry((want.tenant, class == 0)).or_default();
            let tenant_left = match self.has_tenants {
                true => longest_of_tenant(cost, want.kind, class, budget.is_beside_near(want.tenant)) - *tenant,
                false => f64::INFINITY,
            };
            let affordable = |seconds: f64| cost.affordable(planned, want.kind, whole, left(seconds).min(tenant_left));
            let most = match class {
                // A due slot runs, so every tick makes progress, unless its tenant has taken its part.
                0 if *tenant > 0.0 && cost.affordable(planned, want.kind, least, tenant_left) < least => 0,
                0 => affordable(available).max(least),
                1 => {
                    let most = if gives_way(&want) { affordable(spent + credit) } else { affordable(available) };
                    // The slot that waits longest gets a chunk even so.
                    let force = is_oldest && most < least;
                    if force {
                        self.forced[stage] = Some(now);
                    }
                    if force { least } else { most }
                }
                _ if budget.pressing => {
                    let beside = affordable(available.min(cost.known_seconds(pressing) * (1.0 + PIGGYBACK_SHARE)));
                    let own = cost.known_seconds(planned.and(want.kind, least)) - spent;
                    // What adds too much to the urgent rows goes on with its own share.
                    if class < 3
                        || beside >= least
                        || own > self.background_credits[stage]
                        || affordable(available) < least
                    {
                        beside
                    } else {
                        self.background_credits[stage] -= own;
                        least
                    }
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
            let added = cost.known_seconds(planned) - spent;
            *tenant += added;
            if gives_way(&want) {
                credit -= added;
            }
            if class < 2 {
                pressing = planned;
            }
            if want.takes_turns(now) {
                self.shares[stage].serve(want.tenant, rows);
            }
            shares.push(ScheduledRows { slot: want.slot, kind: want.kind, rows });
        }
        budget.left -= cost.known_seconds(planned);
        self.credits[stage] = credit;
        shares
    }
}
