//! `/healthz` and `/readyz`: liveness and readiness.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use repartee_engine::StartProgress;
use repartee_engine_api::SpeechEngine;
use serde_json::json;
use tokio::sync::watch;

use crate::headroom::Headroom;

/// `Retry-After` of a starting server, in seconds.
pub(super) const STARTING_RETRY_S: u64 = 2;

/// Phase of the server's life, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerPhase {
    /// The model is loading.
    Starting,
    /// The server accepts calls.
    Serving,
    /// Running turns end, and no call begins.
    Draining,
    /// The server closes every call.
    Stopping,
    /// The server closes its connections.
    Closing,
    /// The server sends the last traces.
    Flushing,
    /// The server has ended; its runtime and engine end.
    Ended,
}

impl ServerPhase {
    /// Describes the work that is left of a shutdown.
    fn left(self) -> &'static str {
        match self {
            Self::Starting => "the model loads",
            Self::Serving => "the runtime does not begin to shut down",
            Self::Draining => "turns are running",
            Self::Stopping => "calls do not end",
            Self::Closing => "connections do not close",
            Self::Flushing => "the last traces are not sent",
            Self::Ended => "the engine or a task of the runtime does not end",
        }
    }
}

/// Handle that tells what is left of a server's shutdown.
#[derive(Debug, Clone)]
pub struct ShutdownProgress(pub(super) Arc<Readiness>);

impl ShutdownProgress {
    /// Describes what is left, as a clause.
    pub fn left(&self) -> &'static str {
        self.0.phase().left()
    }
}

/// Phase and start progress of a server.
pub(super) struct Readiness {
    phase: watch::Sender<ServerPhase>,
    progress: watch::Sender<StartProgress>,
    /// Engine, once the model is loaded.
    engine: OnceLock<Arc<dyn SpeechEngine>>,
    /// True in [`ServerPhase::Serving`].
    ready: watch::Sender<bool>,
    headroom: Headroom,
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness").field("phase", &self.phase()).finish_non_exhaustive()
    }
}

impl Readiness {
    /// Creates the state of a server that begins to start.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            phase: watch::Sender::new(ServerPhase::Starting),
            progress: watch::Sender::new(StartProgress::BEGIN),
            engine: OnceLock::new(),
            ready: watch::Sender::new(false),
            headroom: Headroom::default(),
        })
    }

    /// Sets the progress of the start.
    pub fn set_progress(&self, progress: StartProgress) {
        self.progress.send_replace(progress);
    }

    /// Watches the progress of the start.
    pub fn progress(&self) -> watch::Receiver<StartProgress> {
        self.progress.subscribe()
    }

    /// Sets the engine, once the model is loaded.
    pub fn set_engine(&self, engine: Arc<dyn SpeechEngine>) {
        // It is set once, because a server loads one model.
        let _ = self.engine.set(engine);
    }

    /// Returns the engine, once the model is loaded.
    pub fn engine(&self) -> Option<&Arc<dyn SpeechEngine>> {
        self.engine.get()
    }

    pub fn phase(&self) -> ServerPhase {
        *self.phase.borrow()
    }

    /// Sets the phase, and the readiness with it.
    pub fn set_phase(&self, phase: ServerPhase) {
        self.phase.send_replace(phase);
        self.ready.send_replace(phase == ServerPhase::Serving);
    }

    /// Completes when the phase is `wanted` or a later one.
    pub fn reached(&self, wanted: ServerPhase) -> impl Future<Output = ()> + Send + use<> {
        let mut phase = self.phase.subscribe();
        async move {
            // An error means that the server is gone already.
            let _ = phase.wait_for(|phase| *phase >= wanted).await;
        }
    }

    /// Watches the readiness: true while calls are accepted.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Returns the headroom of the machine.
    pub fn headroom(&self) -> &Headroom {
        &self.headroom
    }

    /// Builds the response of `/readyz`.
    fn response(&self) -> Response {
        let body = match self.phase() {
            ServerPhase::Serving if self.engine.get().is_some_and(|engine| engine.ready()) => {
                return Json(json!({"status": "ready", "headroom": two_digits(self.headroom.left())})).into_response();
            }
            // The engine restarts after a fault.
            ServerPhase::Serving => json!({"status": "restarting"}),
            ServerPhase::Starting => {
                let StartProgress { stage, fraction } = *self.progress.borrow();
                json!({"status": "starting", "stage": stage.name(), "fraction": two_digits(fraction.into())})
            }
            _ => json!({"status": "draining"}),
        };
        (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, STARTING_RETRY_S)], Json(body)).into_response()
    }
}

/// Rounds a fraction for a progress bar or a balancer.
fn two_digits(fraction: f64) -> f64 {
    (fraction * 100.0).round() / 100.0
}

/// Builds the routes `/healthz` and `/readyz`.
pub(super) fn health(readiness: Arc<Readiness>) -> Router {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(readyz)).with_state(readiness)
}

async fn readyz(State(readiness): State<Arc<Readiness>>) -> Response {
    readiness.response()
}
