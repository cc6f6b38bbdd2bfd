//! A server with the demo model.

use std::sync::Arc;

use anyhow::Result;
use repartee::config::Config;
use repartee_engine::{Engine, EngineConfig, Source};

use crate::recording_engine::RecordingEngine;
use crate::server::TestServer;
use crate::tools;

/// Starts a server with the demo model and waits until it is ready.
pub async fn start_demo_server() -> Result<TestServer> {
    TestServer::start(config()?, Arc::new(engine().await?)).await
}

/// Like [`start_demo_server`], with an engine that records inputs and responses.
pub async fn start_recorded_demo_server() -> Result<(TestServer, Arc<RecordingEngine>)> {
    let recorder = RecordingEngine::of(Arc::new(engine().await?));
    Ok((TestServer::start(config()?, recorder.clone()).await?, recorder))
}

async fn engine() -> Result<Engine> {
    let folder = tools::root().join("models/demo");
    Ok(tokio::task::spawn_blocking(|| Engine::start(Source::Folder(folder), &EngineConfig::default())).await??)
}

fn config() -> Result<Config> {
    let card = Some(std::fs::read_to_string(tools::root().join("models/demo/repartee.json"))?);
    Ok(Config { card, ..Config::default() })
}
