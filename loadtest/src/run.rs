//! Runs a scenario: starts its calls on schedule, and samples the resource use of server and generator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use crate::caller::{SharedRun, run_caller};
use crate::measure::log::{ResourceSample, ScenarioLog};
use crate::measure::machine::MachineMonitor;
use crate::measure::process::ProcessMonitor;
use crate::progress::ProgressDisplay;
use crate::questions::{self, Question};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::speech::silence;
use crate::target::{Target, TargetArguments};

/// Interval of resource samples.
const SAMPLING: Duration = Duration::from_secs(1);
/// Time after a scenario's end and patience at which calls still in progress are abandoned.
const GRACE: Duration = Duration::from_secs(30);

/// Server, questions and seed of all runs.
#[derive(Debug)]
pub struct LoadRunner {
    /// The server under load.
    pub target: Target,
    /// Process id of the server, if it runs on this machine.
    pub pid: Option<u32>,
    /// Folder of the question files.
    pub questions: PathBuf,
    /// Seed of the load; the same seed repeats it.
    pub seed: u64,
    /// Progress display on the terminal.
    pub live: ProgressDisplay,
}

impl LoadRunner {
    /// Creates a bench for a server on this machine, over http and without a key. It prints nothing.
    ///
    /// # Errors
    /// The URL is malformed, or not on this machine.
    pub fn local(url: &str, questions: PathBuf) -> BoxFuture<'_, Result<Self>> {
        Box::pin(async move {
            let target = Target::resolve(url, &TargetArguments::default()).await?;
            Ok(Self { target, pid: None, questions, seed: 1, live: ProgressDisplay::new(false) })
        })
    }

    /// Runs one scenario to its end. Failed calls are counted in the log.
    ///
    /// # Errors
    /// No question fits, or a question cannot be read.
    pub fn run<'a>(&'a self, scenario: &'a Scenario) -> BoxFuture<'a, Result<ScenarioLog>> {
        Box::pin(async move {
            let mut asked = questions::load(&self.questions, &scenario.topics)?;
            ensure!(!asked.is_empty(), "scenario {}: no question has one of its topics", scenario.name);
            if scenario.questions_per_turn > 1 {
                asked = questions::long(&asked, scenario.questions_per_turn)?;
            }
            let calls = scenario.arrivals.schedule(scenario.duration(), &mut Random::new(self.seed));
            self.run_calls(scenario, asked, calls).await
        })
    }

    /// Makes a single call, without delay, with one question.
    ///
    /// # Errors
    /// The silent frame cannot be encoded.
    pub fn run_one<'a>(&'a self, scenario: &'a Scenario, question: Question) -> BoxFuture<'a, Result<ScenarioLog>> {
        Box::pin(async move { self.run_calls(scenario, vec![question], vec![Duration::ZERO]).await })
    }

    async fn run_calls(&self, scenario: &Scenario, asked: Vec<Question>, calls: Vec<Duration>) -> Result<ScenarioLog> {
        let before = self.server_metrics().await;
        let plan = Arc::new(SharedRun {
            scenario: scenario.clone(),
            target: self.target.clone(),
            questions: asked,
            silence: silence()?,
            begun: Instant::now(),
            seed: self.seed,
            log: Mutex::default(),
        });
        let last = plan.begun + scenario.duration() + scenario.patience() + GRACE;
        tokio::select! {
            () = all_calls(&plan, &calls) => {}
            () = self.watch(&plan) => {}
            () = sleep_until(last.into()) => plan.log(|log| log.error("calls that did not end in time")),
        }
        let mut log = std::mem::take(&mut *plan.log.lock().unwrap_or_else(PoisonError::into_inner));
        let after = self.server_metrics().await;
        log.server_underruns = difference(&before, &after, "repartee_underruns_total");
        let delays = difference(&before, &after, "repartee_runtime_delay_seconds_count").filter(|delays| *delays > 0.0);
        let delayed = difference(&before, &after, "repartee_runtime_delay_seconds_sum");
        log.server_runtime_delay = delayed.zip(delays).map(|(sum, count)| sum / count);
        let ticks = difference(&before, &after, "repartee_engine_tick_seconds_sum");
        log.server_ticks = ticks.map(|ticks| ticks / plan.begun.elapsed().as_secs_f64().max(1e-3));
        log.server_stages = stages(&before, &after);
        self.live.done(scenario, &log);
        Ok(log)
    }

    /// Samples resource use until it is cancelled.
    async fn watch(&self, plan: &SharedRun) {
        let mut watched = Watched {
            server: self.pid.and_then(|pid| ProcessMonitor::new(Some(pid))),
            own: ProcessMonitor::new(None),
            machine: MachineMonitor::new(),
        };
        let mut ticks = interval(SAMPLING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let sample = sample(plan, &mut watched);
            plan.log(|log| {
                log.samples.push(ResourceSample { calls: log.active, ..sample });
                self.live.show(&plan.scenario, plan.begun.elapsed(), log);
            });
        }
    }

    /// Reads the server's own metrics, by name with labels; empty if it has none.
    async fn server_metrics(&self) -> BTreeMap<String, f64> {
        match self.target.get("/metrics").await {
            Ok((status, text)) if status.is_success() => metrics(&text),
            _ => BTreeMap::new(),
        }
    }
}

/// Makes every call of the schedule, and waits for their ends.
async fn all_calls(plan: &Arc<SharedRun>, schedule: &[Duration]) {
    let mut callers = JoinSet::new();
    for (number, at) in schedule.iter().enumerate() {
        sleep_until((plan.begun + *at).into()).await;
        callers.spawn(run_caller(plan.clone(), number));
        // Reaps finished callers.
        while callers.try_join_next().is_some() {}
    }
    while let Some(ended) = callers.join_next().await {
        if let Err(error) = ended {
            plan.log(|log| log.error(format!("a caller failed: {error}")));
        }
    }
}

/// Monitors of a run.
struct Watched {
    server: Option<ProcessMonitor>,
    own: Option<ProcessMonitor>,
    machine: Option<MachineMonitor>,
}

fn sample(plan: &SharedRun, watched: &mut Watched) -> ResourceSample {
    let server_cores = watched.server.as_mut().and_then(ProcessMonitor::cores);
    let own_cores = watched.own.as_mut().and_then(ProcessMonitor::cores).unwrap_or(0.0);
    let machine = watched.machine.as_mut().and_then(MachineMonitor::cores).unwrap_or_default();
    ResourceSample {
        at: plan.begun.elapsed(),
        calls: 0,
        server_memory: watched.server.as_ref().and_then(ProcessMonitor::memory),
        server_cores,
        own_cores,
        other_cores: server_cores.map_or(0.0, |server| (machine.busy - server - own_cores).max(0.0)),
        stolen_cores: machine.stolen,
    }
}

/// Parses the Prometheus text format.
fn metrics(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' ').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?))))
        .collect()
}

fn difference(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    Some(after.get(name)? - before.get(name).copied().unwrap_or(0.0))
}

/// Stages of the server, in the order in which a turn passes them; unknown stages sort last.
const STAGES: [&str; 10] = [
    "endpointing",
    "slice_wait",
    "encoder",
    "prefill",
    "first_token",
    "first_frame",
    "codec",
    "playout",
    "opus",
    "wire",
];

/// Mean of each stage between two readings, in seconds.
fn stages(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Vec<(String, f64)> {
    let means = after.keys().filter_map(|name| {
        let stage = name.strip_prefix("repartee_stage_seconds_sum{stage=\"")?.strip_suffix("\"}")?;
        let count = format!("repartee_stage_seconds_count{{stage=\"{stage}\"}}");
        let count = difference(before, after, &count).filter(|count| *count > 0.0)?;
        Some((stage.to_owned(), difference(before, after, name)? / count))
    });
    let mut means: Vec<_> = means.collect();
    means.sort_by_key(|(name, _)| STAGES.iter().position(|stage| stage == name).unwrap_or(STAGES.len()));
    means
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_stages_are_means_between_readings() {
        let read = |sum: f64, count: u32| {
            let text = format!(
                "# HELP x\nrepartee_stage_seconds_sum{{stage=\"codec\"}} {sum}\n\
                 repartee_stage_seconds_count{{stage=\"codec\"}} {count}\n\
                 repartee_stage_seconds_sum{{stage=\"prefill\"}} {sum}\n\
                 repartee_stage_seconds_count{{stage=\"prefill\"}} {count}\nrepartee_underruns_total {count}\n"
            );
            metrics(&text)
        };
        let (before, after) = (read(1.0, 10), read(1.6, 13));
        let found = stages(&before, &after);
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["prefill", "codec"]);
        assert!(found.iter().all(|(_, mean)| (mean - 0.2).abs() < 1e-9), "{found:?}");
        assert_eq!(difference(&before, &after, "repartee_underruns_total"), Some(3.0));
        assert!(stages(&after, &after).is_empty());
    }
}
