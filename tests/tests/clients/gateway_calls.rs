//! Calls of telephone gateways, as an independent stack makes them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use repartee::config::Config;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use repartee_tests::server::TestServer;
use repartee_tests::{questions, tools};
use serde::Deserialize;
use tokio::time::timeout;

/// Timeout of the call on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Report of `aiortc_gateway.py`.
#[derive(Debug, Deserialize)]
struct GatewayReport {
    keys: Vec<String>,
    said: Vec<String>,
    errors: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_a_new_ssrc_are_heard() -> Result<()> {
    let engine = ScriptedEngine::new(Script { frames: 2, ..Script::default() });
    let server = TestServer::start(Config::default(), engine).await?;
    let mut client = tools::clients_python()?;
    client.arg(tools::root().join("tests/clients/aiortc_gateway.py"));
    client.arg(server.address().to_string()).arg(questions::named("three-plus-four.wav")?.path());
    let output = timeout(LIMIT, client.output()).await.context("the call takes too long")??;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: GatewayReport = serde_json::from_slice(&output.stdout)?;
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    ensure!(report.keys == ["1", "#", "#"], "{:?}", report.keys);
    // Each question is heard once, and no packet without sound is.
    ensure!(report.said.len() == 2, "{:?}", report.said);
    for said in &report.said {
        let heard: u64 = said.trim_start_matches("I heard ").trim_end_matches(" ms.").parse()?;
        ensure!((700..4_000).contains(&heard), "{said}");
    }
    Ok(())
}
