//! The server with the demo model, in this process, on a port of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use repartee::config::Config;
use repartee::server::Server;
use repartee_engine::{Engine, EngineConfig, Source};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::tools;

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct Demo {
    address: SocketAddr,
    /// Dropped to say that it is time to go.
    _stop: oneshot::Sender<()>,
    _task: JoinHandle<std::io::Result<()>>,
}

impl Demo {
    /// The demo page.
    pub fn page(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// What a stock client calls its base URL.
    pub fn api(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

/// Starts a server with the demo model and returns when it is ready.
pub async fn serve() -> Result<Demo> {
    let folder = tools::root().join("models/demo");
    let card = Some(std::fs::read_to_string(folder.join("repartee.json"))?);
    let engine =
        tokio::task::spawn_blocking(|| Engine::start(Source::Folder(folder), &EngineConfig::default())).await??;
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::bind(Config { listen, card, ..Config::default() }, Arc::new(engine)).await?;
    let (address, mut ready) = (server.local_addr(), server.ready());
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(server.run(async move {
        // Only ever dropped: that is the signal.
        let _ = stopped.await;
    }));
    ready.wait_for(|ready| *ready).await.context("the server went down before it was ready")?;
    Ok(Demo { address, _stop: stop, _task: task })
}
