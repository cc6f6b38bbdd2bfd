//! The knee: the most concurrent callers that the server answers within limits.
//!
//! A run that exceeds a limit is repeated, two of three decide, and a run from which others took processor time does not
//! count: one disturbance does not end the search.

mod bisection;
mod level_votes;
mod limiting_part;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use repartee_report::ReportRow;

use crate::measure::log::ScenarioLog;
use crate::report::percentile;
use crate::run::LoadRunner;
use crate::scenario::Scenario;
use crate::scenario::arrivals::Arrivals;
use bisection::KneeSearch;
use level_votes::LevelVotes;
use limiting_part::{GENERATOR_LATE, limiting_part, mean};

/// Share of the machine's cores that others may take from a run.
const DISTURBED: f64 = 0.05;
/// Runs with the callers that were found: their spread is reported.
const REPEATS: usize = 3;

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
    /// Time of the search, in seconds; the best so far is reported then
    #[arg(long, default_value_t = 600.0)]
    pub search_s: f64,
}

/// One run of the search.
#[derive(Debug)]
struct KneeRun {
    /// Concurrent callers of the run.
    callers: usize,
    /// Descriptions of exceeded limits; empty for a good run.
    exceeded: Vec<String>,
    /// Log of the run.
    log: ScenarioLog,
}

impl KneeRun {
    /// Cores that the hypervisor's other guests and other processes took, if they are too many of `cores`.
    fn disturbance(&self, cores: f64) -> Option<f64> {
        let taken = mean(&self.log, |sample| sample.stolen_cores + sample.other_cores);
        (taken > DISTURBED * cores).then_some(taken)
    }

    /// The 95th percentile of end of speech to sound, in ms.
    fn p95_ms(&self) -> Option<u128> {
        percentile(&self.log.sorted(|turn| Some(turn.to_sound)), 95).map(|p95| p95.as_millis())
    }
}

/// Describes each limit that the run exceeded.
fn exceeded(limits: &KneeArguments, callers: usize, log: &ScenarioLog) -> Vec<String> {
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
    let cores = cores();
    let end = Instant::now() + Duration::from_secs_f64(limits.search_s);
    let has_time = || Instant::now() + Duration::from_secs_f64(limits.run_s) < end;
    let mut search = KneeSearch::new(limits.from, limits.most);
    let mut runs = Vec::new();
    while let Some(callers) = search.next().filter(|_| has_time()) {
        let mut votes = LevelVotes::default();
        let decision = loop {
            let (scenario, run) = run(bench, limits, voice, callers, cores).await?;
            let decision = votes.add(run.exceeded.is_empty(), run.disturbance(cores).is_some());
            runs.push((scenario, run));
            if decision.is_some() || !has_time() {
                break decision;
            }
        };
        // Without time for a second vote the level is not reached.
        search.record(callers, decision.unwrap_or(false));
    }
    if search.next().is_some() {
        println!("no time is left: the knee may lie higher; --search-s gives more");
    }
    let found = search.found();
    let repeated = |runs: &[(Scenario, KneeRun)]| runs.iter().filter(|(_, run)| run.callers == found).count();
    while found > 0 && repeated(&runs) < REPEATS && has_time() {
        runs.push(run(bench, limits, voice, found, cores).await?);
    }
    let row = row(voice, limits, found, cores, &runs.iter().map(|(_, run)| run).collect::<Vec<_>>());
    Ok((row, runs.into_iter().map(|(scenario, run)| (scenario, run.log)).collect()))
}

/// Runs `callers` at once, and prints the outcome.
async fn run(
    bench: &LoadRunner,
    limits: &KneeArguments,
    voice: &str,
    callers: usize,
    cores: f64,
) -> Result<(Scenario, KneeRun)> {
    let mut scenario = Scenario::for_command("knee")?;
    scenario.name = format!("knee_{voice} {callers}");
    scenario.duration_s = limits.run_s;
    scenario.arrivals = Arrivals::Soak { callers, within_s: (limits.run_s / 5.0).min(10.0), call_again: false };
    let log = bench.run(&scenario).await?;
    let run = KneeRun { callers, exceeded: exceeded(limits, callers, &log), log };
    let outcome = if run.exceeded.is_empty() { "within limits".to_owned() } else { run.exceeded.join(", ") };
    let taken = run.disturbance(cores).map(|taken| format!("; others took {taken:.2} cores")).unwrap_or_default();
    println!("{callers:>5} callers: {outcome}{taken}");
    Ok((scenario, run))
}

/// Number of the machine's cores.
fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

/// Level of the processor's instructions that the kernels use, unless `REPARTEE_SIMD` names another.
fn processor() -> String {
    if let Ok(level) = std::env::var("REPARTEE_SIMD") {
        return level;
    }
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "AVX-512".to_owned();
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return "AVX2".to_owned();
        }
    }
    std::env::consts::ARCH.to_owned()
}

fn row(voice: &str, limits: &KneeArguments, found: usize, cores: f64, runs: &[&KneeRun]) -> ReportRow {
    let best: Vec<_> = runs.iter().filter(|run| run.callers == found).collect();
    let worse = runs.iter().filter(|run| run.callers > found && !run.exceeded.is_empty()).min_by_key(|run| run.callers);
    let last = best.iter().rfind(|run| run.exceeded.is_empty());
    let used = |of| last.map_or(0.0, |run| mean(&run.log, of));
    let (server, own) = (used(|sample| sample.server_cores.unwrap_or(0.0)), used(|sample| sample.own_cores));
    let above = worse.map_or(String::new(), |run| {
        format!(
            "; {} callers: {}; what gave way: {}",
            run.callers,
            run.exceeded.join(", "),
            limiting_part(&run.log, cores)
        )
    });
    let p95s: Vec<_> = best.iter().filter_map(|run| run.p95_ms()).collect();
    let spread = match (p95s.iter().min(), p95s.iter().max()) {
        (Some(least), Some(most)) => format!("p95 {least} to {most} ms in {} runs; ", p95s.len()),
        _ => String::new(),
    };
    let KneeArguments { max_ms, max_gaps, .. } = limits;
    let note = format!(
        "p95 < {max_ms} ms, gaps < {max_gaps} %; {cores} cores, {}; {spread}server {server:.2} cores, generator \
         {own:.2}{above}",
        processor()
    );
    ReportRow::without_peer(format!("knee_{voice}"), found as f64, "calls", note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max_gaps: f64) -> KneeArguments {
        KneeArguments { max_ms: 500, max_gaps, from: 8, most: 512, run_s: 25.0, search_s: 600.0 }
    }

    #[test]
    fn each_limit_is_checked() {
        let good = || {
            let (_, mut log) = crate::report::rows::tests::log();
            log.errors.clear();
            log
        };
        let limits = limits(30.0);
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

    fn run(callers: usize, why: &[&str]) -> KneeRun {
        let exceeded = why.iter().map(|why| (*why).to_owned()).collect();
        KneeRun { callers, exceeded, log: crate::report::rows::tests::log().1 }
    }

    #[test]
    fn row_names_both_sides_of_the_knee() {
        let runs =
            [run(8, &[]), run(32, &["p95 700 ms"]), run(16, &["1 errors"]), run(24, &["2 errors"]), run(16, &[])];
        let row = row("demo", &limits(1.0), 16, 2.0, &runs.iter().collect::<Vec<_>>());
        assert_eq!((row.measure.as_str(), row.ours), ("knee_demo", 16.0));
        let expected = "p95 400 to 400 ms in 2 runs; server 0.60 cores, generator 0.10; 24 callers: 2 errors; what gave \
                        way: unknown";
        assert!(row.note.contains(expected), "{}", row.note);
    }

    #[test]
    fn others_disturb_a_run() {
        let mut run = run(8, &["p95 700 ms"]);
        assert_eq!(run.disturbance(2.0), None);
        run.log.samples.iter_mut().for_each(|sample| (sample.stolen_cores, sample.other_cores) = (0.06, 0.05));
        assert!(run.disturbance(2.0).is_some_and(|taken| (taken - 0.11).abs() < 1e-9));
    }
}
