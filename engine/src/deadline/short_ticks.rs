//! Ticks without the tenants that ask for most. A first packet takes several ticks; while a caller is near it, the rows of
//! tenants that ask for more than the caller's tenant wait for some of these ticks, which are short then. They wait in
//! turn: ticks without them take no more time than the ticks with them, and little at once.

use std::collections::{BTreeMap, BTreeSet};

use super::cost::{StageCost, StepRows};
use super::ready_rows::{ReadyRows, StepLimits};

/// Longest time of such ticks one after the other by their expected cost, in seconds: frames that are due wait for it too.
const LONGEST: f64 = 0.02;
/// Part of what all rows cost up to which the rows of the others are computed alone. Where few rows cost nearly as much
/// as many, as in large models, all are computed at once.
const WORTH: f64 = 0.5;

/// Time for ticks without the tenants that ask for most.
#[derive(Debug, Clone)]
pub(super) struct ShortTicks {
    /// Seconds left; negative where a tick took more.
    left: f64,
    /// True if the last tick was such a one.
    last: bool,
}

impl Default for ShortTicks {
    fn default() -> Self {
        Self { left: LONGEST, last: false }
    }
}

impl ShortTicks {
    /// Counts the time from the last tick to this one.
    pub fn passed(&mut self, seconds: f64) {
        self.left = if self.last { self.left - seconds } else { (self.left + seconds).min(LONGEST) };
        self.last = false;
    }

    /// Returns the tenants that wait for the next tick. `near` holds the tenants with callers near their first packets.
    pub fn waiting(
        &mut self,
        near: &BTreeSet<u64>,
        costs: &[StageCost],
        limits: &[StepLimits],
        wants: &[Vec<ReadyRows>],
    ) -> BTreeSet<u64> {
        if near.is_empty() {
            return BTreeSet::new();
        }
        let stages = || costs.iter().zip(limits).zip(wants);
        let and =
            |rows: StepRows, want: &ReadyRows, limits: &StepLimits| rows.and(want.kind, want.rows.min(limits.chunk));
        // Seconds that the rows of each tenant take alone.
        let mut asked: BTreeMap<u64, f64> = BTreeMap::new();
        for ((cost, limits), wants) in stages() {
            let mut rows: BTreeMap<u64, StepRows> = BTreeMap::new();
            for want in wants {
                let of_tenant = rows.entry(want.tenant).or_default();
                *of_tenant = and(*of_tenant, want, limits);
            }
            rows.into_iter().for_each(|(tenant, rows)| *asked.entry(tenant).or_default() += cost.known_seconds(rows));
        }
        let least = near.iter().filter_map(|tenant| asked.get(tenant)).copied().fold(f64::INFINITY, f64::min);
        let waiting: BTreeSet<u64> =
            asked.into_iter().filter(|(_, seconds)| *seconds > least).map(|(tenant, _)| tenant).collect();
        let seconds = |includes: &dyn Fn(&ReadyRows) -> bool| -> f64 {
            let each = stages().map(|((cost, limits), wants)| {
                let wants = wants.iter().filter(|want| includes(want));
                cost.known_seconds(wants.fold(StepRows::default(), |rows, want| and(rows, want, limits)))
            });
            each.sum()
        };
        let without = seconds(&|want| !waiting.contains(&want.tenant));
        if waiting.is_empty() || without > self.left || without > WORTH * seconds(&|_| true) {
            return BTreeSet::new();
        }
        self.last = true;
        waiting
    }
}
