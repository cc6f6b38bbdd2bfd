//! The server with its model: routes, drain and shutdown.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use futures_util::future::BoxFuture;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::api_error::ApiError;
use super::app::AppState;
#[cfg(feature = "cluster")]
use super::cluster;
use super::control::{AbortOnDrop, ControlThread};
use super::keyless::{self, LocalOnlyPolicy};
use super::listen::AcceptTask;
use super::readiness::{Readiness, ServerPhase, ShutdownProgress, health};
use super::reload::Reloader;
use super::request_log::{self, RequestLog};
use super::request_threads::RequestThreads;
use super::routes::{self, ControlRefusal, RouterSwitch};
use super::tls::CertificateResolver;
use super::watchdog::LatenessHandle;
use super::{
    auth_middleware, calls, chat, client_secrets, extract, ice_servers, models, not_served, page, realtime, speech,
    stream_signature, telephony, transcription, usage, voices,
};
use crate::headroom::Load;
use crate::transport::webrtc::DroppedDatagrams;

/// Time for calls to close after the drain.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Server with its model. It serves once [`Self::run`] is called.
#[derive(Debug)]
pub struct Server {
    pub(super) address: SocketAddr,
    pub(super) certificates: Option<Arc<CertificateResolver>>,
    /// SHA-256 fingerprint of the development certificate, for a person to compare.
    pub(super) fingerprint: Option<String>,
    pub(super) app: Arc<AppState>,
    pub(super) keyless: Arc<LocalOnlyPolicy>,
    pub(super) accepting: AcceptTask,
    pub(super) control: ControlThread,
    pub(super) requests: RequestThreads,
    pub(super) control_routes: ControlRoutes,
    /// Address of the health listener.
    pub(super) health: Option<SocketAddr>,
    /// Dropped to drain; every call holds a clone.
    pub(super) alive: mpsc::Sender<()>,
    /// Closed once every clone of `alive` is dropped.
    pub(super) calls_ended: mpsc::Receiver<()>,
    /// Task of the signalling of telephone calls.
    #[cfg(feature = "phone")]
    pub(super) signalling: Option<AbortOnDrop>,
    /// Cluster that it joins when it serves.
    #[cfg(feature = "cluster")]
    pub(super) member: Option<crate::cluster::ClusterMember>,
    /// Number of nodes in the cluster, this one included.
    #[cfg(feature = "cluster")]
    pub(super) nodes: watch::Sender<usize>,
}

/// Routes of the control thread.
#[derive(Debug, Clone)]
pub(super) struct ControlRoutes {
    /// Health checks on the main listener, and connections beyond the limit.
    pub main: RouterSwitch,
    /// Connections of the health listener.
    pub health: RouterSwitch,
}

impl ControlRoutes {
    /// Builds the routes with this router of `/metrics`.
    pub fn new(readiness: &Arc<Readiness>, metrics: &Router) -> Self {
        let router = |refusal| RouterSwitch::new(routes::control(readiness.clone(), metrics.clone(), refusal));
        Self { main: router(ControlRefusal::Limit), health: router(ControlRefusal::HealthOnly) }
    }

    /// Switches to the routes of a loaded server.
    fn switch_to(&self, readiness: &Arc<Readiness>, metrics: &Router, usage: Router) {
        let router = |metrics, refusal| routes::control(readiness.clone(), metrics, refusal);
        self.main.switch_to(router(metrics.clone(), ControlRefusal::Limit));
        self.health.switch_to(router(metrics.clone().merge(usage), ControlRefusal::HealthOnly));
    }
}

impl Server {
    /// Sets the load of one call; see [`StartingServer::set_call_load`](super::StartingServer::set_call_load).
    pub fn set_call_load(&self, load: Load) {
        self.app.readiness.headroom().set_call_load(load);
    }

    /// Returns a handle that replaces keys and certificate while the server runs.
    pub fn reloader(&self) -> Reloader {
        Reloader { app: self.app.clone(), certificates: self.certificates.clone() }
    }

    /// Returns the SHA-256 fingerprint of the development certificate; `None` without one.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Returns the address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of `health.listen`; `None` if it is not set.
    pub fn health_addr(&self) -> Option<SocketAddr> {
        self.health
    }

    /// Returns the address of telephone calls over SIP; `None` if there are none.
    pub fn sip_addr(&self) -> Option<SocketAddr> {
        #[cfg(feature = "phone")]
        return self.app.sip.as_ref().and_then(|sip| sip.address());
        #[cfg(not(feature = "phone"))]
        None
    }

    /// Returns a handle that tells what is left of the shutdown.
    pub fn shutdown_progress(&self) -> ShutdownProgress {
        ShutdownProgress(self.app.readiness.clone())
    }

    /// Returns a handle that tells how late the runtime and the engine are.
    pub fn lateness(&self) -> LatenessHandle {
        self.app.lateness.clone()
    }

    /// Makes the server a node of a cluster, from the moment at which it serves.
    #[cfg(feature = "cluster")]
    #[must_use]
    pub fn with_member(mut self, member: crate::cluster::ClusterMember) -> Self {
        self.member = Some(member);
        self
    }

    /// Watches the number of nodes in the cluster that are there, this one included.
    #[cfg(feature = "cluster")]
    pub fn nodes(&self) -> watch::Receiver<usize> {
        self.nodes.subscribe()
    }

    /// Returns the tag in the ids of this process.
    #[cfg(feature = "cluster")]
    pub fn tag(&self) -> &str {
        self.app.ids.tag()
    }

    /// Watches the readiness: true while calls are accepted.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.app.readiness.ready()
    }

    /// Serves until `shutdown`. Then the server drains: it is not ready, refuses new calls, and lets running turns end
    /// within [`Config::drain`](crate::config::Config::drain). Then it closes every call.
    pub fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, io::Result<()>> {
        self.serve(Box::pin(shutdown))
    }

    fn serve(self, shutdown: BoxFuture<'static, ()>) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move {
            #[cfg(feature = "cluster")]
            let (address, member, nodes) = (self.address, self.member, self.nodes);
            #[cfg(feature = "phone")]
            let signalling = self.signalling;
            let Self { app, keyless, accepting, control, requests, control_routes, alive, mut calls_ended, .. } = self;
            let readiness = app.readiness.clone();
            let serving = async move {
                let (metrics, usage) = (guarded_metrics(&app, &keyless), guarded_usage(&app, &keyless));
                #[cfg(feature = "cluster")]
                let joined = member.map(|member| cluster::membership::join(&app, address, member, nodes)).transpose();
                #[cfg(feature = "cluster")]
                let joined = joined.map_err(io::Error::other)?;
                control_routes.switch_to(&readiness, &metrics, usage);
                accepting.routes.switch_to(router(app.clone(), keyless));
                readiness.set_phase(ServerPhase::Serving);
                let kept = tokio::spawn(usage::keep(app.clone()));
                let _end_with_server = AbortOnDrop(kept.abort_handle());
                shutdown.await;
                // Connections are accepted during the drain, for health checks and to refuse new calls.
                readiness.set_phase(ServerPhase::Draining);
                #[cfg(feature = "cluster")]
                cluster::membership::drain(&app);
                drop(alive);
                if timeout(app.config.drain, calls_ended.recv()).await.is_err() {
                    tracing::warn!("some turns did not end in time");
                }
                readiness.set_phase(ServerPhase::Stopping);
                if timeout(CLOSE_TIMEOUT, calls_ended.recv()).await.is_err() {
                    tracing::warn!("some calls did not end in time");
                }
                #[cfg(feature = "cluster")]
                cluster::membership::leave(&app, joined).await;
                readiness.set_phase(ServerPhase::Closing);
                accepting.end.send_replace(true);
                accepting.task.await.map_err(io::Error::other)?;
                #[cfg(feature = "phone")]
                if let Some(sip) = &app.sip {
                    sip.withdraw().await;
                }
                #[cfg(feature = "phone")]
                drop(signalling);
                readiness.set_phase(ServerPhase::Flushing);
                let flush = move || {
                    usage::save(&app);
                    // Blocks until the queued spans are sent.
                    app.traces.shut_down();
                };
                tokio::task::spawn_blocking(flush).await.map_err(io::Error::other)?;
                readiness.set_phase(ServerPhase::Ended);
                Ok(())
            };
            // On the control thread, because long work on the runtime may delay its timers.
            let serving = control.spawn(serving);
            let _abort = AbortOnDrop(serving.abort_handle());
            let served = serving.await.map_err(io::Error::other)?;
            drop(requests);
            served
        })
    }
}

/// Builds `/metrics` with the rules of [`router`], for the control thread.
fn guarded_metrics(app: &Arc<AppState>, keyless: &Arc<LocalOnlyPolicy>) -> Router {
    guarded(Router::new().route("/metrics", get(metrics)), app, keyless)
}

/// Builds the usage of all keys for the health listener.
fn guarded_usage(app: &Arc<AppState>, keyless: &Arc<LocalOnlyPolicy>) -> Router {
    guarded(Router::new().route("/v1/usage", get(usage::show_all)), app, keyless)
}

fn guarded(routes: Router<Arc<AppState>>, app: &Arc<AppState>, keyless: &Arc<LocalOnlyPolicy>) -> Router {
    routes
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), auth_middleware::authenticate))
        .layer(middleware::from_fn_with_state(keyless.clone(), keyless::require_local))
        .with_state(app.clone())
}

/// Requests about telephone calls over SIP.
fn phone_routes() -> Router<Arc<AppState>> {
    #[cfg(feature = "phone")]
    return Router::new()
        .route("/v1/realtime/calls/out", post(super::sip::call_out::call_out))
        .route("/v1/realtime/calls/{call}/accept", post(super::sip::control::accept))
        .route("/v1/realtime/calls/{call}/reject", post(super::sip::control::reject))
        .route("/v1/realtime/calls/{call}/refer", post(super::sip::control::refer));
    #[cfg(not(feature = "phone"))]
    Router::new()
}

fn router(app: Arc<AppState>, keyless: Arc<LocalOnlyPolicy>) -> Router {
    let guarded = phone_routes()
        .route("/v1/realtime", get(realtime::websocket))
        .route("/v1/realtime/calls", get(calls::list).post(calls::create))
        .route("/v1/realtime/calls/{call}/hangup", post(calls::hang_up))
        .route("/v1/realtime/client_secrets", post(client_secrets::create))
        .route(stream_signature::PATH, get(telephony::media_stream))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/audio/speech", post(speech::create))
        .route("/v1/audio/transcriptions", post(transcription::transcribe))
        .route("/v1/audio/translations", post(transcription::translate))
        .route("/v1/audio/voices", get(voices::list).post(voices::create))
        .route("/v1/audio/voices/{id}", delete(voices::delete))
        .route("/v1/audio/voice_consents", get(voices::consents).post(voices::create_consent))
        .route(
            "/v1/audio/voice_consents/{id}",
            get(voices::consent)
                .post(voices::rename_consent)
                .delete(voices::delete_consent)
                .layer(DefaultBodyLimit::max(voices::MAX_RENAME)),
        )
        .route("/v1/realtime/ice_servers", get(ice_servers::list))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::show))
        .route("/v1/usage", get(usage::show))
        .route("/v1/organization/usage/completions", get(usage::show))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(extract::refuse_compressed));
    #[cfg(feature = "cluster")]
    let guarded = guarded
        .route("/v1/cluster/nodes", get(cluster::nodes::list))
        .layer(middleware::from_fn_with_state(app.clone(), cluster::routing::route));
    let guarded = guarded.layer(middleware::from_fn_with_state(app.clone(), auth_middleware::authenticate));
    let readiness = app.readiness.clone();
    let log = RequestLog::new(&app.config);
    let routes = Router::new()
        .merge(guarded)
        .route("/model.json", get(card))
        .route("/", get(page::index))
        .route("/admin", get(page::admin))
        .route("/{file}", get(page::file))
        .fallback(|uri: Uri| async move { ApiError::not_found(not_served::describe(uri.path())) })
        .layer(middleware::from_fn_with_state(keyless, keyless::require_local));
    #[cfg(feature = "cluster")]
    let routes = routes
        .merge(cluster::keys::routes())
        .merge(cluster::voices::routes())
        .layer(middleware::from_fn_with_state(app.clone(), cluster::hops::accept_hop));
    routes
        .layer(middleware::from_fn_with_state(log, request_log::log_request))
        .with_state(app)
        // Health checks may come from any address and for any host name.
        .merge(health(readiness))
}

async fn wrong_method() -> ApiError {
    let error = ErrorBody::invalid(ErrorKind::WrongMethod, "this address does not support this method");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, error)
}

/// Serves the model card for the demo page, with the model's capabilities; without one, a card with the model's name.
async fn card(State(app): State<Arc<AppState>>) -> Json<Value> {
    let card = app.config.card.as_deref().and_then(|card| serde_json::from_str::<Map<String, Value>>(card).ok());
    let mut card = card.unwrap_or_else(|| Map::from_iter([("name".to_owned(), app.engine.info().name.clone().into())]));
    card.insert("capabilities".to_owned(), models::capabilities(&app));
    Json(Value::Object(card))
}

async fn metrics(State(app): State<Arc<AppState>>) -> Response {
    let DroppedDatagrams { unmatched: strangers, unread, unsent, unknown_ssrcs, refused, unvalidated: unproven } =
        app.udp_mux.dropped();
    for (reason, total) in [
        ("stranger", strangers),
        ("unread", unread),
        ("unsent", unsent),
        ("unknown_ssrc", unknown_ssrcs),
        ("refused", refused),
        ("unproven", unproven),
    ] {
        app.metrics.network.set_dropped(reason, total);
    }
    app.metrics.set_engine(&app.engine.work(), &app.engine.load());
    app.metrics.bytes_in_flight.set(i64::try_from(app.bytes.total()).unwrap_or(i64::MAX));
    let usage = app.key_usage();
    app.metrics.set_keys(usage.iter().map(|(name, usage)| (name.as_str(), usage.clone())));
    let rendered = app.metrics.render();
    #[cfg(feature = "cluster")]
    let rendered = rendered.and_then(|text| Ok(text + &cluster::metrics::render(&app)?));
    match rendered {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => ApiError::internal(&error.to_string()).into_response(),
    }
}
