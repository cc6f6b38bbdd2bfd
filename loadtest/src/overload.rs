//! More callers than a server carries, all within some seconds: those that it takes must be answered as well as ever, and
//! the others be refused.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use repartee_report::ReportRow;

use crate::measure::log::ScenarioLog;
use crate::report::percentile;
use crate::run::LoadRunner;
use crate::scenario::Scenario;
use crate::scenario::arrivals::Arrivals;

/// Refusal of a call by a server that is full.
const REFUSED: &str = "the call was refused: 503 session_limit_reached";

/// Callers, and the time in which they come.
#[derive(Debug, Clone, Args)]
pub struct OverloadArguments {
    /// Callers at once, one run after the other
    #[arg(long, num_args = 1.., default_values_t = [80, 160])]
    pub callers: Vec<usize>,
    /// Time in which they call, in seconds
    #[arg(long, default_value_t = 5.0)]
    pub within_s: f64,
    /// Duration of each run, in seconds
    #[arg(long, default_value_t = 25.0)]
    pub run_s: f64,
}

impl OverloadArguments {
    /// Scenario with these callers; none of them calls again.
    ///
    /// # Errors
    /// A number is out of bounds.
    pub fn scenario(&self, callers: usize) -> Result<Scenario> {
        let mut scenario = Scenario::for_command("knee")?;
        scenario.name = format!("overload_{callers}");
        scenario.duration_s = self.run_s;
        scenario.arrivals = Arrivals::Soak { callers, within_s: self.within_s, call_again: false };
        scenario.check()?;
        Ok(scenario)
    }
}

/// Callers of a run that were refused, and other errors.
fn refusals(log: &ScenarioLog) -> (u64, u64) {
    let refused = log.errors.get(REFUSED).copied().unwrap_or_default();
    (refused, log.error_count() - refused)
}

/// Rows of a run, and whether nothing but refusals went wrong.
fn rows(callers: usize, log: &ScenarioLog) -> (Vec<ReportRow>, bool) {
    let (refused, others) = refusals(log);
    let sounds = log.sorted(|turn| Some(turn.to_sound));
    let quantile = |share| percentile(&sounds, share).map_or(Duration::ZERO, |time| time).as_secs_f64() * 1e3;
    let note = format!(
        "{callers} callers within seconds, {refused} refused; {} answers, p50 {:.0} ms; other errors: {others}",
        log.turns.len(),
        quantile(50)
    );
    let row = |measure: &str, value, unit| {
        ReportRow::without_peer(format!("overload_{callers}_{measure}"), value, unit, note.clone())
    };
    let rows = vec![
        row("refused", refused as f64, "calls"),
        row("p95", quantile(95), "ms"),
        row("gaps", 100.0 * log.gap_share(), "%"),
    ];
    (rows, others == 0 && !log.turns.is_empty())
}

/// Runs each number of callers; returns the rows, the runs, and whether nothing but refusals went wrong.
///
/// # Errors
/// A scenario cannot run.
pub async fn measure(
    bench: &LoadRunner,
    arguments: &OverloadArguments,
) -> Result<(Vec<ReportRow>, Vec<(Scenario, ScenarioLog)>, bool)> {
    let (mut all, mut runs, mut good) = (Vec::new(), Vec::new(), true);
    for &callers in &arguments.callers {
        let scenario = arguments.scenario(callers)?;
        let log = bench.run(&scenario).await?;
        let (found, is_good) = rows(callers, &log);
        all.extend(found);
        good &= is_good;
        runs.push((scenario, log));
    }
    Ok((all, runs, good))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_no_errors() {
        let (_, mut log) = crate::report::rows::tests::log();
        log.errors.clear();
        (0..3).for_each(|_| log.error(REFUSED));
        let (found, good) = rows(9, &log);
        assert_eq!((found[0].ours, good), (3.0, true));
        log.error("the call was refused: 401 invalid_api_key");
        let (found, good) = rows(9, &log);
        assert_eq!((found[0].ours, good), (3.0, false));
        log.turns.clear();
        log.errors.clear();
        assert!(!rows(9, &log).1, "no answer");
    }
}
