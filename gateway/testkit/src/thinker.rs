//! A server whose model is a cascade with a chat-completions server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use repartee::config::{CascadeConfig, ThinkSource};
use repartee::server::StartingServer;
use repartee::thinker;
use repartee_engine::{CascadeParts, Engine, EngineConfig};
use tokio::task::JoinHandle;

use super::{Client, config, connect, fixture};

/// Server with a cascade. Dropping it ends it.
#[derive(Debug)]
pub struct Cascade {
    /// Address that it listens on.
    pub address: SocketAddr,
    task: JoinHandle<std::io::Result<()>>,
}

impl Cascade {
    /// Serves the language model at `host`, with one attempt for each request; `speak` is the fixture of its voice.
    pub async fn serve(host: &str, speak: Option<&str>, change: impl FnOnce(&mut CascadeConfig)) -> Self {
        Self::serve_heard(host, None, speak, change).await
    }

    /// As [`Self::serve`], with the fixture of a recogniser.
    pub async fn serve_heard(
        host: &str,
        hear: Option<&str>,
        speak: Option<&str>,
        change: impl FnOnce(&mut CascadeConfig),
    ) -> Self {
        let mut config = config();
        config.cascade.think = Some(ThinkSource::try_from(PathBuf::from(format!("http://{host}/v1"))).unwrap());
        (config.cascade.model, config.cascade.attempts) = (Some("small".to_owned()), 1);
        change(&mut config.cascade);
        let listening = StartingServer::bind(config.clone()).await.unwrap();
        let think = thinker::open(&config.cascade, listening.thinker_metrics()).unwrap().unwrap();
        let (hear, speak) = (hear.map(fixture), speak.map(fixture));
        let start = move || {
            Engine::start_remote_cascade(
                think,
                CascadeParts { hear, think: None, speak },
                &EngineConfig::default(),
                |_| {},
            )
        };
        let engine = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
        let server = listening.with_engine(Arc::new(engine)).await.unwrap();
        let (address, mut ready) = (server.local_addr(), server.ready());
        let task = tokio::spawn(server.run(std::future::pending()));
        ready.wait_for(|ready| *ready).await.unwrap();
        Self { address, task }
    }

    /// Connects a realtime client, and reads `session.created`.
    pub async fn connect(&self) -> Client {
        connect(self.address).await
    }
}

impl Drop for Cascade {
    fn drop(&mut self) {
        self.task.abort();
    }
}
