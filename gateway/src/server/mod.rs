//! The HTTP server: routes, admission, health, and the way down.
//!
//! - `realtime`: `GET /v1/realtime`, the websocket
//! - `calls`: `POST /v1/realtime/calls`, WebRTC
//! - `page`: the demo page
//! - `origin`: which web pages may call
//! - `reply`: errors as HTTP answers

mod calls;
mod origin;
mod page;
mod realtime;
mod reply;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use repartee_engine::session::{OpenError, Session, SpeechEngine};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::config::{Config, ConfigError};
use crate::ids::Ids;
use crate::metrics::Metrics;
use crate::protocol::{ErrorBody, ErrorKind};
use crate::session::{Delivery, Setup};
use calls::Calls;
use reply::Refusal;

/// Why a server could not be made.
#[derive(Debug, Error)]
pub enum BindError {
    /// The settings are refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address cannot be used.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The operating system has no random numbers.
    #[error("no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// A defect of ours.
    #[error("the metrics could not be set up: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A server that listens but does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    /// Every call holds a clone.
    alive: mpsc::Sender<()>,
    /// Closed once every clone of `alive` is gone.
    calls_ended: mpsc::Receiver<()>,
}

/// What every request shares.
pub(crate) struct App {
    config: Config,
    engine: Arc<dyn SpeechEngine>,
    metrics: Arc<Metrics>,
    ids: Ids,
    /// True once the server goes down.
    stop: watch::Sender<bool>,
    /// True while calls are taken. The engine is warm before there is a server.
    ready: watch::Sender<bool>,
    /// WebRTC calls by name.
    calls: Calls,
    /// Cloned by every call. Weak, because requests outlive it.
    alive: mpsc::WeakSender<()>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A place in the server: counts as an active call as long as it lives, and keeps the server from exiting.
#[derive(Debug)]
pub(crate) struct Place {
    metrics: Arc<Metrics>,
    _alive: Option<mpsc::Sender<()>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.active.dec();
    }
}

impl App {
    /// A session of the engine and a place in the server, or the answer that there is none.
    fn admit(&self) -> Result<(Session, Place), Refusal> {
        let unavailable =
            |kind, message: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, ErrorBody::server(kind, message));
        if *self.stop.borrow() {
            return Err(unavailable(ErrorKind::ShuttingDown, "the server is going down".into()));
        }
        let session = self.engine.open().map_err(|error| {
            let kind = match error {
                OpenError::Full { .. } => ErrorKind::SessionLimit,
                OpenError::Stopped => ErrorKind::Internal,
            };
            self.metrics.refused.inc();
            unavailable(kind, error.to_string())
        })?;
        self.metrics.active.inc();
        Ok((session, Place { metrics: self.metrics.clone(), _alive: self.alive.upgrade() }))
    }

    /// Returns when the server goes down.
    fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            // An error means that the server is gone already.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// What a new conversation has to know.
    fn setup(&self, delivery: Delivery) -> Result<Setup, Refusal> {
        let random = |error: getrandom::Error| Refusal::internal(&error.to_string());
        let session_id = self.ids.session().map_err(random)?;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(random)?;
        // The end of a session's id is random; half of it is enough to tell items of different sessions apart.
        let stem = session_id[session_id.len() - 16..].to_owned();
        let model = self.engine.info().clone();
        Ok(Setup { session_id, stem, seed: u64::from_le_bytes(seed), model, delivery })
    }
}

impl Server {
    /// Listens. Calls are answered by [`Self::run`].
    pub async fn bind(config: Config, engine: Arc<dyn SpeechEngine>) -> Result<Self, BindError> {
        config.check()?;
        let metrics = Arc::new(Metrics::new(engine.info().frame)?);
        let address = config.listen;
        let listener = TcpListener::bind(address).await.map_err(|error| BindError::Listen { address, error })?;
        let address = listener.local_addr().map_err(|error| BindError::Listen { address, error })?;
        let (alive, calls_ended) = mpsc::channel(1);
        let app = App {
            config,
            engine,
            metrics,
            ids: Ids::new()?,
            stop: watch::Sender::new(false),
            ready: watch::Sender::new(false),
            calls: Calls::default(),
            alive: alive.downgrade(),
        };
        Ok(Self { listener, address, app: Arc::new(app), alive, calls_ended })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// True while calls are taken.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.app.ready.subscribe()
    }

    /// Answers until `shutdown`; then takes no new calls, says good-bye to those that run, and waits for them, but not
    /// longer than [`Config::drain`].
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let Self { listener, app, alive, mut calls_ended, .. } = self;
        app.ready.send_replace(true);
        let listener = listener.tap_io(|socket| {
            // Packets of speech are small and late ones are worthless.
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY");
            }
        });
        let stopping = app.clone();
        let stopped = app.stopped();
        let serving = axum::serve(listener, router(app.clone())).with_graceful_shutdown(async move {
            shutdown.await;
            stopping.ready.send_replace(false);
            stopping.stop.send_replace(true);
        });
        let drain = async {
            stopped.await;
            tokio::time::sleep(app.config.drain).await;
        };
        let result = tokio::select! {
            result = serving => result,
            // A request that never ends does not keep the server from ending.
            () = drain => Ok(()),
        };
        drop(alive);
        if timeout(app.config.drain, calls_ended.recv()).await.is_err() {
            tracing::warn!("some calls did not end in time");
        }
        result
    }
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/realtime", get(realtime::websocket))
        .route("/v1/realtime/calls", post(calls::create).layer(DefaultBodyLimit::max(calls::MAX_OFFER)))
        .route("/v1/realtime/calls/{call}/hangup", post(calls::hang_up))
        .route("/model.json", get(card))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .route("/", get(page::index))
        .route("/{file}", get(page::file))
        .fallback(|| async { Refusal::not_found("there is nothing here") })
        .with_state(app)
}

async fn readiness(State(app): State<Arc<App>>) -> Response {
    if *app.ready.borrow() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}

/// What the demo page shows about the model.
async fn card(State(app): State<Arc<App>>) -> Response {
    let card = app.config.card.clone();
    let card = card.unwrap_or_else(|| serde_json::json!({"name": app.engine.info().name}).to_string());
    ([(CONTENT_TYPE, "application/json")], card).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    match app.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => Refusal::internal(&error.to_string()).into_response(),
    }
}
