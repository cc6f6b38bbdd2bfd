//! What every request shares, and the way into the server.

use std::future::Future;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use repartee_engine_api::{OpenError, SessionHandle, SpeechEngine};
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::{Delivery, Setup};
use tokio::sync::{Semaphore, mpsc, watch};

use super::calls::Calls;
use super::gate::Caller;
use super::origin::Origins;
use super::reply::Refusal;
use crate::admission::{Admission, Denied, Ticket};
use crate::auth::{EphemeralKeys, KeySet};
use crate::config::Config;
use crate::ids::Ids;
use crate::metrics::Metrics;
use crate::transport::webrtc::Port;

/// When a full server, or one that goes down, may be worth another try.
const BUSY_RETRY: Duration = Duration::from_secs(5);

/// How far the server is on its way down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Calls are taken.
    Serving,
    /// Turns that run end, and nothing new begins.
    Draining,
    /// Everything ends.
    Stopping,
}

/// What every request shares.
pub(crate) struct App {
    pub(super) config: Config,
    pub(super) engine: Arc<dyn SpeechEngine>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) ids: Ids,
    pub(super) origins: Origins,
    pub(super) admission: Arc<Admission>,
    /// The keys that open the server. They may change; that there are some does not.
    pub(super) keys: RwLock<KeySet>,
    pub(super) ephemeral: EphemeralKeys,
    /// Room for uploads in memory.
    pub(super) uploads: Arc<Semaphore>,
    /// When the server was started, in seconds since 1970.
    pub(super) started: u64,
    pub(super) phase: watch::Sender<Phase>,
    /// True while calls are taken. The engine is warm before there is a server.
    pub(super) ready: watch::Sender<bool>,
    /// The UDP socket of all WebRTC calls.
    pub(super) port: Port,
    /// WebRTC calls by name.
    pub(super) calls: Calls,
    /// Cloned by every call. Weak, because requests outlive it.
    pub(super) alive: mpsc::WeakSender<()>,
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
    _ticket: Ticket,
    _alive: Option<mpsc::Sender<()>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.active.dec();
    }
}

impl App {
    /// A session of the engine and a place in the server, or the answer that there is none.
    pub(super) fn admit(&self, caller: &Caller) -> Result<(SessionHandle, Place), Refusal> {
        self.is_serving()?;
        let ticket = self.admission.admit(caller.asker, Instant::now()).map_err(|denied| self.denied(&denied))?;
        let session = self.engine.open().map_err(|error| match error {
            OpenError::Full { .. } => self.full(&error.to_string()),
            OpenError::Stopped => Refusal::internal(&error.to_string()),
        })?;
        self.metrics.active.inc();
        Ok((session, Place { metrics: self.metrics.clone(), _ticket: ticket, _alive: self.alive.upgrade() }))
    }

    fn is_serving(&self) -> Result<(), Refusal> {
        if *self.phase.borrow() == Phase::Serving {
            return Ok(());
        }
        self.metrics.refused.with_label_values(&["draining"]).inc();
        Err(unavailable(ErrorKind::ShuttingDown, "the server is going down"))
    }

    /// Whether a request that takes work to read would find a place now. It may still be refused when it was read.
    pub(super) fn has_room(&self) -> Result<(), Refusal> {
        self.is_serving()?;
        match self.engine.occupancy() {
            (open, slots) if open >= slots => Err(self.full(&OpenError::Full { slots }.to_string())),
            _ => Ok(()),
        }
    }

    /// The answer that there is no room.
    pub(super) fn full(&self, message: &str) -> Refusal {
        self.metrics.refused.with_label_values(&["full"]).inc();
        unavailable(ErrorKind::SessionLimit, message)
    }

    /// Counts a request that opens a door but takes no place.
    pub(super) fn keep_pace(&self, caller: &Caller) -> Result<(), Refusal> {
        self.admission.pace(caller.asker.address, Instant::now()).map_err(|denied| self.denied(&denied))
    }

    fn denied(&self, denied: &Denied) -> Refusal {
        self.metrics.refused.with_label_values(&[denied.label()]).inc();
        let kind = match denied {
            Denied::CallsOfKey { .. } | Denied::CallsOfAddress { .. } => ErrorKind::CallLimit,
            Denied::Pace { .. } => ErrorKind::RateLimit,
        };
        let error = ErrorBody::invalid(kind, denied.to_string());
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, error).again_after(denied.retry_after())
    }

    /// Returns when the server begins to go down.
    pub(super) fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        self.reached(Phase::Draining)
    }

    /// Returns when everything has to end.
    pub(super) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        self.reached(Phase::Stopping)
    }

    fn reached(&self, wanted: Phase) -> impl Future<Output = ()> + Send + use<> {
        let mut phase = self.phase.subscribe();
        async move {
            // An error means that the server is gone already.
            let _ = phase.wait_for(|phase| *phase >= wanted).await;
        }
    }

    /// What a new conversation has to know.
    pub(super) fn setup(&self, delivery: Delivery, caller: &Caller) -> Result<Setup, Refusal> {
        let random = |error: getrandom::Error| Refusal::internal(&error.to_string());
        let session_id = self.ids.session().map_err(random)?;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(random)?;
        // The end of a session's id is random; half of it is enough to tell items of different sessions apart.
        let stem = session_id[session_id.len() - 16..].to_owned();
        let (seed, model) = (u64::from_le_bytes(seed), self.engine.info().clone());
        Ok(Setup { session_id, stem, seed, model, delivery, configuration: caller.session.clone() })
    }
}

fn unavailable(kind: ErrorKind, message: &str) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, ErrorBody::server(kind, message)).again_after(BUSY_RETRY)
}
