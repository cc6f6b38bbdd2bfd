//! The knee: the most concurrent callers that the server answers within limits.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use repartee_report::ReportRow;

use crate::measure::log::ScenarioLog;
use crate::report::percentile;
use crate::run::LoadRunner;
use crate::scenario::Scenario;
use crate::scenario::arrivals::Arrivals;

/// Most runs of one search.
const MAX_RUNS: usize = 14;
/// Above this p99 lateness the generator is the limit, not the server.
const GENERATOR_LATE: Duration = Duration::from_millis(20);

/// Limits of a good run, and the range of the search.
#[derive(Debug, Clone, Args)]
pub struct KneeArguments {
    /// Limit of the 95th percentile of end of speech to sound, in ms (exclusive)
    #[arg(long, default_value_t = 500)]
    pub max_ms: u64,
    /// Limit of the share of answers with an audible gap, in percent (exclusive)
    #[arg(long, default_value_t = 1.0)]
    pub max_gaps: f64,
    /// Callers of the first run
    #[arg(long, default_value_t = 8)]
    pub from: usize,
    /// Most callers to try
    #[arg(long, default_value_t = 512)]
    pub most: usize,
    /// Duration of each run, in seconds
    #[arg(long, default_value_t = 25.0)]
    pub run_s: f64,
}

/// Bisection: doubles until a run fails, then halves the interval until it is at most a twelfth.
#[derive(Debug)]
pub struct KneeSearch {
    first: usize,
    most: usize,
    good: usize,
    bad: Option<usize>,
}

impl KneeSearch {
    /// Creates a search from `first` to `most` callers.
    pub fn new(first: usize, most: usize) -> Self {
        Self { first: first.clamp(1, most.max(1)), most: most.max(1), good: 0, bad: None }
    }

    /// Returns the next number of callers to try; `None` at the end of the search.
    pub fn next(&self) -> Option<usize> {
        match self.bad {
            None if self.good == 0 => Some(self.first),
            None => (self.good < self.most).then(|| (self.good * 2).min(self.most)),
            Some(bad) => (bad - self.good > (self.good / 12).max(1)).then(|| self.good.midpoint(bad)),
        }
    }

    /// Records whether a run with `callers` stayed within limits.
    pub fn record(&mut self, callers: usize, within: bool) {
        if within {
            self.good = callers;
        } else {
            self.bad = Some(callers);
        }
    }

    /// Returns the most callers that stayed within limits; 0 for none.
    pub fn found(&self) -> usize {
        self.good
    }
}

/// One run of the search.
#[derive(Debug)]
pub struct KneeRun {
    /// Concurrent callers of the run.
    pub callers: usize,
    /// Descriptions of exceeded limits; empty for a good run.
    pub exceeded: Vec<String>,
    /// Log of the run.
    pub log: ScenarioLog,
}

/// Describes each limit that the run exceeded.
pub fn exceeded(limits: &KneeArguments, callers: usize, log: &ScenarioLog) -> Vec<String> {
    let mut found = Vec::new();
    let sounds = log.sorted(|turn| Some(turn.to_sound));
    match percentile(&sounds, 95) {
        Some(p95) if p95.as_millis() < u128::from(limits.max_ms) => {}
        Some(p95) => found.push(format!("p95 {} ms", p95.as_millis())),
        None => found.push("no answer".to_owned()),
    }
    let gaps = log.gap_share() * 100.0;
    if gaps >= limits.max_gaps {
        found.push(format!("gaps in {gaps:.1} % of answers"));
    }
    if log.error_count() > 0 {
        found.push(format!("{} errors", log.error_count()));
    }
    if log.turns.len() < callers {
        found.push(format!("only {} answers", log.turns.len()));
    }
    if log.lateness.percentile(99.0).is_some_and(|late| late > GENERATOR_LATE) {
        found.push("the generator itself was late".to_owned());
    }
    found
}

/// Searches for the knee of a server. Returns the row `knee_VOICE` and all runs.
///
/// # Errors
/// A scenario cannot run.
pub async fn search(
    bench: &LoadRunner,
    limits: &KneeArguments,
    voice: &str,
) -> Result<(ReportRow, Vec<(Scenario, ScenarioLog)>)> {
    let mut search = KneeSearch::new(limits.from, limits.most);
    let mut runs = Vec::new();
    while let Some(callers) = search.next().filter(|_| runs.len() < MAX_RUNS) {
        let mut scenario = Scenario::for_command("knee")?;
        scenario.name = format!("knee_{voice} {callers}");
        scenario.duration_s = limits.run_s;
        scenario.arrivals = Arrivals::Soak { callers, within_s: (limits.run_s / 5.0).min(10.0), call_again: false };
        let log = bench.run(&scenario).await?;
        let exceeded = exceeded(limits, callers, &log);
        println!(
            "{callers:>5} callers: {}",
            if exceeded.is_empty() { "within limits".to_owned() } else { exceeded.join(", ") }
        );
        search.record(callers, exceeded.is_empty());
        runs.push((scenario, KneeRun { callers, exceeded, log }));
    }
    let row = row(voice, limits, search.found(), runs.iter().map(|(_, run)| run));
    Ok((row, runs.into_iter().map(|(scenario, run)| (scenario, run.log)).collect()))
}

fn row<'a>(voice: &str, limits: &KneeArguments, found: usize, runs: impl Iterator<Item = &'a KneeRun>) -> ReportRow {
    let (mut best, mut worse) = (None, None);
    for run in runs {
        if run.callers == found {
            best = Some(run);
        } else if run.callers > found && worse.is_none_or(|worse: &KneeRun| run.callers < worse.callers) {
            worse = Some(run);
        }
    }
    let samples = best.map_or(&[][..], |run| &run.log.samples[..]);
    let mean = |of: fn(&crate::measure::log::ResourceSample) -> f64| {
        samples.iter().map(of).sum::<f64>() / samples.len().max(1) as f64
    };
    let (server, own) = (mean(|sample| sample.server_cores.unwrap_or(0.0)), mean(|sample| sample.own_cores));
    let above = worse.map_or(String::new(), |run| format!("; {} callers: {}", run.callers, run.exceeded.join(", ")));
    let KneeArguments { max_ms, max_gaps, .. } = limits;
    let note = format!("p95 < {max_ms} ms, gaps < {max_gaps} %; server {server:.2} cores, generator {own:.2}{above}");
    ReportRow::without_peer(format!("knee_{voice}"), found as f64, "calls", note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(first: usize, most: usize, knee: usize) -> (usize, usize) {
        let (mut search, mut runs) = (KneeSearch::new(first, most), 0);
        while let Some(callers) = search.next() {
            search.record(callers, callers <= knee);
            runs += 1;
        }
        (search.found(), runs)
    }

    #[test]
    fn knee_is_found_to_a_twelfth() {
        for knee in [1, 5, 8, 9, 47, 60, 150, 255, 511] {
            let (found, runs) = searched(8, 512, knee);
            assert!(found <= knee && knee - found <= (knee / 12).max(1), "{found} in place of {knee}");
            assert!(runs <= MAX_RUNS, "{runs}");
        }
        assert_eq!(searched(8, 512, 10_000).0, 512);
        assert_eq!(searched(8, 512, 0).0, 0);
    }

    #[test]
    fn each_limit_is_checked() {
        let limits = KneeArguments { max_ms: 500, max_gaps: 30.0, from: 8, most: 512, run_s: 25.0 };
        let good = || {
            let (_, mut log) = crate::report::rows::tests::log();
            log.errors.clear();
            log
        };
        assert_eq!(exceeded(&limits, 4, &good()), [""; 0]);
        let one = |limits: &KneeArguments, callers, log: &ScenarioLog| exceeded(limits, callers, log).join(", ");
        assert_eq!(one(&KneeArguments { max_ms: 400, ..limits.clone() }, 4, &good()), "p95 400 ms");
        assert_eq!(one(&KneeArguments { max_gaps: 25.0, ..limits.clone() }, 4, &good()), "gaps in 25.0 % of answers");
        assert_eq!(one(&limits, 5, &good()), "only 4 answers");
        let mut failed = good();
        failed.error("x");
        assert_eq!(one(&limits, 4, &failed), "1 errors");
        let mut late = good();
        late.lateness.add(GENERATOR_LATE * 2);
        assert_eq!(one(&limits, 4, &late), "the generator itself was late");
    }

    #[test]
    fn row_names_both_sides_of_the_knee() {
        let limits = KneeArguments { max_ms: 500, max_gaps: 1.0, from: 8, most: 512, run_s: 25.0 };
        let run = |callers, why: &[&str]| {
            let exceeded = why.iter().map(|why| (*why).to_owned()).collect();
            KneeRun { callers, exceeded, log: crate::report::rows::tests::log().1 }
        };
        let runs = [run(8, &[]), run(32, &["p95 700 ms"]), run(16, &[]), run(24, &["2 errors"])];
        let row = row("demo", &limits, 16, runs.iter());
        assert_eq!((row.measure.as_str(), row.ours), ("knee_demo", 16.0));
        assert!(row.note.contains("server 0.60 cores, generator 0.10; 24 callers: 2 errors"), "{}", row.note);
    }
}
