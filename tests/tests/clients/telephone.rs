//! A telephone call over media streams, whose sound a stock serializer codes.

use anyhow::{Result, ensure};
use repartee_tests::conformance::scenario::Scenario;
use repartee_tests::server::TestServer;
use serde::Deserialize;

use super::conformance::{Client, REAL_TIME};

/// Report of `pypi_pipecat_telephone.py`.
#[derive(Debug, Deserialize)]
struct StreamedCall {
    client: String,
    heard_ms: f64,
    loud_ms: f64,
    marks: u32,
    cleared: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_pipecat_codes_a_telephone_call() -> Result<()> {
    let _alone = REAL_TIME.lock().await;
    let client = Client::named("pypi_pipecat_telephone");
    let scenario = Scenario::interruptions(client.name)?;
    let engine = scenario.engine();
    let server = TestServer::start(scenario.config()?, engine.clone()).await?;
    let seen: StreamedCall = scenario.run(&mut client.python()?, &server.address().to_string()).await?;
    println!("{}", seen.client);
    let answer_ms = scenario.turns[0].answer.sound().len() as f64 / 48.0;
    ensure!((seen.heard_ms - answer_ms).abs() < 100.0 && seen.loud_ms > answer_ms / 3.0, "{seen:?} of {answer_ms} ms");
    // One each 100 ms, and one after the last sound.
    let expected = (answer_ms / 100.0) as u32;
    ensure!((expected..=expected + 2).contains(&seen.marks) && seen.cleared, "{seen:?}");
    Ok(())
}
