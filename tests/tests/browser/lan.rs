//! A call as from a phone in the local network: HTTPS with a development certificate, a key, a real Chromium.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use repartee::auth::KeySet;
use repartee::cli::lan;
use repartee::config::Config;
use repartee::server::Server;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use repartee_tests::tools;
use tokio::sync::oneshot;

#[tokio::test(flavor = "multi_thread")]
async fn scanned_key_opens_a_call_over_https() -> Result<()> {
    let key = lan::new_key()?;
    let mut config = Config { listen: (Ipv4Addr::LOCALHOST, 0).into(), ..Config::default() };
    config.api_keys = KeySet::parse(&key)?;
    config.tls.development = true;
    let server = Server::bind(config, ScriptedEngine::new(Script::default())).await?;
    let (address, mut ready) = (server.local_addr(), server.ready());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async move {
        // The sender is only dropped; that is the signal.
        let _ = stopped.await;
    }));
    ready.wait_for(|ready| *ready).await.context("the server went down before it was ready")?;

    let mut driver = tools::node()?;
    driver.args(["--test", "--test-timeout=60000"]).arg(tools::root().join("tests/browser/lan.test.mjs"));
    driver.env("REPARTEE_URL", format!("https://{address}/")).env("REPARTEE_KEY", &key);
    println!("{}", tools::output(&mut driver, Duration::from_secs(150)).await?);
    drop(stop);
    serving.await??;
    Ok(())
}
