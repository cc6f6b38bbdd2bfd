//! The command line of the load generator.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};
use futures_util::future::BoxFuture;
use repartee_report::{Report, ReportRow, print};

use crate::chat;
use crate::compare::compare;
use crate::hostile::attack::AttackArguments;
use crate::hostile::trial::HostileArguments;
use crate::knee::{self, KneeArguments};
use crate::measure::log::ScenarioLog;
use crate::overload::{self, OverloadArguments};
use crate::peer;
use crate::progress::ProgressDisplay;
use crate::report::{page, rows};
use crate::run::LoadRunner;
use crate::scenario::Scenario;
use crate::scenario::arrivals::Arrivals;
use crate::server::{OwnServer, binary, free_sip_address};
use crate::soak;
use crate::target::{Target, TargetArguments};
use crate::telephone::{self, TelephoneArguments};

/// Session limit of a server that we start: more than any knee.
const SESSIONS: &str = "engine.sessions=1024";
/// Session context of a server whose knee is searched: enough for a few turns, so latency limits the search and not
/// memory.
const SHORT_CONTEXT: &str = "engine.session_tokens=1024";
/// Setting of a server whose capacity is searched: it takes more callers than it carries.
const NO_HEADROOM: &str = "limits.headroom=false";

/// Calls a voice server over WebRTC and websockets, and times its answers.
#[derive(Debug, Parser)]
#[command(name = "repartee-load", version)]
pub struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run scenarios: the standard ones, or those of a file
    Run {
        #[command(flatten)]
        common: Common,
        /// File of scenarios in TOML; by default the standard ones
        #[arg(long, value_name = "FILE")]
        scenarios: Option<PathBuf>,
        /// Run only the scenarios of these names
        #[arg(long, value_name = "NAME", num_args = 1..)]
        only: Vec<String>,
    },
    /// Search for the most callers that are answered within limits
    Knee {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        limits: KneeArguments,
        /// The server's voice, for the row's name; without --target, `canned` starts a server with a canned voice
        #[arg(long, default_value = "demo")]
        voice: String,
    },
    /// Keep some callers talking for a long time; each hangs up after some turns and calls again
    Soak {
        #[command(flatten)]
        common: Common,
        /// Duration of the run, in minutes
        #[arg(long, default_value_t = 60.0)]
        minutes: f64,
        /// Callers at once
        #[arg(long, default_value_t = 8)]
        callers: usize,
    },
    /// Let more callers come than the server carries, and judge the answers of those that it takes
    Overload {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        callers: OverloadArguments,
    },
    /// Compare the time to first packet over SIP with that over WebRTC, on a server of our own
    Telephone {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        calls: TelephoneArguments,
    },
    /// Ask questions while attacks run on a server of our own, and judge the answers, delays and memory
    Hostile(HostileArguments),
    /// Be one attacker of `hostile`
    #[command(hide = true)]
    Attack(AttackArguments),
    /// Compare speech that is sent in real time with one upload of it
    RealtimeVsChat {
        #[command(flatten)]
        common: Common,
        /// Durations of the speech, in seconds
        #[arg(long, num_args = 1.., default_values_t = [20, 200])]
        seconds: Vec<u32>,
    },
    /// Compare the CPU cost of a call with that of a server made with aiortc; both play a canned voice
    Peer {
        #[command(flatten)]
        common: Common,
        /// Python with the packages of tests/requirements-clients.txt
        #[arg(long, value_name = "FILE", default_value = "target/tools/clients/bin/python")]
        python: PathBuf,
        /// Script of the peer server
        #[arg(long, value_name = "FILE", default_value = "loadtest/aiortc_peer.py")]
        script: PathBuf,
        /// Callers at once
        #[arg(long, default_value_t = 4)]
        callers: usize,
        /// Duration of the load on each server, in seconds
        #[arg(long, default_value_t = 30.0)]
        run_s: f64,
    },
    /// Print two reports side by side
    Compare {
        /// The first report, a load.json
        first: PathBuf,
        /// The second report
        second: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    target: TargetArguments,
    /// The server's binary, used without --target; by default it is built from the current code
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Process id of the server, if it runs on this machine and was not started by this command
    #[arg(long)]
    pid: Option<u32>,
    /// Folder of the questions: wav files, and a questions.json if there is one
    #[arg(long, value_name = "DIR", default_value = "tests/questions")]
    questions: PathBuf,
    /// Folder for load.json and load.html
    #[arg(long, value_name = "DIR", default_value = "target/report")]
    report: PathBuf,
    /// Seed of arrivals, pauses and the simulated network
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// Finished scenarios with their logs.
type Runs = Vec<(Scenario, ScenarioLog)>;

impl Command {
    /// Runs the subcommand; `false` if a call failed or no knee was found.
    pub fn run(self) -> BoxFuture<'static, Result<bool>> {
        Box::pin(async move {
            match self.action {
                Action::Run { common, scenarios, only } => {
                    let mut scenarios = Scenario::load(scenarios.as_deref())?;
                    scenarios.retain(|scenario| only.is_empty() || only.contains(&scenario.name));
                    ensure!(!scenarios.is_empty(), "no scenario of these names");
                    let (bench, server) = common.bench(None, &[]).await?;
                    let runs = all(&bench, scenarios).await?;
                    drop(server);
                    common.publish("load", &runs, Vec::new())?;
                    Ok(runs.iter().all(|(_, log)| log.errors.is_empty()))
                }
                Action::Knee { common, limits, voice } => {
                    let (bench, server) = common.bench(Some(&voice), &[SHORT_CONTEXT, NO_HEADROOM]).await?;
                    let (row, runs) = knee::search(&bench, &limits, &voice).await?;
                    drop(server);
                    let found = row.ours > 0.0;
                    common.add(&runs, row)?;
                    Ok(found)
                }
                Action::Soak { common, minutes, callers } => {
                    let mut scenario = Scenario::for_command("soak")?;
                    scenario.duration_s = minutes * 60.0;
                    scenario.arrivals = Arrivals::Soak { callers, within_s: 10.0, call_again: true };
                    scenario.check()?;
                    let (bench, server) = common.bench(None, &[]).await?;
                    let runs = all(&bench, vec![scenario]).await?;
                    drop(server);
                    let more = runs
                        .iter()
                        .flat_map(|(scenario, log)| soak::rows(&scenario.name, scenario.duration(), log))
                        .collect();
                    common.publish("soak", &runs, more)?;
                    Ok(runs.iter().all(|(_, log)| log.errors.is_empty()))
                }
                Action::Overload { common, callers } => {
                    let (bench, server) = common.bench(None, &[SHORT_CONTEXT]).await?;
                    let (rows, runs, good) = overload::measure(&bench, &callers).await?;
                    drop(server);
                    common.publish("overload", &runs, rows)?;
                    Ok(good)
                }
                Action::Telephone { common, calls } => {
                    ensure!(common.target.target.is_none(), "--target: the server has to be our own");
                    let sip = free_sip_address()?;
                    let (listen, peers) = (format!("sip.listen={sip}"), "sip.peers=127.0.0.1/32");
                    let (bench, server) = common.bench(None, &[&listen, peers]).await?;
                    let (rows, runs, good) = telephone::measure(&bench, sip, &calls).await?;
                    drop(server);
                    common.publish("telephone", &runs, rows)?;
                    Ok(good)
                }
                Action::Hostile(arguments) => arguments.run().await,
                Action::Attack(arguments) => arguments.run().map(|()| true),
                Action::RealtimeVsChat { common, seconds } => {
                    let (bench, server) = common.bench(None, &[]).await?;
                    let rows = chat::compare(&bench, &seconds).await?;
                    drop(server);
                    print(&rows);
                    common.write("realtime_vs_chat", &[], rows)?;
                    Ok(true)
                }
                Action::Peer { common, python, script, callers, run_s } => {
                    let (bench, server) = common.bench(Some("canned"), &[]).await?;
                    let ours = peer::cost(&bench, callers, run_s).await?;
                    drop(server);
                    let server = OwnServer::start(&python, &[&shown(&script)]).await?;
                    let theirs =
                        peer::cost(&common.bench_of(server.url(), server.pid()).await?, callers, run_s).await?;
                    drop(server);
                    for row in peer::rows(ours, theirs, callers) {
                        common.add(&[], row)?;
                    }
                    Ok(true)
                }
                Action::Compare { first, second } => {
                    println!("{}", compare(&Report::read(&first)?, &Report::read(&second)?));
                    Ok(true)
                }
            }
        })
    }
}

/// Runs scenarios one after the other.
async fn all(bench: &LoadRunner, scenarios: Vec<Scenario>) -> Result<Runs> {
    let mut runs = Vec::new();
    for scenario in scenarios {
        let log = bench.run(&scenario).await?;
        runs.push((scenario, log));
    }
    Ok(runs)
}

impl Common {
    /// Returns the bench for the server of `--target`, or starts a server, with these settings if its voice is not canned.
    async fn bench(&self, voice: Option<&str>, settings: &[&str]) -> Result<(LoadRunner, Option<OwnServer>)> {
        let own = match (&self.target.target, voice) {
            (Some(_), _) => None,
            (None, Some("canned")) => {
                let given = self.server.as_deref();
                let program = binary(given, &["--workspace", "--example", "canned"], "examples/canned").await?;
                Some(OwnServer::start(&program, &[]).await?)
            }
            (None, _) => {
                let program = binary(self.server.as_deref(), &["--workspace", "--bin", "repartee"], "repartee").await?;
                let mut arguments = vec!["--listen", "127.0.0.1:0", "--set", SESSIONS];
                arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
                Some(OwnServer::start(&program, &arguments).await?)
            }
        };
        let url = own.as_ref().map(OwnServer::url).or(self.target.target.as_deref()).context("no server")?;
        let bench = self.bench_of(url, own.as_ref().and_then(OwnServer::pid)).await?;
        Ok((bench, own))
    }

    /// Returns the bench for the server at `url`; `--pid` overrides `pid`.
    async fn bench_of(&self, url: &str, pid: Option<u32>) -> Result<LoadRunner> {
        Ok(LoadRunner {
            target: Target::resolve(url, &self.target).await?,
            pid: self.pid.or(pid),
            questions: self.questions.clone(),
            seed: self.seed,
            live: ProgressDisplay::new(!self.quiet),
        })
    }

    /// Prints the rows of these runs and `more`, and writes NAME.json and NAME.html.
    fn publish(&self, name: &str, runs: &[(Scenario, ScenarioLog)], more: Vec<ReportRow>) -> Result<()> {
        let mut all: Vec<ReportRow> = runs.iter().flat_map(|(scenario, log)| rows::of(scenario, log)).collect();
        all.extend(more);
        print(&all);
        self.write(name, runs, all)
    }

    fn write(&self, name: &str, runs: &[(Scenario, ScenarioLog)], rows: Vec<ReportRow>) -> Result<()> {
        let report = Report::new(name, rows);
        let path = self.report.join(format!("{name}.json"));
        report.write(&path)?;
        page::write(&path.with_extension("html"), &report, runs)?;
        println!("{}", shown(&path));
        println!("{}", shown(&path.with_extension("html")));
        Ok(())
    }

    /// Adds `row` to load.json, replacing a row of the same name, and writes a page for the runs.
    fn add(&self, runs: &[(Scenario, ScenarioLog)], row: ReportRow) -> Result<()> {
        print(std::slice::from_ref(&row));
        let path = self.report.join("load.json");
        let mut rows = if path.exists() { Report::read(&path)?.rows } else { Vec::new() };
        rows.retain(|other| other.measure != row.measure);
        let name = row.measure.clone();
        rows.push(row.clone());
        Report::new("load", rows).write(&path)?;
        println!("{}", shown(&path));
        if runs.is_empty() {
            return Ok(());
        }
        let page = self.report.join(format!("{name}.html"));
        let mut own: Vec<ReportRow> = runs.iter().flat_map(|(scenario, log)| rows::of(scenario, log)).collect();
        own.push(row);
        page::write(&page, &Report::new(&name, own), runs)?;
        println!("{}", shown(&page));
        Ok(())
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
