//! The HTTP server: routes, admission, health and shutdown.
//!
//! - `app`: state that every request shares, and admission
//! - `listen`, `tls`, `development_certificate`: connections, plain and encrypted
//! - `connections`: how many there may be
//! - `uploads`: bytes of uploads in memory
//! - `auth_middleware`: key, origin and CORS of every request, by `client_addr` and `origin`
//! - `keyless`: who may ask a server without keys
//! - `realtime`: `GET /v1/realtime`, the websocket
//! - `calls`: `POST /v1/realtime/calls`, WebRTC
//! - `chat`: `POST /v1/chat/completions`, one question in one upload
//! - `speech`: `POST /v1/audio/speech`, a text read aloud
//! - `generation`, `engine_session`: responses of the engine for one HTTP request
//! - `client_secrets`: ephemeral keys
//! - `models`: the served model
//! - `offer`: the body of `POST /v1/realtime/calls`
//! - `ice_servers`: short-lived TURN credentials
//! - `page`: the demo page
//! - `reload`: new keys and a new certificate while the server runs
//! - `api_error`: errors as HTTP responses

mod api_error;
mod app;
mod auth_middleware;
mod calls;
mod chat;
mod client_addr;
mod client_secrets;
mod connections;
mod development_certificate;
mod engine_session;
mod generation;
mod ice_servers;
mod keyless;
mod listen;
mod models;
mod offer;
mod origin;
mod page;
mod realtime;
mod reload;
mod speech;
mod tls;
mod uploads;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use repartee_engine_api::SpeechEngine;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_turn::{ModelError, TurnModel};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::admission::Admission;
use crate::auth::EphemeralKeys;
use crate::cli::lan;
use crate::config::{Config, ConfigError, Limits, Turns, WebRtc};
use crate::ids::Ids;
use crate::metrics::Metrics;
use crate::transport::webrtc::{Dropped, UdpMux, WebRtcSettings};
use crate::turn_judge::TurnJudge;
use api_error::ApiError;
pub(crate) use app::App;
use app::Phase;
use calls::Calls;
use connections::Connections;
pub use development_certificate::{Certificate, DevelopmentError, development_certificate};
use listen::ConnectionContext;
use origin::Origins;
pub use reload::{ReloadError, Reloader};
use tls::Certificates;
pub use tls::TlsError;
use uploads::Uploads;

/// How long calls may take to close, once they have to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a server could not be started.
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
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The turn-detection model cannot be loaded.
    #[error("turns.model: {0}")]
    Turns(#[from] ModelError),
    /// The threads of the turn-detection model cannot be started.
    #[error("the turn-detection model's threads cannot be started: {0}")]
    Threads(io::Error),
    /// The UDP port of the calls cannot be used.
    #[error("cannot use the UDP address {address} for calls: {error}")]
    Udp {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The operating system has no random numbers.
    #[error("no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// An internal error.
    #[error("the metrics could not be set up: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A server that listens but does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    certificates: Option<Arc<Certificates>>,
    /// Of a development certificate, for a person to compare.
    fingerprint: Option<String>,
    app: Arc<App>,
    /// Every call holds a clone.
    alive: mpsc::Sender<()>,
    /// Closed once every clone of `alive` is gone.
    calls_ended: mpsc::Receiver<()>,
}

/// A [`TlsAcceptor`] that can be printed.
struct Tls(TlsAcceptor);
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Server {
    /// Binds the sockets. [`Self::run`] serves.
    pub async fn bind(config: Config, engine: Arc<dyn SpeechEngine>) -> Result<Self, BindError> {
        config.check()?;
        let certificate = tls::certificate(&config.tls, lan::names)?;
        let fingerprint =
            certificate.as_ref().filter(|_| config.tls.development).and_then(|made| tls::fingerprint(made));
        let (tls, certificates) = certificate.map(tls::acceptor).transpose()?.unzip();
        let judge = turn_judge(&config.turns)?;
        let metrics = Arc::new(Metrics::new(engine.info().frame)?);
        metrics.slots.set(i64::try_from(engine.occupancy().1).unwrap_or(i64::MAX));
        let address = config.listen;
        let listener = TcpListener::bind(address).await.map_err(|error| BindError::Listen { address, error })?;
        let address = listener.local_addr().map_err(|error| BindError::Listen { address, error })?;
        let webrtc = webrtc_settings(&config.webrtc, address.ip());
        let udp = webrtc.udp;
        let udp_mux = UdpMux::bind(webrtc).map_err(|error| BindError::Udp { address: udp, error })?;
        let (alive, calls_ended) = mpsc::channel(1);
        let ids = Ids::new()?;
        let app = App {
            origins: Origins::new(&config.browser, !config.api_keys.is_empty()),
            admission: Admission::new(config.limits.clone()),
            keys: RwLock::new(config.api_keys.clone()),
            ephemeral: EphemeralKeys::new(ids.tag()),
            uploads: Uploads::new(chat::MAX_UPLOADED, chat::MAX_UPLOADED_BY_ONE),
            started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            config,
            engine,
            metrics,
            judge,
            ids,
            phase: watch::Sender::new(Phase::Serving),
            ready: watch::Sender::new(false),
            udp_mux,
            calls: Calls::default(),
            alive: alive.downgrade(),
        };
        let (tls, app) = (tls.map(Tls), Arc::new(app));
        Ok(Self { listener, address, tls, certificates, fingerprint, app, alive, calls_ended })
    }

    /// Replaces keys and certificate while the server runs.
    pub fn reloader(&self) -> Reloader {
        Reloader { app: self.app.clone(), certificates: self.certificates.clone() }
    }

    /// The SHA-256 fingerprint of the development certificate, if it has one: nobody else vouches for it.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// True while calls are accepted.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.app.ready.subscribe()
    }

    /// Serves until `shutdown`. Then it is not ready any more and accepts no new calls; running turns may end within
    /// [`Config::drain`]; then every call is closed.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let Self { listener, tls, app, alive, mut calls_ended, .. } = self;
        let context = ConnectionContext {
            router: router(app.clone()),
            reserve_router: reserve_router(app.clone()),
            tls: tls.map(|Tls(acceptor)| acceptor),
            trusted: app.config.proxy.trusted.clone(),
            head_timeout: app.config.limits.head,
            request_timeout: app.config.limits.request,
            stalled_after: app.config.stalled_after,
            metrics: app.metrics.clone(),
        };
        let Limits { connections, connections_per_address, .. } = app.config.limits;
        let connections = Connections::new(connections, connections_per_address, app.config.proxy.trusted.clone());
        app.ready.send_replace(true);
        let (connections_end, end) = watch::channel(false);
        let ended = async move {
            let mut end = end;
            // An error means that nobody waits any more.
            let _ = end.wait_for(|end| *end).await;
        };
        let serving = tokio::spawn(listen::serve(listener, context, connections, ended));
        shutdown.await;
        // While turns end, connections are still accepted: for health checks, and to refuse new calls.
        app.ready.send_replace(false);
        app.phase.send_replace(Phase::Draining);
        drop(alive);
        if timeout(app.config.drain, calls_ended.recv()).await.is_err() {
            tracing::warn!("some turns did not end in time");
        }
        app.phase.send_replace(Phase::Stopping);
        if timeout(CLOSE_TIMEOUT, calls_ended.recv()).await.is_err() {
            tracing::warn!("some calls did not end in time");
        }
        connections_end.send_replace(true);
        serving.await.map_err(io::Error::other)
    }
}

fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/v1/realtime", get(realtime::websocket))
        .route("/v1/realtime/calls", post(calls::create).layer(DefaultBodyLimit::max(offer::MAX_BODY)))
        .route("/v1/realtime/calls/{call}/hangup", post(calls::hang_up))
        .route(
            "/v1/realtime/client_secrets",
            post(client_secrets::create).layer(DefaultBodyLimit::max(client_secrets::MAX_BODY)),
        )
        .route("/v1/chat/completions", post(chat::create).layer(DefaultBodyLimit::max(chat::MAX_BODY)))
        .route("/v1/audio/speech", post(speech::create).layer(DefaultBodyLimit::max(speech::MAX_BODY)))
        .route("/v1/audio/voices", get(speech::voices))
        .route("/v1/realtime/ice_servers", get(ice_servers::list))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::show))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), auth_middleware::authenticate));
    Router::new()
        .merge(guarded)
        .route("/model.json", get(card))
        .route("/", get(page::index))
        .route("/admin", get(page::admin))
        .route("/{file}", get(page::file))
        .fallback(|| async { ApiError::not_found("there is nothing here") })
        .layer(middleware::from_fn_with_state(app.clone(), keyless::require_local))
        // Whoever watches the process asks from anywhere, by any name.
        .merge(health())
        .with_state(app)
}

/// What connections beyond the limit get.
fn reserve_router(app: Arc<App>) -> Router {
    let full = || async {
        let error = ErrorBody::server(ErrorKind::ConnectionLimit, "the server has as many connections as it takes");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(Duration::from_secs(1))
    };
    health().fallback(full).with_state(app)
}

/// Liveness and readiness.
fn health() -> Router<Arc<App>> {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(readiness))
}

/// The turn-detection model behind its threads, where one is configured.
fn turn_judge(settings: &Turns) -> Result<Option<TurnJudge>, BindError> {
    let Some(path) = &settings.model else { return Ok(None) };
    let model = TurnModel::load(path)?;
    let judge = TurnJudge::start(Arc::new(move |turn: &[f32]| model.probability(turn)), settings.threads);
    judge.map(Some).map_err(BindError::Threads)
}

/// The settings of calls for a server that listens for HTTP at `address`: the default UDP address is the same one.
fn webrtc_settings(config: &WebRtc, address: IpAddr) -> WebRtcSettings {
    WebRtcSettings {
        udp: config.udp.unwrap_or(SocketAddr::new(address, 0)),
        advertised: config.advertised.clone(),
        max_message_size: config.max_message_bytes,
        connect_within: config.connect_within,
        receiver_buffer: config.receiver_buffer,
    }
}

async fn wrong_method() -> ApiError {
    let error = ErrorBody::invalid(ErrorKind::WrongMethod, "this address does not support this method");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, error)
}

async fn readiness(State(app): State<Arc<App>>) -> Response {
    if *app.ready.borrow() && app.engine.ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}

/// The model card, for the demo page.
async fn card(State(app): State<Arc<App>>) -> Response {
    let card = app.config.card.clone();
    let card = card.unwrap_or_else(|| serde_json::json!({"name": app.engine.info().name}).to_string());
    ([(CONTENT_TYPE, "application/json")], card).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let Dropped { strangers, unread, unsent, unknown_ssrcs, refused, unproven } = app.udp_mux.dropped();
    for (reason, total) in [
        ("stranger", strangers),
        ("unread", unread),
        ("unsent", unsent),
        ("unknown_ssrc", unknown_ssrcs),
        ("refused", refused),
        ("unproven", unproven),
    ] {
        app.metrics.network.dropped(reason, total);
    }
    app.metrics.engine(&app.engine.work());
    match app.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => ApiError::internal(&error.to_string()).into_response(),
    }
}
