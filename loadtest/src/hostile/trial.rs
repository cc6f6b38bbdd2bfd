//! Run of the hostile trial: starts a server, asks questions alone, then while each row's attacks run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use repartee_report::{Report, ReportRow, print};
use tokio::process::{Child, Command};
use tokio::time::{interval, sleep};

use super::table::{ALL, HostileRow, QUICK};
use super::verdict::{CallerResult, HostileBounds, HostileResult, failures, rows};
use super::{attack, watch};
use crate::measure::log::ScenarioLog;
use crate::measure::process::ProcessMonitor;
use crate::progress::ProgressDisplay;
use crate::report::percentile;
use crate::run::LoadRunner;
use crate::scenario::Scenario;
use crate::server::{OwnServer, binary, free_sip_address};
use crate::target::{Target, TargetArguments};

/// Keys of the attackers and of the innocent callers.
const KEYS: [&str; 2] = ["hostile-tenant-of-the-trial", "innocent-tenant-of-the-trial"];
/// Memory at which the server is ended, in bytes.
const MOST_MEMORY: u64 = 2 << 30;
/// Time between the beginning of the calls and that of the attacks.
const HEAD_START: Duration = Duration::from_secs(1);
/// Time between the beginning of an attack that needs a call and that of the others.
const FIRST_CALL: Duration = Duration::from_secs(1);

/// Arguments of the command `hostile`.
#[derive(Debug, Args)]
pub struct HostileArguments {
    /// Run a few groups of attacks with wide bounds, in 20 seconds
    #[arg(long)]
    quick: bool,
    /// Run only the rows of these names
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// Duration of each row, in seconds; the last row takes four times as long
    #[arg(long)]
    row_s: Option<f64>,
    /// Number by which the threads of each attack are multiplied
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    times: u8,
    /// Longest wait until memory is given back, in seconds
    #[arg(long, default_value_t = 60.0)]
    given_back_s: f64,
    /// The server's binary; by default it is built from the current code
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Folder of the questions
    #[arg(long, value_name = "DIR", default_value = "tests/questions")]
    questions: PathBuf,
    /// Folder for hostile.json
    #[arg(long, value_name = "DIR", default_value = "target/report")]
    report: PathBuf,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// The attacked server, and the innocent callers' bench.
struct AttackedServer {
    server: OwnServer,
    /// Address of its calls over SIP.
    sip: SocketAddr,
    bench: LoadRunner,
    process: ProcessMonitor,
}

impl HostileArguments {
    /// Runs the rows; false if one fails that has no known shortfall.
    ///
    /// # Errors
    /// The server does not start, or the report cannot be written.
    pub async fn run(&self) -> Result<bool> {
        let table: &[HostileRow] = if self.quick { &QUICK } else { &ALL };
        let wanted = |row: &&HostileRow| self.only.is_empty() || self.only.iter().any(|name| name == row.name);
        let table: Vec<&HostileRow> = table.iter().filter(wanted).collect();
        ensure!(!table.is_empty(), "no row of these names");
        let bounds = if self.quick { HostileBounds::QUICK } else { HostileBounds::WHOLE };
        let row_s =
            Duration::from_secs_f64(self.row_s.unwrap_or(if self.quick { 4.0 } else { 15.0 }).clamp(1.0, 600.0));
        let program = binary(self.server.as_deref(), &["--workspace", "--bin", "repartee"], "repartee").await?;
        let mut stage = self.stage(&program).await?;
        let alone = self.measure(&mut stage, &[], row_s, None).await?;
        let unhurt = failures(&alone, &alone, &bounds);
        ensure!(unhurt.is_empty(), "the callers are not served alone: {}", unhurt.join("; "));
        let mut report = rows("alone", "no attack", &alone, &alone);
        print(&report);
        let (mut held, mut broken) = (true, false);
        for row in table {
            // Each row of the whole run has a server of its own, so that none inherits memory.
            if broken || !self.quick {
                stage = self.stage(&program).await?;
            }
            let all: Vec<&str> = attack::names().collect();
            let attacks = if row.attacks.is_empty() { &all[..] } else { row.attacks };
            let lasts = if row.attacks.is_empty() { 4 * row_s } else { row_s };
            let result = self.measure(&mut stage, attacks, lasts, bounds.later).await?;
            broken = !result.alive;
            let found = failures(&result, &alone, &bounds);
            held &= found.is_empty() || row.shortfall.is_some();
            report.extend(show(row, &result, &alone, &found));
        }
        let path = self.report.join("hostile.json");
        Report::new("hostile", report).write(&path)?;
        println!("{}", path.display());
        Ok(held)
    }

    async fn stage(&self, program: &std::path::Path) -> Result<AttackedServer> {
        let keys = KEYS.join(",");
        let sip = free_sip_address()?;
        let listen = format!("sip.listen={sip},tcp:{sip}");
        let arguments = ["--listen", "127.0.0.1:0", "--set", &listen, "--set", "sip.peers=127.0.0.1/32"];
        let server = OwnServer::start_with(program, &arguments, &[("REPARTEE_API_KEYS", &keys)]).await?;
        let arguments = TargetArguments { key: Some(KEYS[1].to_owned()), ..TargetArguments::default() };
        let target = Target::resolve(server.url(), &arguments).await?;
        let process = ProcessMonitor::new(server.pid()).context("the server has ended")?;
        let (questions, live) = (self.questions.clone(), ProgressDisplay::new(!self.quiet));
        let bench = LoadRunner { target, pid: None, questions, seed: 1, live };
        Ok(AttackedServer { server, sip, bench, process })
    }

    /// Measures the innocent callers for `lasts`, while these attacks run. With `later` it waits until no more memory than
    /// that is held.
    async fn measure(
        &self,
        stage: &mut AttackedServer,
        attacks: &[&str],
        lasts: Duration,
        later: Option<u64>,
    ) -> Result<HostileResult> {
        let AttackedServer { server, sip, bench, process } = stage;
        let scenario = |name| -> Result<Scenario> {
            let mut scenario = Scenario::for_command(name)?;
            scenario.duration_s = lasts.as_secs_f64();
            Ok(scenario)
        };
        let (websocket, webrtc) = (scenario("hostile-websocket")?, scenario("hostile-webrtc")?);
        let before = process.memory().context("the server has ended")?;
        let (mut peak, mut health) = (before, watch::HealthLog::default());
        let address = bench.target.address().to_string();
        let sip = sip.to_string();
        let seconds = lasts.as_secs_f64().to_string();
        let attacking = async {
            sleep(HEAD_START).await;
            let mut attackers = Vec::new();
            for name in attacks {
                attackers.push(attacker(name, [&address, &sip], &seconds, self.times));
                if attack::needs_call(name) {
                    sleep(FIRST_CALL).await;
                }
            }
            sleep(lasts).await;
            attackers.into_iter().collect::<Result<Vec<Child>>>()
        };
        let calling = async { tokio::join!(bench.run(&websocket), bench.run(&webrtc)) };
        let calls = async {
            tokio::select! {
                logs = async { tokio::join!(calling, attacking) } => Some(logs),
                () = watch::memory(process, &mut peak, MOST_MEMORY) => None,
                () = health.check(&bench.target) => None,
            }
        };
        let mut idle = Vec::new();
        let (callers, alive) = match calls.await {
            Some(((websocket, webrtc), attackers)) => {
                for (name, mut attacker) in attacks.iter().zip(attackers?) {
                    // Dropping an attacker kills it.
                    if attacker.try_wait()?.is_some_and(|status| !status.success()) {
                        idle.push((*name).to_owned());
                    }
                }
                (vec![caller("websocket", &websocket?), caller("webrtc", &webrtc?)], server.is_alive())
            }
            None => {
                let none = |transport| CallerResult {
                    transport,
                    first_sound: None,
                    turns: 0,
                    right: 0,
                    errors: vec!["the server was gone".to_owned()],
                };
                (vec![none("websocket"), none("webrtc")], false)
            }
        };
        let after = match later.filter(|_| alive) {
            Some(later) => {
                let wait = Duration::from_secs_f64(self.given_back_s.clamp(0.0, 600.0));
                given_back(process, before + later, wait).await
            }
            None => process.memory(),
        };
        let memory = [before, peak, after.unwrap_or(peak)];
        let (health, health_error) = health.finish();
        Ok(HostileResult { callers, health, health_error, memory, alive, idle })
    }
}

/// Waits until the process takes at most `most` bytes, at most for `wait`; returns its memory then.
async fn given_back(process: &ProcessMonitor, most: u64, wait: Duration) -> Option<u64> {
    let (begun, mut ticks) = (Instant::now(), interval(Duration::from_secs(1)));
    loop {
        ticks.tick().await;
        let memory = process.memory()?;
        if memory <= most || begun.elapsed() >= wait {
            return Some(memory);
        }
    }
}

/// Starts an attacker at the lowest priority; dropping it kills it.
fn attacker(name: &str, [address, sip]: [&str; 2], seconds: &str, times: u8) -> Result<Child> {
    let own = std::env::current_exe()?;
    let mut command = Command::new("nice");
    let times = times.to_string();
    command.args(["-n", "19"]).arg(own).args(["attack", name, "--address", address, "--sip", sip]);
    command.args(["--seconds", seconds, "--times", &times]);
    command.env("REPARTEE_KEY", KEYS[0]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().with_context(|| format!("the attacker {name}"))
}

fn caller(transport: &'static str, log: &ScenarioLog) -> CallerResult {
    let right = log.turns.iter().filter(|turn| turn.correct == Some(true)).count();
    let first_sound = percentile(&log.sorted(|turn| Some(turn.to_sound)), 95);
    let errors = log.errors.iter().map(|(error, count)| format!("{error} ({count})")).collect();
    CallerResult { transport, first_sound, turns: log.turns.len(), right, errors }
}

/// Prints a row with its verdict; returns the rows of the report.
fn show(row: &HostileRow, result: &HostileResult, alone: &HostileResult, found: &[String]) -> Vec<ReportRow> {
    let rows = rows(row.name, row.promise, result, alone);
    print(&rows);
    let verdict = match (found.is_empty(), row.shortfall) {
        (true, None) => "holds".to_owned(),
        (true, Some(reason)) => format!("holds; the mark of a known shortfall can go: {reason}"),
        (false, None) => format!("FAILED: {}", found.join("; ")),
        (false, Some(reason)) => format!("KNOWN SHORTFALL ({reason}): {}", found.join("; ")),
    };
    println!("{}: {}: {verdict}\n", row.name, row.promise);
    rows
}
