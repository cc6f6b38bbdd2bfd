//! A server in this process, on a port of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use repartee::config::Config;
use repartee::server::Server;
use repartee_engine_api::SpeechEngine;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct TestServer {
    address: SocketAddr,
    /// Dropped to say that it is time to go.
    _stop: oneshot::Sender<()>,
    _task: JoinHandle<std::io::Result<()>>,
}

impl TestServer {
    /// Starts a server for `engine` and returns when it is ready. It listens on any free port, whatever `config` says.
    pub async fn start(config: Config, engine: Arc<dyn SpeechEngine>) -> Result<Self> {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::bind(Config { listen, ..config }, engine).await?;
        let (address, mut ready) = (server.local_addr(), server.ready());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run(async move {
            // Only ever dropped: that is the signal.
            let _ = stopped.await;
        }));
        ready.wait_for(|ready| *ready).await.context("the server went down before it was ready")?;
        Ok(Self { address, _stop: stop, _task: task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The demo page.
    pub fn page(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// What a stock client calls its base URL.
    pub fn api(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}
