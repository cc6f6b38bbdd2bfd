//! The Grafana dashboard and the alert rules query existing metrics only. `docs/metrics.md` lists them; a test of the
//! gateway compares that list with its output.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use repartee_load::run::LoadRunner;
use repartee_load::scenario::arrivals::Arrivals;
use repartee_load::scenario::{Scenario, TransportKind};
use repartee_tests::{demo, tools};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

/// Timeout for data of a query in Prometheus.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns every metric in `docs/metrics.md`, histograms as their series.
fn documented() -> Result<BTreeSet<String>> {
    let page = std::fs::read_to_string(tools::root().join("docs/metrics.md"))?;
    let mut names = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, name, kind, ..] = cells[..] else { continue };
        match kind {
            "histogram" => names.extend(["bucket", "sum", "count"].map(|series| format!("{name}_{series}"))),
            _ => _ = names.insert(name.to_owned()),
        }
    }
    ensure!(names.len() > 20, "only {} names in docs/metrics.md", names.len());
    Ok(names)
}

/// Returns the names of our metrics in a query.
fn named(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("repartee_") || word.starts_with("process_")).map(str::to_owned).collect()
}

/// Returns title and query of every target of a dashboard.
fn dashboard(name: &str) -> Result<Vec<(String, String)>> {
    let file = std::fs::read(tools::root().join("web/grafana").join(name))?;
    let dashboard: Value = serde_json::from_slice(&file)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let title = panel["title"].as_str().context("a panel without a title")?;
        let description = panel["description"].as_str().unwrap_or_default();
        ensure!(panel["type"] == "row" || description.len() > 20, "{title}: no description");
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((title.to_owned(), target["expr"].as_str().context("a target without a query")?.to_owned()));
        }
    }
    Ok(queries)
}

#[test]
fn dashboard_asks_for_documented_metrics() -> Result<()> {
    let documented = documented()?;
    for (name, least) in [("repartee.json", 20), ("cluster.json", 10)] {
        let queries = dashboard(name)?;
        ensure!(queries.len() > least, "{name}: only {} queries", queries.len());
        for (title, query) in queries {
            let unknown: Vec<_> = named(&query).difference(&documented).cloned().collect();
            ensure!(!named(&query).is_empty() && unknown.is_empty(), "{title}: {unknown:?} in {query}");
        }
    }
    Ok(())
}

#[test]
fn alerts_ask_for_documented_metrics() -> Result<()> {
    let rules = std::fs::read_to_string(tools::root().join("web/grafana/rules.yaml"))?;
    let queries: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    ensure!(queries.len() >= 5, "only {} rules", queries.len());
    let documented = documented()?;
    for query in queries.into_iter().filter(|query| !query.starts_with("up{")) {
        let unknown: Vec<_> = named(query).difference(&documented).cloned().collect();
        ensure!(!named(query).is_empty() && unknown.is_empty(), "{unknown:?} in {query}");
    }
    Ok(())
}

#[test]
fn alerts_have_severity_and_runbook() -> Result<()> {
    let rules = std::fs::read_to_string(tools::root().join("web/grafana/rules.yaml"))?;
    let runbook = std::fs::read_to_string(tools::root().join("docs/alerts.md"))?;
    let sections: BTreeSet<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut alerts = BTreeSet::new();
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap_or_default();
        alerts.insert(name);
        let severe = ["labels: {severity: page}", "labels: {severity: warn}"].iter().any(|label| rule.contains(label));
        let link = format!("runbook_url: file:/usr/local/share/doc/repartee/alerts.md#{}\n", name.to_lowercase());
        ensure!(severe && rule.contains("summary: ") && rule.contains("description: "), "{name}: {rule}");
        ensure!(rule.contains(&link), "{name} has no link to its section of docs/alerts.md");
    }
    ensure!(alerts == sections, "alerts {alerts:?}, sections of docs/alerts.md {sections:?}");
    Ok(())
}

/// Finds a program of Prometheus, on the path or from `scripts/setup.sh prometheus`.
fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([tools::root().join("target/tools/prometheus/usr/bin")]);
    let found = folders.map(|folder| folder.join(name)).find(|program| program.is_file());
    found.with_context(|| format!("there is no {name}: scripts/setup.sh prometheus"))
}

/// Queries Prometheus and returns its response.
async fn value(prometheus: SocketAddr, query: &str) -> Result<Value> {
    let mut socket = TcpStream::connect(prometheus).await?;
    let body = format!("query={}", encoded(query));
    let head = format!(
        "POST /api/v1/query HTTP/1.0\r\nhost: {prometheus}\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    Ok(serde_json::from_str(body)?)
}

/// Percent-encodes text for a form.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Waits until Prometheus has a number for this query; fails after [`PATIENCE`].
async fn has_data(prometheus: SocketAddr, query: &str) -> Result<()> {
    let begun = tokio::time::Instant::now();
    let mut poll = tokio::time::interval(Duration::from_millis(500));
    loop {
        poll.tick().await;
        // Prometheus may not listen yet.
        if let Ok(answer) = value(prometheus, query).await {
            ensure!(answer["status"] == "success", "{query}: {answer}");
            let numbers =
                answer["data"]["result"].as_array().into_iter().flatten().filter_map(|one| one["value"][1].as_str());
            if numbers.filter(|number| *number != "NaN").count() > 0 {
                return Ok(());
            }
        }
        if begun.elapsed() > PATIENCE {
            bail!("{query} has no data after {PATIENCE:?}");
        }
    }
}

/// Runs callers who ask short questions; every question must be answered.
async fn call(url: &str, transport: TransportKind, callers: usize) -> Result<()> {
    let scenario = Scenario {
        duration_s: 15.0,
        transport,
        arrivals: Arrivals::Soak { callers, within_s: 1.0, call_again: false },
        think_s: 0.2,
        ..Scenario::for_command("soak")?
    };
    let log = LoadRunner::local(url, tools::root().join("tests/questions")).await?.run(&scenario).await?;
    ensure!(log.errors.is_empty() && log.turns.len() >= callers, "{} turns, {:?}", log.turns.len(), log.errors);
    Ok(())
}

fn configuration(folder: &Path, server: SocketAddr) -> Result<PathBuf> {
    let recommended = std::fs::read_to_string(tools::root().join("deploy/prometheus.yaml"))?;
    let given = [("127.0.0.1:8080", server.to_string()), ("scrape_interval: 5s", "scrape_interval: 1s".to_owned())];
    let mut text = recommended;
    for (from, to) in given {
        ensure!(text.contains(from), "{from} is not in deploy/prometheus.yaml");
        text = text.replace(from, &to);
    }
    let path = folder.join("prometheus.yaml");
    std::fs::write(&path, text)?;
    std::fs::copy(tools::root().join("web/grafana/rules.yaml"), folder.join("rules.yaml"))?;
    Ok(path)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: a real Prometheus reads a server with callers"]
async fn every_query_returns_data() -> Result<()> {
    let server = demo::start_demo_server().await?;
    let folder = tempfile::tempdir()?;
    let config = configuration(folder.path(), server.address())?;
    let rules = tools::root().join("web/grafana/rules.yaml");
    println!(
        "{}",
        tools::output(Command::new(program("promtool")?).args(["check", "rules"]).arg(rules), PATIENCE).await?
    );
    // The port is free now. If another process takes it first, Prometheus ends and the queries have no data.
    let prometheus = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let _running = Command::new(program("prometheus")?)
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={prometheus}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    has_data(prometheus, "up{job=\"repartee\"} == 1").await?;
    let url = server.page().trim_end_matches('/').to_owned();
    tokio::try_join!(call(&url, TransportKind::Webrtc, 3), call(&url, TransportKind::Websocket, 2))?;
    for (title, query) in dashboard("repartee.json")? {
        let query = query.replace("$__rate_interval", "2m").replace("$instance", ".*");
        has_data(prometheus, &query).await.with_context(|| title)?;
    }
    Ok(())
}
