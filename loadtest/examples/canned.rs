//! The gateway with a canned voice: measures the cost of a call without a model. `repartee-load knee --voice canned`
//! starts it.
//!
//!     cargo run --release -p repartee-load --example canned

use anyhow::Result;
use repartee::config::Config;
use repartee::server::Server;
use repartee_testkit::scripted::{Script, ScriptedEngine};

/// Limit of concurrent calls.
const SLOTS: usize = 1_024;
/// Codec frames of an answer: 2 s of a rising tone.
const FRAMES: u64 = 25;

#[tokio::main]
async fn main() -> Result<()> {
    let engine = ScriptedEngine::new(Script { slots: SLOTS, frames: FRAMES, ..Script::default() });
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
    let server = Server::bind(config, engine.clone()).await?;
    println!("Talk to it at http://{}/", server.local_addr());
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(std::time::Duration::from_secs(1));
        loop {
            interval.tick().await;
            // The engine records every command, with its sound; drop them.
            engine.take_commands();
        }
    });
    server.run(std::future::pending()).await?;
    Ok(())
}
