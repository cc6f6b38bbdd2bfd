//! Stock clients, unmodified, each at a pinned version: `make conformance` runs these alone.
//!
//! Each goes through the conversation of `repartee_tests::conformance::scenario` with an engine whose answers are known, and every
//! event that it was sent is checked against the schemas of others. Real time, so one after another.

use std::path::Path;

use anyhow::Result;
use repartee::config::Config;
use repartee_tests::conformance::events;
use repartee_tests::conformance::scenario::Scenario;
use repartee_tests::conformance::tap::Tap;
use repartee_tests::conformance::verdict::{Clock, Conversation};
use repartee_tests::server::Running;
use repartee_tests::tools;
use tokio::process::Command;
use tokio::sync::Mutex;

/// Held by the test that runs: two conversations at once would slow each other down on a small machine.
static REAL_TIME: Mutex<()> = Mutex::const_new(());

/// A client's script in Python.
fn python(script: &str) -> Result<Command> {
    let mut command = tools::clients_python()?;
    command.arg(tools::root().join("tests/clients").join(script));
    Ok(command)
}

/// A whole spoken turn, barge-in while an answer is made and after it, and another whole turn, over a websocket.
async fn talks_over_a_websocket(name: &str, mut client: Command) -> Result<()> {
    let _alone = REAL_TIME.lock().await;
    let scenario = Scenario::interruptions(name)?;
    let engine = scenario.engine();
    let server = Running::start(Config::default(), engine.clone()).await?;
    let tap = Tap::before(server.address()).await?;
    let report = scenario.run(&mut client, &tap.address().to_string()).await?;
    println!("{}", report.client);
    let seen = tap.server_events()?;
    keep(&scenario.folder, "from-client.jsonl", &tap.client_events()?)?;
    events::check(&seen, &scenario.folder).await?;
    let commands = engine.commands();
    Conversation { scenario: &scenario, report: &report, events: &seen, commands: &commands, clock: Clock::Client }
        .judge()
}

/// For a person who wants to know what a client asked for.
fn keep(folder: &Path, name: &str, events: &[serde_json::Value]) -> Result<()> {
    let lines: Vec<String> = events.iter().map(|event| format!("{event}\n")).collect();
    Ok(std::fs::write(folder.join(name), lines.concat())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_openai_over_the_websocket() -> Result<()> {
    talks_over_a_websocket("pypi_openai", python("pypi_openai.py")?).await
}
