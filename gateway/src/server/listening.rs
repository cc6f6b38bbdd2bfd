//! The server before its model is loaded: it reports errors that need no model, and answers requests already.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use repartee_engine::{StartProgress, StartStage, TurnModel};
use repartee_engine_api::SpeechEngine;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::app::AppState;
use super::call_registry::CallRegistry;
use super::chat;
use super::connections::{ConnectionLimiter, RESERVE};
use super::descriptors;
use super::keyless::LocalOnlyPolicy;
use super::listen::{self, AcceptTask, ConnectionContext};
use super::origin::OriginPolicy;
use super::readiness::Readiness;
use super::routes::{self, RouterSwitch};
use super::serving::Server;
use super::start_error::ServerStartError;
use super::tls::{self, CertificateResolver};
use super::uploads::UploadBudget;
use crate::admission::Admission;
use crate::auth::ephemeral::EphemeralKeys;
use crate::cli::lan;
use crate::config::{Config, LimitConfig, TurnDetectionConfig, WebRtcConfig};
use crate::ids::IdGenerator;
use crate::metrics::{Metrics, RequestMetrics, ThinkerMetrics};
use crate::telemetry::TraceExporter;
use crate::transport::webrtc::{UdpMux, WebRtcSettings};
use crate::turn_judge::TurnModelPool;
use crate::voices::VoiceStore;

/// Server that listens and has no model yet. It answers health checks and serves the pages; all other requests get 503.
/// Dropping it ends it.
#[derive(Debug)]
pub struct StartingServer {
    config: Config,
    address: SocketAddr,
    certificates: Option<Arc<CertificateResolver>>,
    /// SHA-256 fingerprint of the development certificate, for a person to compare.
    fingerprint: Option<String>,
    judge: Option<TurnModelPool>,
    traces: TraceExporter,
    udp_mux: UdpMux,
    metrics: RequestMetrics,
    keyless: Arc<LocalOnlyPolicy>,
    readiness: Arc<Readiness>,
    accepting: AcceptTask,
}

impl StartingServer {
    /// Checks the settings, reads the certificate and the turn-detection model, binds the sockets and starts to answer.
    pub fn bind(config: Config) -> BoxFuture<'static, Result<Self, ServerStartError>> {
        Box::pin(async move {
            config.check()?;
            let certificate = tls::certificate(&config.tls, lan::certificate_names)?;
            let fingerprint =
                certificate.as_ref().filter(|_| config.tls.development).and_then(|made| tls::fingerprint(made));
            let (tls, certificates) = certificate.map(tls::acceptor).transpose()?.unzip();
            let address = config.listen;
            let listener =
                TcpListener::bind(address).await.map_err(|error| ServerStartError::Listen { address, error })?;
            let address = listener.local_addr().map_err(|error| ServerStartError::Listen { address, error })?;
            let webrtc = webrtc_settings(&config.webrtc, address.ip());
            let udp = webrtc.udp;
            let udp_mux = UdpMux::bind(webrtc).map_err(|error| ServerStartError::Udp { address: udp, error })?;
            let judge = turn_judge(&config.turns)?;
            let traces =
                config.telemetry.otlp_endpoint.as_deref().map(TraceExporter::otlp).transpose()?.unwrap_or_default();
            let metrics = RequestMetrics::new()?;
            let keyless = LocalOnlyPolicy::new(&config, metrics.clone());
            let readiness = Readiness::new();
            let routes = RouterSwitch::new(routes::starting(keyless.clone(), readiness.clone(), metrics.clone()));
            let LimitConfig { connections, connections_per_address, head, request, .. } = config.limits;
            let connections = match descriptors::raise_limit() {
                Some(limit) => descriptors::admissible(connections, RESERVE, limit),
                None => connections,
            };
            if connections < config.limits.connections {
                let wanted = config.limits.connections;
                tracing::warn!(wanted, connections, "fewer connections than set: the process may open too few files");
            }
            let context = ConnectionContext {
                routes: routes.clone(),
                reserve_router: routes::reserve(readiness.clone()),
                tls,
                trusted: config.proxy.trusted.clone(),
                head_timeout: head,
                request_timeout: request,
                stalled_after: config.stalled_after,
                metrics: metrics.clone(),
            };
            let connections =
                ConnectionLimiter::new(connections, connections_per_address, config.proxy.trusted.clone());
            let (end, mut ended) = watch::channel(false);
            let ended = async move {
                // An error means that the server was dropped.
                let _ = ended.wait_for(|end| *end).await;
            };
            let task = tokio::spawn(listen::serve(listener, context, connections, ended));
            let accepting = AcceptTask { routes, end, task };
            Ok(Self {
                config,
                address,
                certificates,
                fingerprint,
                judge,
                traces,
                udp_mux,
                metrics,
                keyless,
                readiness,
                accepting,
            })
        })
    }

    /// Returns the address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns a callback for the progress of the start, which `/readyz` reports.
    pub fn on_progress(&self) -> impl Fn(StartProgress) + Send + Sync + use<> {
        let readiness = self.readiness.clone();
        move |progress| readiness.set_progress(progress)
    }

    /// Watches the progress of the start.
    pub fn progress(&self) -> watch::Receiver<StartProgress> {
        self.readiness.progress()
    }

    /// Returns the metrics of requests to the language model's server of a cascade.
    pub fn thinker_metrics(&self) -> ThinkerMetrics {
        self.metrics.thinker.clone()
    }

    /// Sets [`Config::card`], which belongs to the model.
    pub fn set_card(&mut self, card: Option<String>) {
        self.config.card = card;
    }

    /// Adds the warmed-up model and enrols the stored voices on a thread of its own. Dropping the future does not stop
    /// the thread.
    pub fn with_engine(self, engine: Arc<dyn SpeechEngine>) -> BoxFuture<'static, Result<Server, ServerStartError>> {
        Box::pin(async move {
            let ids = IdGenerator::new()?;
            let voices = open_voices(&self, engine.clone(), ids.clone()).await?;
            let Self {
                config,
                address,
                certificates,
                fingerprint,
                judge,
                traces,
                udp_mux,
                keyless,
                readiness,
                accepting,
                ..
            } = self;
            let metrics = Arc::new(Metrics::with(engine.info().frame, self.metrics)?);
            metrics.slots.set(i64::try_from(engine.occupancy().1).unwrap_or(i64::MAX));
            let (alive, calls_ended) = mpsc::channel(1);
            readiness.set_engine(engine.clone());
            let app = AppState {
                origins: OriginPolicy::new(&config.browser, !config.api_keys.is_empty()),
                admission: Admission::new(config.limits.clone()),
                keys: RwLock::new(config.api_keys.clone()),
                ephemeral: EphemeralKeys::new(ids.tag()),
                voices,
                uploads: UploadBudget::new(chat::MAX_UPLOADED, chat::MAX_UPLOADED_BY_ONE),
                started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
                config,
                engine,
                metrics,
                judge,
                ids,
                readiness,
                traces,
                udp_mux,
                calls: CallRegistry::default(),
                alive: alive.downgrade(),
            };
            let app = Arc::new(app);
            Ok(Server { address, certificates, fingerprint, app, keyless, accepting, alive, calls_ended })
        })
    }
}

impl Server {
    /// Binds the sockets for an engine that is loaded already. [`Self::run`] serves.
    // Boxed like the other futures that other crates await: a crate compiles the body of every future that it polls
    // without a box, here the whole server.
    pub fn bind(config: Config, engine: Arc<dyn SpeechEngine>) -> BoxFuture<'static, Result<Self, ServerStartError>> {
        Box::pin(async move { StartingServer::bind(config).await?.with_engine(engine).await })
    }
}

/// Opens the voice store and enrols the stored voices again, which takes the model some time for each.
async fn open_voices(
    listening: &StartingServer,
    engine: Arc<dyn SpeechEngine>,
    ids: IdGenerator,
) -> Result<VoiceStore, ServerStartError> {
    let (settings, tell) = (listening.config.voices.clone(), listening.on_progress());
    let (opened, voices) = oneshot::channel();
    let open = move || {
        let progress = |fraction| tell(StartProgress { stage: StartStage::Voices, fraction });
        // The receiver is gone if the start was cancelled.
        let _ = opened.send(VoiceStore::open(&settings, engine, ids, progress));
    };
    std::thread::Builder::new().name("voices".to_owned()).spawn(open).map_err(ServerStartError::Enrolment)?;
    let voices =
        voices.await.map_err(|_| ServerStartError::Enrolment(io::Error::other("the enrolment thread panicked")))?;
    Ok(voices?)
}

/// Loads the turn-detection model and starts its threads; `None` if none is configured.
fn turn_judge(settings: &TurnDetectionConfig) -> Result<Option<TurnModelPool>, ServerStartError> {
    let Some(path) = &settings.model else { return Ok(None) };
    let model = TurnModel::load(path)?;
    let judge = TurnModelPool::start(Arc::new(move |turn: &[f32]| model.probability(turn)), settings.threads);
    judge.map(Some).map_err(|error: io::Error| ServerStartError::Threads(error))
}

/// Derives the settings of WebRTC calls for a server that listens for HTTP at `address`, which is also the default UDP
/// address.
fn webrtc_settings(config: &WebRtcConfig, address: IpAddr) -> WebRtcSettings {
    WebRtcSettings {
        udp: config.udp.unwrap_or(SocketAddr::new(address, 0)),
        advertised: config.advertised.clone(),
        max_message_size: config.max_message_bytes,
        connect_within: config.connect_within,
        receiver_buffer: config.receiver_buffer,
    }
}
