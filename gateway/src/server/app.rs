//! State that all requests share, and the admission of calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use repartee_engine_api::{ModelInfo, OpenError, SessionHandle, SpeechEngine};
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::{Delivery, SessionSetup};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use super::api_error::ApiError;
use super::call_registry::{CallRegistry, ListedCall};
use super::caller::Caller;
use super::origin::OriginPolicy;
use super::processor_share::ProcessorShares;
use super::readiness::{Readiness, ServerPhase};
#[cfg(feature = "phone")]
use super::sip::SipService;
use super::watchdog::LatenessHandle;
use crate::admission::{Admission, AdmissionError, CALL_RETRY, KeyCalls, Permit};
use crate::auth::ephemeral::EphemeralKeys;
use crate::auth::wrong_keys::WrongKeys;
use crate::auth::{KeyId, KeySet};
use crate::budget::KeyBudgets;
use crate::budget::account::{CountedSession, KeyAccount};
use crate::budget::call_budget::CallBudget;
use crate::budget::key_limit::{KeyLimit, OverBudget};
use crate::byte_budget::ByteBudget;
use crate::call::{CallLimits, CallServices};
use crate::config::Config;
use crate::headroom::{BegunCall, Headroom, NoHeadroom};
use crate::ids::IdGenerator;
use crate::long_work::LongWork;
use crate::metrics::{KeyUsage, Metrics};
use crate::recording::Recordings;
use crate::telemetry::TraceExporter;
use crate::transport::webrtc::UdpMux;
use crate::turn_judge::TurnModelPool;
use crate::voices::VoiceStore;

/// `Retry-After` of a full or draining server.
const BUSY_RETRY: Duration = Duration::from_secs(5);

/// State that all requests share.
pub(crate) struct AppState {
    pub(super) config: Config,
    pub(super) engine: Arc<dyn SpeechEngine>,
    pub(super) metrics: Arc<Metrics>,
    /// Turn-detection model; `None` if none is configured.
    pub(super) judge: Option<TurnModelPool>,
    pub(super) ids: IdGenerator,
    pub(super) origins: OriginPolicy,
    pub(super) admission: Arc<Admission>,
    /// Budgets of the API keys.
    pub(super) budgets: KeyBudgets,
    /// API keys. A reload may replace them, but not add the first or remove the last.
    pub(super) keys: RwLock<KeySet>,
    pub(super) ephemeral: EphemeralKeys,
    /// Addresses that send wrong keys.
    pub(super) wrong_keys: WrongKeys,
    /// Voices enrolled from recordings.
    pub(super) voices: VoiceStore,
    /// Bytes of requests in memory.
    pub(super) bytes: Arc<ByteBudget>,
    /// Threads of long computations.
    pub(super) long_work: Arc<LongWork>,
    /// Processor time of websockets.
    pub(super) processor_shares: ProcessorShares,
    /// Runtime of calls. Requests have another one.
    pub(super) call_threads: Handle,
    /// Start of the server, in seconds since 1970.
    pub(super) started: u64,
    pub(super) readiness: Arc<Readiness>,
    /// Delays of the runtime and the engine.
    pub(super) lateness: LatenessHandle,
    /// Exporter of the calls' spans.
    pub(super) traces: TraceExporter,
    /// UDP socket of all WebRTC calls.
    pub(super) udp_mux: UdpMux,
    /// Calls by id.
    pub(super) calls: CallRegistry,
    /// Recordings of telephone calls; `None` if none is recorded.
    pub(super) recordings: Option<Arc<Recordings>>,
    /// Signalling of telephone calls over SIP; `None` without `sip.listen`.
    #[cfg(feature = "phone")]
    pub(super) sip: Option<Arc<SipService>>,
    /// This node's part in a cluster, once it has joined one.
    #[cfg(feature = "cluster")]
    pub(super) cluster: std::sync::OnceLock<crate::cluster::membership::Membership>,
    /// Every call holds a strong clone. Weak here, because requests may outlive the server's run.
    pub(super) alive: mpsc::WeakSender<()>,
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Guard of an active call: counts in the metrics, holds the admission permit, and delays the server's exit.
#[derive(Debug)]
pub(crate) struct CallGuard {
    metrics: Arc<Metrics>,
    _permit: Permit,
    session: CountedSession,
    /// The call for the headroom, if it is one.
    begun: Option<BegunCall>,
    _alive: Option<mpsc::Sender<()>>,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.metrics.active_calls.dec();
    }
}

impl CallGuard {
    /// Account of the call's key.
    pub fn account(&self) -> &KeyAccount {
        self.session.account()
    }
}

impl AppState {
    /// Runs the work of a call on the threads of calls, within the current span.
    pub(super) fn spawn_call<W>(&self, work: W) -> JoinHandle<W::Output>
    where
        W: Future<Output: Send> + Send + 'static,
    {
        self.call_threads.spawn(work.in_current_span())
    }

    /// Admits a call: returns a session of the engine and the call's guard, or the refusal.
    pub(super) fn admit_call(&self, caller: &Caller) -> Result<(SessionHandle, CallGuard), ApiError> {
        let (session, mut guard) = self.admit(caller)?;
        guard.begun =
            Some(self.readiness.headroom().begin(self.budgets.key_of_several(caller.client.key), Instant::now()));
        Ok((session, guard))
    }

    /// Admits a request that is answered as fast as the engine can; see [`Self::admit_call`].
    pub(super) fn admit(&self, caller: &Caller) -> Result<(SessionHandle, CallGuard), ApiError> {
        self.check_serving()?;
        let now = Instant::now();
        let account = self.budgets.account(caller.client.key);
        account.check_tokens(now).map_err(|over| self.over_budget(over))?;
        let permit = self.admission.admit(caller.client, self.calls_of(caller.client.key), now).map_err(|denied| {
            if matches!(denied, AdmissionError::KeyLimit { .. }) {
                account.count_refusal(KeyLimit::Calls);
            }
            self.denied(&denied)
        })?;
        self.check_headroom(caller.client.key, now)?;
        let session = self.engine.open_for(account.tenant()).map_err(|error| match error {
            OpenError::Full { .. } => self.full(&error.to_string()),
            OpenError::Stopped => ApiError::internal(&error.to_string()),
        })?;
        self.metrics.active_calls.inc();
        let guard = CallGuard {
            metrics: self.metrics.clone(),
            _permit: permit,
            session: account.count_session(),
            begun: None,
            _alive: self.alive.upgrade(),
        };
        Ok((session, guard))
    }

    /// Calls that a key may have, and has on other nodes of the cluster.
    pub(super) fn calls_of(&self, key: Option<KeyId>) -> KeyCalls {
        let slots = self.engine.occupancy().1;
        #[cfg(feature = "cluster")]
        let (slots, elsewhere) = match self.cluster.get().map(|cluster| cluster.elsewhere(key)) {
            Some((others, calls)) => (slots.saturating_add(others), calls),
            None => (slots, 0),
        };
        #[cfg(not(feature = "cluster"))]
        let elsewhere = 0;
        KeyCalls { most: self.budgets.calls_of(key, slots), elsewhere }
    }

    /// Counts input sound of an upload, or refuses it if the key has sent too much.
    pub(super) fn take_sound(&self, caller: &Caller, sound: Duration) -> Result<(), ApiError> {
        let account = self.budgets.account(caller.client.key);
        account.take_sound(sound, Instant::now()).map_err(|over| self.over_budget(over))
    }

    /// Fails if the key has sent too much sound. Sound of a file that is read piece by piece is counted afterwards.
    pub(super) fn check_sound(&self, caller: &Caller) -> Result<(), ApiError> {
        let account = self.budgets.account(caller.client.key);
        account.check_sound(Instant::now()).map_err(|over| self.over_budget(over))
    }

    fn over_budget(&self, over: OverBudget) -> ApiError {
        self.metrics.requests.refused.with_label_values(&["budget"]).inc();
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, over.into()).retry_after(over.retry_after)
    }

    /// Use of the server by API keys, by name; keys of one name together.
    pub(super) fn key_usage(&self) -> BTreeMap<String, KeyUsage> {
        let ephemeral = self.ephemeral.counts(Instant::now());
        let mut by_name: BTreeMap<String, KeyUsage> = BTreeMap::new();
        for (key, account) in self.budgets.all() {
            let usage = by_name.entry(account.name().to_string()).or_default();
            usage.sessions += account.sessions();
            usage.ephemeral += i64::try_from(ephemeral.get(&key).copied().unwrap_or_default()).unwrap_or(i64::MAX);
            usage.prefill += account.tenant().work.prefill();
            usage.decode += account.tenant().work.decode();
            usage.totals.add(account.usage());
            let mut refused = KeyLimit::ALL.map(|limit| (limit.name(), account.refused(limit)));
            for (sum, (_, before)) in refused.iter_mut().zip(&usage.refused) {
                sum.1 += before;
            }
            usage.refused = refused.to_vec();
        }
        by_name
    }

    fn check_serving(&self) -> Result<(), ApiError> {
        if self.readiness.phase() == ServerPhase::Serving {
            return Ok(());
        }
        self.metrics.requests.refused.with_label_values(&["draining"]).inc();
        Err(unavailable(ErrorKind::ShuttingDown, "the server is shutting down"))
    }

    /// Fails if the server would refuse a call now, before a request is read at some cost. [`Self::admit`] may still
    /// refuse.
    pub(super) fn check_capacity(&self, key: Option<KeyId>) -> Result<(), ApiError> {
        self.check_serving()?;
        match self.engine.occupancy() {
            (open, slots) if open >= slots => Err(self.full(&OpenError::Full { slots }.to_string())),
            _ => self.check_headroom(key, Instant::now()),
        }
    }

    /// Fails if one call more would make those late that are served, or take what is left to other keys.
    fn check_headroom(&self, key: Option<KeyId>, now: Instant) -> Result<(), ApiError> {
        if !self.config.limits.headroom {
            return Ok(());
        }
        let headroom = self.readiness.headroom();
        match headroom.admit(self.budgets.key_of_several(key), now) {
            Ok(()) => Ok(()),
            Err(NoHeadroom::Machine) => {
                self.metrics.requests.refused.with_label_values(&["overload"]).inc();
                let calls = headroom.calls();
                let message =
                    format!("limits.headroom: the machine is full with {calls} calls: try again, or on another server");
                Err(unavailable(ErrorKind::SessionLimit, &message))
            }
            Err(NoHeadroom::Key) => {
                self.budgets.account(key).count_refusal(KeyLimit::Calls);
                self.metrics.requests.refused.with_label_values(&["key"]).inc();
                let message = "limits.headroom: this key has its share of the machine, and the rest is left to other \
                               keys: try again, or end a call first";
                let error = ErrorBody::invalid(ErrorKind::CallLimit, message).with_param("headroom");
                Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, error).retry_after(CALL_RETRY))
            }
        }
    }

    /// Counts a refusal of a full server and returns its error.
    pub(super) fn full(&self, message: &str) -> ApiError {
        self.metrics.requests.refused.with_label_values(&["full"]).inc();
        unavailable(ErrorKind::SessionLimit, message)
    }

    /// Applies the rate limit to a request that takes no slot.
    pub(super) fn check_rate(&self, caller: &Caller) -> Result<(), ApiError> {
        self.admission.check_rate(caller.client.address, Instant::now()).map_err(|denied| self.denied(&denied))
    }

    fn denied(&self, denied: &AdmissionError) -> ApiError {
        self.metrics.requests.refused.with_label_values(&[denied.label()]).inc();
        let kind = match denied {
            AdmissionError::KeyLimit { .. } | AdmissionError::AddressLimit { .. } => ErrorKind::CallLimit,
            AdmissionError::RateLimit { .. } => ErrorKind::RateLimit,
        };
        let error = ErrorBody::invalid(kind, denied.to_string()).with_param(denied.name());
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, error).retry_after(denied.retry_after())
    }

    /// Time limits of a call; a setting of 0 means none.
    pub(super) fn call_limits(&self) -> CallLimits {
        let limit = |duration: Duration| Some(duration).filter(|duration| !duration.is_zero());
        CallLimits {
            max_duration: limit(self.config.limits.call),
            idle_timeout: limit(self.config.limits.idle),
            longest_turn: limit(self.config.turns.longest),
        }
    }

    /// Name of the caller's API key; `none` without one.
    pub(super) fn key_name(&self, caller: &Caller) -> String {
        self.budgets.account(caller.client.key).name().to_string()
    }

    /// Services of a call that begins now, which is logged.
    pub(super) fn call_services(&self, id: &str, caller: &Caller, listed: &ListedCall) -> CallServices {
        let account = self.budgets.account(caller.client.key);
        let transport = listed.transport;
        let request_id = &*caller.request_id.0;
        tracing::info!(transport, key = %account.name(), address = %caller.client.address, request_id, "a call begins");
        CallServices {
            limits: self.call_limits(),
            budget: CallBudget::new(account),
            metrics: self.metrics.clone(),
            summary: listed.summary.clone(),
            judge: self.judge.clone(),
            long_work: self.long_work.of(caller.client),
            headroom: if self.config.limits.headroom { self.readiness.headroom().clone() } else { Headroom::default() },
            trace: self.traces.call(id, transport),
            cancels_echo: self.config.turns.echo_cancellation,
            barge_in: self.config.turns.barge_in.into(),
        }
    }

    /// Completes when calls have to end after their turns.
    pub(super) fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        self.reached(if self.config.drain_calls { ServerPhase::Stopping } else { ServerPhase::Draining })
    }

    /// Completes when every call has to end.
    pub(super) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        self.reached(ServerPhase::Stopping)
    }

    fn reached(&self, wanted: ServerPhase) -> impl Future<Output = ()> + Send + use<> {
        self.readiness.reached(wanted)
    }

    /// Describes the served model, with its present voices.
    pub(super) fn info(&self) -> ModelInfo {
        ModelInfo { voices: self.engine.voices(), ..self.engine.info().clone() }
    }

    /// Creates the setup of a new realtime session.
    pub(super) fn setup(&self, delivery: Delivery, caller: &Caller) -> Result<SessionSetup, ApiError> {
        let random = |error: getrandom::Error| ApiError::internal(&error.to_string());
        let session_id = self.ids.session().map_err(random)?;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(random)?;
        // The end of a session's id is random; half of it tells items of different sessions apart.
        let stem = session_id[session_id.len() - 16..].to_owned();
        let (seed, model) = (u64::from_le_bytes(seed), self.info());
        let configuration = self.config.turns.model.configure(caller.session.as_deref()).map(Arc::new);
        let configuration = configuration.or_else(|| caller.session.clone());
        let end = self.call_limits().max_duration.map(|longest| SystemTime::now() + longest);
        let expires_at = end.and_then(|end| end.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_secs());
        Ok(SessionSetup { session_id, stem, seed, model, delivery, expires_at, configuration, warnings: Vec::new() })
    }
}

fn unavailable(kind: ErrorKind, message: &str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorBody::server(kind, message)).retry_after(BUSY_RETRY)
}
