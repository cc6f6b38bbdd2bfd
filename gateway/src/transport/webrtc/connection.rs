//! The peer connection under a call: how it is built, what its callbacks do, and how it ends.
//!
//! Callbacks run on the connection's driver and must not wait, so they only note what happened; tasks read the track and
//! the data channel. One more task, the supervisor, owns the end: whoever notices it first calls [`Shared::end`], and the
//! supervisor closes the connection, since one that is merely dropped would keep its driver running.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rtc::ice::mdns::MulticastDnsMode;
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::media_engine::MIME_TYPE_OPUS;
use rtc::peer_connection::configuration::setting_engine::SctpMaxMessageSize;
use rtc::peer_connection::transport::RTCDtlsRole;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters, RtpCodecKind,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use webrtc::data_channel::{DataChannel, DataChannelEvent};
use webrtc::error::{Error, Result};
use webrtc::media_stream::track_local::TrackLocal;
use webrtc::media_stream::track_local::static_rtp::TrackLocalStaticRTP;
use webrtc::media_stream::track_remote::{TrackRemote, TrackRemoteEvent};
use webrtc::peer_connection::{
    MediaEngine, PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler, RTCConfigurationBuilder,
    RTCIceConnectionState, RTCIceGatheringState, RTCPeerConnectionState, Registry, SettingEngine, SettingEngineBuilder,
    configure_rtcp_reports,
};

use super::call::PeerEvent;
use super::demux::MuxedSocket;
use super::muxed_runtime::MuxedRuntime;
use super::reports::{ReceiverReports, RtcpObserver};
use super::{DATA_CHANNEL_LABEL, PEER_TIMEOUT, WebRtcSettings};

/// Events that may wait for the owner of a call.
const EVENT_QUEUE: usize = 256;
/// Of these, how many are not for audio, so that a flood of it never delays a message.
const RESERVED: usize = 64;
/// Bytes that wait to be sent over the data channel; a sender then waits.
const SEND_BUFFER: usize = 1 << 20;
/// Connectivity checks every 20 ms instead of 200: a call is up 180 ms earlier. For as long as the default would try.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const MAX_CHECKS: u16 = 70;
const KEEPALIVE: Duration = Duration::from_secs(2);
/// How long the last messages may take to arrive when we end a call: a lost packet is sent again after a second.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between looks at whether they have arrived.
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// How long the peer's last messages may take to be read; also the scale of how long the data channel may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);
/// Pause between liveness checks of a caller that is silent for longer than [`KEEPALIVE`].
const LIVENESS_POLL: Duration = Duration::from_millis(250);
/// Opus in RTP is always announced so (RFC 7587), and we ask the peer for error correction.
const OPUS_CHANNELS: u16 = 2;
const OPUS_PARAMETERS: &str = "minptime=10;useinbandfec=1";
/// The payload type that we propose; the peer's own is used in an answer.
const OPUS_PAYLOAD_TYPE: u8 = 111;

/// Phase of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Connected,
    Ended,
}

/// What the callbacks, the tasks and the owner of a call share. Does not hold the connection, which holds it.
pub(super) struct Shared {
    events: mpsc::Sender<PeerEvent>,
    phase: watch::Sender<Phase>,
    gathered: Notify,
    /// The data channel is closed on both sides, or was never there.
    channel_closed: Notify,
    /// The open data channel. It holds the connection: taken out at the end to free both.
    channel: Mutex<Option<Arc<dyn DataChannel>>>,
    dropped_audio: AtomicU64,
    /// Whether we have ended the call.
    hung_up: AtomicBool,
}

impl Shared {
    /// Ends the call; the supervisor does the rest.
    pub(super) fn end(&self) {
        self.phase.send_replace(Phase::Ended);
    }

    /// Ends the call, which the peer still has to be told.
    fn hang_up(&self) {
        self.hung_up.store(true, Ordering::Relaxed);
        self.end();
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.phase.borrow() == Phase::Ended
    }

    pub(super) fn channel(&self) -> Option<Arc<dyn DataChannel>> {
        self.lock_channel().clone()
    }

    pub(super) fn dropped_audio(&self) -> u64 {
        self.dropped_audio.load(Ordering::Relaxed)
    }

    fn lock_channel(&self) -> std::sync::MutexGuard<'_, Option<Arc<dyn DataChannel>>> {
        // Only moves happen under the lock: a panic cannot leave it half-changed.
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connected(&self) {
        let first = self.phase.send_if_modified(|phase| {
            let first = *phase == Phase::Connecting;
            if first {
                *phase = Phase::Connected;
            }
            first
        });
        if first {
            // Nothing else is reported before this, so there is room.
            let _ = self.events.try_send(PeerEvent::Connected);
        }
    }

    /// Audio that finds the queue full is dropped and counted: its owner has not read for seconds.
    fn audio(&self, event: PeerEvent) {
        if self.events.capacity() <= RESERVED || self.events.try_send(event).is_err() {
            self.dropped_audio.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A peer connection and what belongs to it. Dropping it ends the call.
pub(super) struct Connection {
    pub pc: Arc<dyn PeerConnection>,
    pub track: Arc<TrackLocalStaticRTP>,
    pub ssrc: u32,
    pub shared: Arc<Shared>,
    /// The peer's reports of our audio.
    pub reports: Arc<ReceiverReports>,
    /// The call's socket at the mux, if it has one.
    pub socket: Option<Arc<MuxedSocket>>,
    /// Taken by the [`Call`](super::Call).
    pub events: Option<mpsc::Receiver<PeerEvent>>,
    supervisor: Option<JoinHandle<()>>,
    /// Closed once everything is freed.
    freed: watch::Receiver<()>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("phase", &*self.shared.phase.borrow()).finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection for one call: over its socket at the mux, or over a UDP socket of its own.
    pub(super) async fn new(settings: &WebRtcSettings, socket: Option<Arc<MuxedSocket>>) -> Result<Self> {
        let (events, receiver) = mpsc::channel(EVENT_QUEUE);
        let (phase, watched) = watch::channel(Phase::Connecting);
        let shared = Arc::new(Shared {
            events,
            phase,
            gathered: Notify::new(),
            channel_closed: Notify::new(),
            channel: Mutex::new(None),
            dropped_audio: AtomicU64::new(0),
            hung_up: AtomicBool::new(false),
        });
        let ssrc = getrandom::u32().map_err(|error| Error::Other(error.to_string()))?;
        let reports = Arc::new(ReceiverReports::new(ssrc));
        let pc = build(settings, socket.clone(), reports.clone(), Callbacks(Arc::clone(&shared))).await?;
        let within = settings.connect_within;
        let (free, freed) = watch::channel(());
        let life = supervise(Arc::clone(&pc), Arc::clone(&shared), socket.clone(), watched, within);
        let supervisor = tokio::spawn(async move {
            life.await;
            drop(free);
        });
        let track = Arc::new(TrackLocalStaticRTP::new(audio_track(ssrc)));
        let (events, supervisor) = (Some(receiver), Some(supervisor));
        Ok(Self { pc, track, ssrc, shared, reports, socket, events, supervisor, freed })
    }

    /// Adds our audio track.
    pub(super) async fn add_track(&self) -> Result<()> {
        self.pc.add_track(Arc::clone(&self.track) as Arc<dyn TrackLocal>).await.map(drop)
    }

    /// Opens the data channel, as the calling side does.
    pub(super) async fn open_channel(&self) -> Result<()> {
        let channel = self.pc.create_data_channel(DATA_CHANNEL_LABEL, None).await?;
        tokio::spawn(read_channel(channel, Arc::clone(&self.shared)));
        Ok(())
    }

    /// Waits until all local addresses are known.
    pub(super) async fn gathered(&self) {
        self.shared.gathered.notified().await;
    }

    /// Returns once the call has ended and everything of it is freed.
    pub(super) fn freed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut freed = self.freed.clone();
        // Nothing is ever sent: it closes.
        async move { while freed.changed().await.is_ok() {} }
    }

    /// Ends the call and waits until everything is freed.
    pub(super) async fn close(mut self) {
        self.shared.hang_up();
        // Nobody reads any more: whatever waits for room gives up.
        self.events = None;
        if let Some(supervisor) = self.supervisor.take() {
            // Fails only if the runtime is being shut down, which frees it too.
            let _ = supervisor.await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.hang_up();
    }
}

/// Builds the peer connection: every choice about sockets, codecs and timing.
async fn build(
    settings: &WebRtcSettings,
    socket: Option<Arc<MuxedSocket>>,
    reports: Arc<ReceiverReports>,
    callbacks: Callbacks,
) -> Result<Arc<dyn PeerConnection>> {
    let mut media_engine = MediaEngine::default();
    let codec = RTCRtpCodecParameters { rtp_codec: opus(), payload_type: OPUS_PAYLOAD_TYPE };
    media_engine.register_codec(codec, RtpCodecKind::Audio)?;
    let bind = match socket {
        // Closed again at once, see `muxed_runtime`.
        Some(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        None => SocketAddr::new(settings.udp.ip(), 0),
    };
    let registry = configure_rtcp_reports(Registry::new()).with(RtcpObserver::SLOT, RtcpObserver::new(reports));
    let builder = PeerConnectionBuilder::new()
        .with_configuration(RTCConfigurationBuilder::new().build())
        .with_media_engine(media_engine)
        .with_setting_engine(setting_engine(settings, bind, socket.as_deref()))
        .with_interceptor_registry(registry)
        .with_handler(Arc::new(callbacks))
        .with_udp_addrs(vec![bind])
        .with_data_channel_send_buffer_limit(SEND_BUFFER);
    let builder = match socket {
        Some(socket) => builder.with_runtime(Arc::new(MuxedRuntime(socket))),
        None => builder,
    };
    Ok(Arc::new(builder.build().await?))
}

fn setting_engine(settings: &WebRtcSettings, bind: SocketAddr, socket: Option<&MuxedSocket>) -> SettingEngine {
    // At the mux we check ourselves whether a caller is still there: the library counts STUN alone.
    let timeout = if socket.is_some() { Duration::ZERO } else { PEER_TIMEOUT };
    let builder = SettingEngineBuilder::new()
        .with_ice_timeouts(Some(timeout), Some(timeout), Some(KEEPALIVE))
        .with_ice_connection_attempts(Some(CHECK_INTERVAL), Some(MAX_CHECKS))
        // The peer then starts the handshake, right after the check that connects it.
        .with_answering_dtls_role(RTCDtlsRole::Server)
        // Browsers hide their addresses behind mDNS names; they are found as peer-reflexive ones all the same.
        .with_multicast_dns_mode(MulticastDnsMode::Disabled)
        .with_include_loopback_candidate(bind.ip().is_loopback())
        .with_sctp_max_message_size(SctpMaxMessageSize::Bounded(settings.max_message_size));
    match socket.map(MuxedSocket::credentials) {
        Some(ours) => builder.with_lite(true).with_ice_credentials(ours.ufrag.clone(), ours.password.clone()).build(),
        None => builder.build(),
    }
}

fn opus() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.to_owned(),
        clock_rate: 48_000,
        channels: OPUS_CHANNELS,
        sdp_fmtp_line: OPUS_PARAMETERS.to_owned(),
        rtcp_feedback: Vec::new(),
    }
}

fn audio_track(ssrc: u32) -> MediaStreamTrack {
    let encoding = RTCRtpEncodingParameters {
        rtp_coding_parameters: RTCRtpCodingParameters { ssrc: Some(ssrc), ..Default::default() },
        codec: opus(),
        ..Default::default()
    };
    let name = || "voice".to_owned();
    MediaStreamTrack::new(name(), name(), name(), RtpCodecKind::Audio, vec![encoding])
}

/// Waits for the end of a call, then frees it.
async fn supervise(
    pc: Arc<dyn PeerConnection>,
    shared: Arc<Shared>,
    socket: Option<Arc<MuxedSocket>>,
    mut phase: watch::Receiver<Phase>,
    connect_within: Duration,
) {
    let connected = phase.wait_for(|phase| *phase != Phase::Connecting);
    let connected = tokio::time::timeout(connect_within, connected).await.is_ok();
    if connected {
        tokio::select! {
            // Cannot fail: the sender lives in `shared`.
            _ = phase.wait_for(|phase| *phase == Phase::Ended) => {}
            () = peer_timeout(socket.as_deref()) => {}
        }
    }
    shared.end();
    let channel = shared.lock_channel().take();
    if let Some(channel) = channel {
        if shared.hung_up.load(Ordering::Relaxed) {
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained(&channel)).await;
            // Browsers report an error if the association ends while the channel is open, and nobody says when the peer has
            // closed it: it takes a round trip each way.
            if channel.close().await.is_ok() {
                let round_trip = socket.as_ref().and_then(|socket| socket.round_trip()).unwrap_or_default();
                tokio::time::sleep((round_trip * 3).clamp(CLOSE_TIMEOUT / 2, CLOSE_TIMEOUT * 4)).await;
            }
        } else {
            // What the peer said before the end is read first. Longer than this, and it is out of reach.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, shared.channel_closed.notified()).await;
        }
    }
    let told = shared.events.try_send(PeerEvent::Closed).is_ok();
    if let Err(error) = pc.close().await {
        tracing::debug!(%error, "closing a peer connection");
    }
    drop(pc);
    if !told {
        // The queue was full: the owner finds this behind the rest, or has dropped the queue.
        let _ = shared.events.send(PeerEvent::Closed).await;
    }
}

/// Returns once nothing has come from the caller for [`PEER_TIMEOUT`], although checks were sent. Never for a connection
/// with a UDP socket of its own, whose ICE agent does this.
async fn peer_timeout(socket: Option<&MuxedSocket>) {
    let Some(socket) = socket else { return std::future::pending().await };
    loop {
        let silence = socket.silence().unwrap_or_default();
        if silence >= PEER_TIMEOUT {
            return;
        }
        if silence >= KEEPALIVE {
            socket.check_liveness();
        }
        tokio::time::sleep(KEEPALIVE.saturating_sub(silence).max(LIVENESS_POLL)).await;
    }
}

/// Returns once the peer has all that was sent over the channel.
async fn drained(channel: &Arc<dyn DataChannel>) {
    while channel.outstanding_bytes().await.is_ok_and(|bytes| bytes > 0) {
        tokio::time::sleep(DRAIN_POLL).await;
    }
}

/// The connection's callbacks. They run on its driver.
struct Callbacks(Arc<Shared>);

#[async_trait]
impl PeerConnectionEventHandler for Callbacks {
    async fn on_ice_gathering_state_change(&self, state: RTCIceGatheringState) {
        if state == RTCIceGatheringState::Complete {
            self.0.gathered.notify_one();
        }
    }

    async fn on_ice_connection_state_change(&self, state: RTCIceConnectionState) {
        use RTCIceConnectionState::{Closed, Disconnected, Failed};
        if matches!(state, Disconnected | Failed | Closed) {
            self.0.end();
        }
    }

    async fn on_connection_state_change(&self, state: RTCPeerConnectionState) {
        use RTCPeerConnectionState::{Closed, Connected, Disconnected, Failed};
        match state {
            Connected => self.0.connected(),
            Disconnected | Failed | Closed => self.0.end(),
            _ => {}
        }
    }

    async fn on_data_channel(&self, channel: Arc<dyn DataChannel>) {
        tokio::spawn(read_remote_channel(channel, Arc::clone(&self.0)));
    }

    async fn on_track(&self, track: Arc<dyn TrackRemote>) {
        tokio::spawn(read_track(track, Arc::clone(&self.0)));
    }
}

/// Audio packets of the peer, until the track ends.
async fn read_track(track: Arc<dyn TrackRemote>, shared: Arc<Shared>) {
    if track.kind().await != RtpCodecKind::Audio {
        return;
    }
    while let Some(event) = track.poll().await {
        if let TrackRemoteEvent::OnRtpPacket(packet) = event {
            shared.audio(PeerEvent::Audio {
                sequence: packet.header.sequence_number,
                timestamp: packet.header.timestamp,
                marker: packet.header.marker,
                payload: packet.payload,
                arrival: Instant::now(),
            });
        }
    }
}

/// A channel that the peer has opened: only the one for events is read.
async fn read_remote_channel(channel: Arc<dyn DataChannel>, shared: Arc<Shared>) {
    if channel.label().await.is_ok_and(|label| label == DATA_CHANNEL_LABEL) {
        read_channel(channel, shared).await;
    }
}

/// Messages of the peer, until the channel closes. While the owner does not read, nothing is taken from the channel, and
/// the peer's window closes.
async fn read_channel(channel: Arc<dyn DataChannel>, shared: Arc<Shared>) {
    while let Some(event) = channel.poll().await {
        let report = match event {
            DataChannelEvent::OnOpen => {
                if shared.has_ended() {
                    break;
                }
                *shared.lock_channel() = Some(Arc::clone(&channel));
                PeerEvent::ChannelOpen
            }
            DataChannelEvent::OnMessage(message) if message.is_string => {
                match String::from_utf8(message.data.to_vec()) {
                    Ok(text) => PeerEvent::Message(text),
                    Err(_) => continue,
                }
            }
            DataChannelEvent::OnClose => break,
            _ => continue,
        };
        if shared.events.send(report).await.is_err() {
            break;
        }
    }
    shared.channel_closed.notify_one();
    // The connection's own state would tell only seconds later.
    shared.end();
}
