//! A server in this process, on a free port.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use repartee::config::Config;
use repartee::server::Server;
use repartee_engine_api::SpeechEngine;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server; dropping it shuts it down.
#[derive(Debug)]
pub struct TestServer {
    address: SocketAddr,
    /// Shutdown signal, sent when dropped.
    _stop: oneshot::Sender<()>,
    _task: JoinHandle<std::io::Result<()>>,
}

impl TestServer {
    /// Starts a server for `engine` and waits until it is ready. It listens on a free port; the address in `config` is
    /// ignored.
    pub async fn start(config: Config, engine: Arc<dyn SpeechEngine>) -> Result<Self> {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::bind(Config { listen, ..config }, engine).await?;
        let (address, mut ready) = (server.local_addr(), server.ready());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run(async move {
            // The sender is only dropped; that is the signal.
            let _ = stopped.await;
        }));
        ready.wait_for(|ready| *ready).await.context("the server went down before it was ready")?;
        Ok(Self { address, _stop: stop, _task: task })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the demo page.
    pub fn page(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Returns the base URL for a stock client.
    pub fn api(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}
