//! Cost model of steps: seconds by number of rows, measured while the engine runs, separately for each kind of row.
//!
//! A linear model in rows does not fit a step: products work in tiles, and a decode row runs the head and the code
//! predictor, which a prompt row does not. So each kind keeps the last steps of each size. An estimate is the median of
//! a size, which a rare slow step does not move. Estimates are monotone in rows, and never zero.

use crate::stage::RowKind;

/// Largest number of rows of each size. Tiles of a product end at these numbers.
const SIZES: [usize; 18] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, usize::MAX];
/// Number of measurements kept for each size.
const KEPT: usize = 5;
/// Least cost of a step and of each row, in seconds, because a coarse clock may measure 0.
const LEAST_STEP: f64 = 10e-6;
const LEAST_ROW: f64 = 0.1e-6;

/// Numbers of rows of one step, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepRows([usize; RowKind::ALL.len()]);

impl StepRows {
    /// A step of `rows` rows of one kind.
    pub fn of(kind: RowKind, rows: usize) -> Self {
        Self::default().and(kind, rows)
    }

    /// Returns these rows plus `rows` of one kind.
    #[must_use]
    pub fn and(mut self, kind: RowKind, rows: usize) -> Self {
        self.0[kind as usize] += rows;
        self
    }

    /// Number of rows of one kind.
    pub fn of_kind(&self, kind: RowKind) -> usize {
        self.0[kind as usize]
    }

    /// Number of rows of all kinds.
    pub fn total(&self) -> usize {
        self.0.iter().sum()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&rows| rows == 0)
    }
}

/// Last steps of one size.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    /// Rows and seconds of the steps; the first `steps.min(KEPT)` are set.
    last: [(f64, f64); KEPT],
    /// Number of steps so far.
    steps: usize,
}

impl Size {
    fn add(&mut self, rows: usize, seconds: f64) {
        self.last[self.steps % KEPT] = (rows as f64, seconds);
        self.steps += 1;
    }

    /// Mean rows and median seconds; `None` before the first step.
    fn point(&self) -> Option<(f64, f64)> {
        let kept = self.steps.min(KEPT);
        let mut seconds = self.last.map(|(_, seconds)| seconds);
        seconds[..kept].sort_by(f64::total_cmp);
        // The lower middle of an even number: the first step may be slow, because caches are cold.
        let median = seconds[kept.checked_sub(1)? / 2];
        Some((self.last[..kept].iter().map(|(rows, _)| rows).sum::<f64>() / kept as f64, median))
    }
}

/// Cost of the rows of one kind in one stage.
#[derive(Debug, Clone, Default)]
struct KindCost {
    sizes: [Size; SIZES.len()],
    /// Rows and seconds of the measured sizes, ascending in both.
    points: Vec<(f64, f64)>,
}

impl KindCost {
    fn add(&mut self, rows: usize, seconds: f64) {
        let size = SIZES.partition_point(|&most| most < rows);
        self.sizes[size].add(rows, seconds);
        self.points = monotone(self.sizes.iter().filter_map(Size::point));
    }

    /// Seconds of a step of `rows` rows; `None` before the first measurement.
    fn seconds(&self, rows: usize) -> Option<f64> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let at = rows as f64;
        let above = self.points.partition_point(|point| point.0 < at);
        let seconds = match (above.checked_sub(1).map(|below| self.points[below]), self.points.get(above)) {
            // A step costs at most what a larger one cost.
            (None, _) => first.1,
            (Some(below), Some(above)) => below.1 + (above.1 - below.1) * (at - below.0) / (above.0 - below.0),
            // Beyond the measured sizes each row costs its part of the largest step, fixed cost included.
            (Some(_), None) => last.1 * at / last.0,
        };
        Some(seconds.max(LEAST_STEP + LEAST_ROW * at))
    }
}

/// Makes seconds monotone in rows: neighbours that fall get their mean (isotonic regression).
fn monotone(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    // Groups of neighbours: sum of seconds, and number.
    let (mut rows, mut groups): (Vec<f64>, Vec<(f64, usize)>) = (Vec::new(), Vec::new());
    for (at, seconds) in points {
        rows.push(at);
        let mut group = (seconds, 1);
        while let Some(&(sum, n)) = groups.last()
            && sum / n as f64 > group.0 / group.1 as f64
        {
            group = (group.0 + sum, group.1 + n);
            groups.pop();
        }
        groups.push(group);
    }
    let seconds = groups.into_iter().flat_map(|(sum, n)| std::iter::repeat_n(sum / n as f64, n));
    rows.into_iter().zip(seconds).collect()
}

/// Cost model of a stage's steps.
#[derive(Debug, Clone, Default)]
pub struct StageCost {
    kinds: [KindCost; RowKind::ALL.len()],
}

impl StageCost {
    /// Adds the measurement of a step.
    ///
    /// A step of several kinds is divided in proportion to the cost of each alone. A kind without measurements gets the
    /// rest.
    pub fn record(&mut self, rows: StepRows, seconds: f64) {
        let parts = rows.0.iter().zip(&self.kinds).map(|(&n, kind)| if n == 0 { Some(0.0) } else { kind.seconds(n) });
        let parts: Vec<Option<f64>> = parts.collect();
        let known: f64 = parts.iter().flatten().sum();
        let unknown: usize = parts.iter().zip(rows.0).filter(|(part, _)| part.is_none()).map(|(_, n)| n).sum();
        let rest = (seconds - known).max(0.0);
        for ((kind, part), n) in self.kinds.iter_mut().zip(parts).zip(rows.0) {
            match part {
                _ if n == 0 => {}
                Some(_) if unknown > 0 => {}
                Some(part) => kind.add(n, seconds * part / known),
                None => kind.add(n, rest * n as f64 / unknown as f64),
            }
        }
    }

    /// Kind of row that the stage most often gives output with.
    pub fn usual_output(&self) -> RowKind {
        let steps = |kind: &RowKind| self.kinds[*kind as usize].sizes.iter().map(|size| size.steps).sum::<usize>();
        let kinds = RowKind::ALL.into_iter().filter(|kind| *kind != RowKind::Prefill);
        kinds.max_by_key(steps).unwrap_or(RowKind::Decode)
    }

    /// Seconds of a step; `None` if a kind of its rows has no measurement.
    pub fn seconds(&self, rows: StepRows) -> Option<f64> {
        rows.0.iter().zip(&self.kinds).filter(|(n, _)| **n > 0).map(|(&n, kind)| kind.seconds(n)).sum()
    }

    /// Seconds of a step, with 0 for kinds without measurements.
    pub fn known_seconds(&self, rows: StepRows) -> f64 {
        rows.0.iter().zip(&self.kinds).filter(|(n, _)| **n > 0).filter_map(|(&n, kind)| kind.seconds(n)).sum()
    }

    /// Number of rows of a kind, at most `most`, that fit into `seconds` in addition to `rows`. Without a measurement
    /// of the kind: the least chunk, or 0 without time.
    pub fn affordable(&self, rows: StepRows, kind: RowKind, most: usize, seconds: f64) -> usize {
        if seconds == f64::INFINITY {
            return most;
        }
        let before = self.known_seconds(rows);
        let fits = |n: usize| self.seconds(rows.and(kind, n)).is_some_and(|after| after - before <= seconds);
        if self.kinds[kind as usize].points.is_empty() {
            return if seconds > 0.0 { most.min(kind.least_chunk()) } else { 0 };
        }
        if fits(most) {
            return most;
        }
        let (mut fit, mut over) = (0, most);
        while over - fit > 1 {
            let middle = fit + (over - fit) / 2;
            *(if fits(middle) { &mut fit } else { &mut over }) = middle;
        }
        fit
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::RowKind::{Decode, Prefill};
    use super::*;

    fn prefill(rows: usize) -> StepRows {
        StepRows::of(Prefill, rows)
    }

    #[test]
    fn kinds_keep_costs_apart() {
        let mut cost = StageCost::default();
        for rows in [1, 4, 16, 64] {
            cost.record(prefill(rows), 0.001 + 0.000_1 * rows as f64);
            cost.record(StepRows::of(Decode, rows), 0.004 + 0.001 * rows as f64);
        }
        let (prefilled, decoded) = (cost.seconds(prefill(16)), cost.seconds(StepRows::of(Decode, 16)));
        assert!((prefilled.unwrap() - 0.002_6).abs() < 1e-9 && (decoded.unwrap() - 0.020).abs() < 1e-9);
    }

    #[test]
    fn a_slow_step_leaves_the_estimate() {
        let mut cost = StageCost::default();
        for _ in 0..3 {
            cost.record(prefill(100), 0.01);
        }
        cost.record(prefill(100), 3.0);
        assert_eq!(cost.seconds(prefill(100)), Some(0.01));
        // Steps that stay slower are believed soon.
        (0..3).for_each(|_| cost.record(prefill(100), 0.02));
        assert_eq!(cost.seconds(prefill(100)), Some(0.02));
    }

    #[test]
    fn unmeasured_rows_cost_their_part() {
        let mut cost = StageCost::default();
        assert_eq!(cost.seconds(prefill(1)), None);
        assert_eq!(cost.affordable(StepRows::default(), Prefill, 200, 1.0), Prefill.least_chunk());
        assert_eq!(cost.affordable(StepRows::default(), Prefill, 200, 0.0), 0);
        cost.record(prefill(10), 0.01);
        assert_eq!(cost.seconds(prefill(3)), Some(0.01), "at most the cost of a larger step");
        assert_eq!(cost.seconds(prefill(20)), Some(0.02), "no discount for rows that were never seen");
    }

    #[test]
    fn a_mixed_step_is_divided_by_kind() {
        let mut cost = StageCost::default();
        cost.record(prefill(10), 0.01);
        let mixed = prefill(10).and(Decode, 2);
        cost.record(mixed, 0.04);
        let decoded = cost.seconds(StepRows::of(Decode, 2)).unwrap();
        assert!((decoded - 0.03).abs() < 1e-9, "the rest of the step: {decoded}");
        (0..9).for_each(|_| cost.record(mixed, 0.08));
        let (decoded, both) = (cost.seconds(StepRows::of(Decode, 2)).unwrap(), cost.seconds(mixed).unwrap());
        assert!((decoded - 0.06).abs() < 1e-9 && (both - 0.08).abs() < 1e-9, "in proportion: {decoded} of {both}");
    }

    proptest! {
        #[test]
        fn costs_rise_and_are_never_free(
            steps in prop::collection::vec((1usize..600, 0u32..50_000), 1..60), rows in 1usize..1000, more in 1usize..600,
        ) {
            let mut cost = StageCost::default();
            for (rows, micros) in steps {
                cost.record(prefill(rows), f64::from(micros) * 1e-6);
            }
            let (few, many) = (cost.seconds(prefill(rows)).unwrap(), cost.seconds(prefill(rows + more)).unwrap());
            prop_assert!(few > 0.0 && many >= few, "{rows} rows: {few}, {more} more: {many}");
            let rest = cost.affordable(StepRows::default(), Prefill, 1000, few);
            prop_assert!(rest >= rows.min(1000) && cost.seconds(prefill(rest)).unwrap() <= few * 1.000_001);
        }
    }
}
