//! The server before its model is loaded: it reports errors that need no model, and answers requests already.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use repartee_engine::{StartProgress, StartStage, TurnModel};
use repartee_engine_api::SpeechEngine;
use repartee_media::endpointing::PauseModel;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use super::app::AppState;
use super::call_registry::CallRegistry;
use super::connections::{ConnectionLimiter, RESERVE};
#[cfg(feature = "phone")]
use super::control::AbortOnDrop;
use super::control::ControlThread;
use super::descriptors::{self, DescriptorShares, SpareDescriptors};
use super::keyless::LocalOnlyPolicy;
use super::listen::{self, AcceptLimits, AcceptTask, ConnectionContext, PlainWarning};
use super::origin::OriginPolicy;
use super::processor_share::ProcessorShares;
use super::readiness::{Readiness, ShutdownProgress};
use super::request_log::RequestLog;
use super::request_threads::RequestThreads;
use super::routes::{self, RouterSwitch};
use super::serving::{ControlRoutes, Server};
#[cfg(feature = "phone")]
use super::sip;
use super::start_error::ServerStartError;
use super::tls::{self, CertificateResolver};
use super::usage;
use super::watchdog::{self, LatenessHandle};
use crate::admission::Admission;
use crate::auth::ephemeral::EphemeralKeys;
use crate::auth::wrong_keys::WrongKeys;
use crate::budget::KeyBudgets;
use crate::byte_budget::ByteBudget;
use crate::cli::lan;
use crate::config::{Config, LimitConfig, TurnDetectionConfig, TurnModelSource, WebRtcConfig};
use crate::headroom::Load;
use crate::ids::IdGenerator;
use crate::long_work::LongWork;
use crate::metrics::{Metrics, RequestMetrics, ThinkerMetrics};
use crate::recording::Recordings;
use crate::telemetry::TraceExporter;
use crate::transport::webrtc::{UdpMux, WebRtcSettings};
use crate::turn_judge::TurnModelPool;
use crate::usage::file;
use crate::usage::ledger::UsageLedger;
use crate::voices::VoiceStore;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4_096;

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
    #[cfg(feature = "phone")]
    sip: Option<sip::SipSockets>,
    metrics: RequestMetrics,
    keyless: Arc<LocalOnlyPolicy>,
    readiness: Arc<Readiness>,
    accepting: AcceptTask,
    control: ControlThread,
    requests: RequestThreads,
    control_routes: ControlRoutes,
    /// Address of the health listener.
    health: Option<SocketAddr>,
    lateness: LatenessHandle,
}

impl StartingServer {
    /// Checks the settings, reads the certificate and the turn-detection model, binds the sockets and starts to answer.
    pub fn bind(config: Config) -> BoxFuture<'static, Result<Self, ServerStartError>> {
        Box::pin(async move {
            config.check()?;
            let certificate = tls::certificate(&config.tls, lan::certificate_names)?;
            let fingerprint =
                certificate.as_ref().filter(|_| config.tls.development).and_then(|made| tls::fingerprint(made));
            let expiry = certificate.as_ref().and_then(|certificate| tls::expiry(certificate));
            let (tls, certificates) = certificate.map(tls::acceptor).transpose()?.unzip();
            let control = ControlThread::start().map_err(ServerStartError::Control)?;
            let requests = RequestThreads::start().map_err(ServerStartError::Requests)?;
            let (listener, address) = listen_on(&control, config.listen)?;
            let health = config.health.listen.map(|address| listen_on(&control, address)).transpose()?;
            let webrtc = webrtc_settings(&config.webrtc, address.ip());
            let udp = webrtc.udp;
            let udp_mux = UdpMux::bind(webrtc).map_err(|error| ServerStartError::Udp { address: udp, error })?;
            #[cfg(feature = "phone")]
            let sip = sip::bind(&config.sip, certificates.clone())?;
            let judge = turn_judge(&config.turns)?;
            let traces =
                config.telemetry.otlp_endpoint.as_deref().map(TraceExporter::otlp).transpose()?.unwrap_or_default();
            let metrics = RequestMetrics::new()?;
            metrics.certificate_expiry.set(expiry.unwrap_or_default());
            let keyless = LocalOnlyPolicy::new(&config, metrics.clone());
            let readiness = Readiness::new();
            let routes = RouterSwitch::new(routes::starting(
                keyless.clone(),
                readiness.clone(),
                metrics.clone(),
                RequestLog::new(&config),
            ));
            let control_routes =
                ControlRoutes::new(&readiness, &routes::starting_metrics(keyless.clone(), metrics.clone()));
            let LimitConfig { connections, connections_per_address, head, request, .. } = config.limits;
            let sessions = u32::try_from(config.engine.sessions).unwrap_or(u32::MAX);
            let limit = descriptors::raise_limit().unwrap_or(u64::MAX);
            let shares = DescriptorShares::of(limit, connections, RESERVE, sessions);
            if shares.connections < connections {
                let (wanted, connections) = (connections, shares.connections);
                tracing::warn!(wanted, connections, "fewer connections than set: the process may open too few files");
            }
            let spares = SpareDescriptors::new(shares.spares);
            let limits = |connections, share| AcceptLimits {
                connections: ConnectionLimiter::new(connections, share, shares.reserve, config.proxy.trusted.clone()),
                spares: spares.clone(),
            };
            let context = ConnectionContext {
                routes: routes.clone(),
                control_routes: control_routes.main.clone(),
                requests: Some(requests.handle().clone()),
                tls,
                trusted: config.proxy.trusted.clone(),
                head_timeout: head,
                request_timeout: request,
                stalled_after: config.stalled_after,
                metrics: metrics.clone(),
                plain_warning: PlainWarning::default(),
            };
            let health_context = ConnectionContext {
                control_routes: control_routes.health.clone(),
                requests: None,
                tls: None,
                ..context.clone()
            };
            let (end, mut ended) = watch::channel(false);
            let ended = async move {
                // An error means that the server was dropped.
                let _ = ended.wait_for(|end| *end).await;
            };
            let accepted = limits(shares.connections, connections_per_address);
            let task = control.spawn(listen::serve(listener, context, accepted, ended));
            let accepting = AcceptTask { routes, end, task };
            let health = health.map(|(listener, address)| {
                // Every connection belongs to the reserve. The task ends with the thread: checks are answered to the end.
                control.spawn(listen::serve(listener, health_context, limits(0, 0), std::future::pending()));
                address
            });
            let lateness = LatenessHandle::default();
            let watched = (Handle::current(), readiness.clone(), metrics.clone(), lateness.clone());
            control.spawn(watchdog::watch(watched.0, watched.1, watched.2, watched.3));
            Ok(Self {
                config,
                address,
                certificates,
                fingerprint,
                judge,
                traces,
                udp_mux,
                #[cfg(feature = "phone")]
                sip,
                metrics,
                keyless,
                readiness,
                accepting,
                control,
                requests,
                control_routes,
                health,
                lateness,
            })
        })
    }

    /// Returns the address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of `health.listen`; `None` if it is not set.
    pub fn health_addr(&self) -> Option<SocketAddr> {
        self.health
    }

    /// Returns a handle that tells what is left of the shutdown.
    pub fn shutdown_progress(&self) -> ShutdownProgress {
        ShutdownProgress(self.readiness.clone())
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

    /// Sets the load of one call, by which `limits.headroom` foresees that of calls that have just begun.
    pub fn set_call_load(&self, load: Load) {
        self.readiness.headroom().set_call_load(load);
    }

    /// Adds the warmed-up model and enrols the stored voices on a thread of its own. Dropping the future does not stop
    /// the thread.
    pub fn with_engine(self, engine: Arc<dyn SpeechEngine>) -> BoxFuture<'static, Result<Server, ServerStartError>> {
        Box::pin(async move {
            let ids = IdGenerator::new()?;
            let used = self.config.usage.file.as_deref().map(file::read).transpose()?.unwrap_or_default();
            #[cfg(feature = "cluster")]
            let member = crate::cluster::ClusterMember::from_config(&self.config.cluster, self.address)?;
            let voices = open_voices(&self, engine.clone(), ids.clone()).await?;
            let Self {
                config,
                address,
                certificates,
                fingerprint,
                judge,
                traces,
                udp_mux,
                #[cfg(feature = "phone")]
                sip,
                keyless,
                readiness,
                accepting,
                control,
                requests,
                control_routes,
                health,
                lateness,
                ..
            } = self;
            let metrics = Arc::new(Metrics::with(engine.info().frame, self.metrics)?);
            metrics.slots.set(i64::try_from(engine.occupancy().1).unwrap_or(i64::MAX));
            let (alive, calls_ended) = mpsc::channel(1);
            let usage = Arc::new(UsageLedger::new(&engine.info().name, config.usage.days, used, usage::today()));
            readiness.set_engine(engine.clone());
            #[cfg(feature = "phone")]
            let service = sip.as_ref().map(|sockets| sockets.service(&config.sip));
            #[cfg(feature = "phone")]
            let (service, commands) = service.unzip();
            let app = AppState {
                origins: OriginPolicy::new(&config.browser, !config.api_keys.is_empty()),
                admission: Admission::new(config.limits.clone()),
                budgets: KeyBudgets::new(config.limits.clone(), &config.api_keys, usage),
                keys: RwLock::new(config.api_keys.clone()),
                ephemeral: EphemeralKeys::new(ids.tag(), config.limits.ephemeral_keys as usize),
                wrong_keys: WrongKeys::new(config.limits.wrong_keys_per_minute),
                voices,
                bytes: ByteBudget::new(config.limits.bytes_in_flight),
                long_work: LongWork::new().map_err(ServerStartError::LongWork)?,
                processor_shares: ProcessorShares::of(readiness.headroom()),
                call_threads: Handle::current(),
                started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
                recordings: Recordings::open(&config.recording, metrics.requests.recordings.clone())?,
                config,
                engine,
                metrics,
                judge,
                ids,
                readiness,
                lateness,
                traces,
                udp_mux,
                calls: CallRegistry::default(),
                #[cfg(feature = "phone")]
                sip: service.map(Arc::new),
                #[cfg(feature = "cluster")]
                cluster: std::sync::OnceLock::new(),
                alive: alive.downgrade(),
            };
            let app = Arc::new(app);
            #[cfg(feature = "phone")]
            let signalling = match sip.zip(commands) {
                Some((sockets, commands)) => {
                    let task = sip::spawn(app.clone(), sockets, commands)?;
                    Some(AbortOnDrop(task.abort_handle()))
                }
                None => None,
            };
            Ok(Server {
                address,
                certificates,
                fingerprint,
                app,
                keyless,
                accepting,
                control,
                requests,
                control_routes,
                health,
                alive,
                calls_ended,
                #[cfg(feature = "phone")]
                signalling,
                #[cfg(feature = "cluster")]
                member,
                #[cfg(feature = "cluster")]
                nodes: watch::Sender::new(1),
            })
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

/// Binds a listener for tasks of the control thread; returns it with its address.
fn listen_on(control: &ControlThread, address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerStartError> {
    let _entered = control.enter();
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bind().map_err(|error| ServerStartError::Listen { address, error })
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

/// Loads the turn-detection model and starts its threads; `None` for fixed silences.
fn turn_judge(settings: &TurnDetectionConfig) -> Result<Option<TurnModelPool>, ServerStartError> {
    let (kind, model) = match &settings.model {
        TurnModelSource::Embedded => (PauseModel::Embedded, TurnModel::embedded()?),
        TurnModelSource::Silence => return Ok(None),
        TurnModelSource::File(path) => (PauseModel::SmartTurn, TurnModel::load(path)?),
    };
    let judge = TurnModelPool::start(kind, Arc::new(move |turn: &[f32]| model.probability(turn)), settings.threads);
    judge.map(Some).map_err(|error: io::Error| ServerStartError::Threads(error))
}

/// Derives the settings of WebRTC calls for a server that listens for HTTP at `address`. That is also the default UDP
/// address, but for a loopback address: some callers on this machine, such as Firefox, connect only over an interface.
fn webrtc_settings(config: &WebRtcConfig, address: IpAddr) -> WebRtcSettings {
    let default: IpAddr = match address {
        IpAddr::V4(address) if address.is_loopback() => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(address) if address.is_loopback() => Ipv6Addr::UNSPECIFIED.into(),
        other => other,
    };
    WebRtcSettings {
        udp: config.udp.unwrap_or(SocketAddr::new(default, 0)),
        advertised: config.advertised.clone(),
        max_message_size: config.max_message_bytes,
        connect_within: config.connect_within,
        receiver_buffer: config.receiver_buffer,
    }
}
