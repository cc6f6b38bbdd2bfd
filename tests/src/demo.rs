//! The server with the demo model.

use std::sync::Arc;

use anyhow::Result;
use repartee::config::Config;
use repartee_engine::{Engine, EngineConfig, Source};

use crate::server::Running;
use crate::tools;

/// Starts a server with the demo model and returns when it is ready.
pub async fn serve() -> Result<Running> {
    let folder = tools::root().join("models/demo");
    let card = Some(std::fs::read_to_string(folder.join("repartee.json"))?);
    let engine =
        tokio::task::spawn_blocking(|| Engine::start(Source::Folder(folder), &EngineConfig::default())).await??;
    Running::start(Config { card, ..Config::default() }, Arc::new(engine)).await
}
