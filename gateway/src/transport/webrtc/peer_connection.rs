//! Builds the library's peer connection: sockets, codecs and timing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rtc::ice::mdns::MulticastDnsMode;
use rtc::interceptor::{NackGeneratorBuilder, NackResponderBuilder, Slot};
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::media_engine::MIME_TYPE_OPUS;
use rtc::peer_connection::configuration::setting_engine::SctpMaxMessageSize;
use rtc::peer_connection::transport::RTCDtlsRole;
use rtc::rtp_transceiver::rtp_sender::{
    RTCPFeedback, RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters, RtpCodecKind,
};
use webrtc::error::Result;
use webrtc::peer_connection::{
    MediaEngine, PeerConnection, PeerConnectionBuilder, RTCConfigurationBuilder, Registry, SettingEngine,
    SettingEngineBuilder, configure_rtcp_reports,
};

use super::callbacks::Callbacks;
use super::muxed_runtime::MuxedRuntime;
use super::muxed_socket::MuxedSocket;
use super::reports::{ReceiverReports, RtcpObserver};
use super::settings::{PEER_TIMEOUT, WebRtcSettings};
use super::unbound_input::UnboundInput;

/// Bytes that may wait to be sent over the data channel; beyond that a sender waits.
const SEND_BUFFER: usize = 1 << 20;
/// Checks every 20 ms instead of 200: a call is up 180 ms earlier. Their total time is the library's default.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const MAX_CHECKS: u16 = 70;
/// Interval of ICE checks on an established connection; also the silence after which a caller is checked for liveness.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(2);
/// Replay windows of DTLS, SRTP and SRTCP, in packets; older packets are dropped.
const DTLS_WINDOW: usize = 128;
const SRTP_WINDOW: usize = 512;
const SRTCP_WINDOW: usize = 128;
/// Opus in RTP is always announced with two channels (RFC 7587); the parameters ask the peer for error correction.
const OPUS_CHANNELS: u16 = 2;
const OPUS_PARAMETERS: &str = "minptime=10;useinbandfec=1";
/// Payload types of our offers; an answer uses the peer's.
const OPUS_PAYLOAD_TYPE: u8 = 111;
const RED_PAYLOAD_TYPE: u8 = 63;
const RED_PARAMETERS: &str = "111/111";
/// MIME type of redundant Opus (RFC 2198).
pub(super) const MIME_TYPE_RED: &str = "audio/red";
/// Sent packets that are stored for retransmission, 320 ms; must be a power of two.
const NACK_BUFFER: u16 = 16;
/// Interval of the calling side's NACKs, maximum NACKs for one packet, and window in packets.
const NACK_INTERVAL: Duration = Duration::from_millis(20);
const NACK_RETRIES: u16 = 10;
const NACK_WINDOW: u16 = 64;

/// Repairs of packet loss besides the error correction inside Opus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LossRecovery {
    /// Copies of earlier packets within later ones (RFC 2198).
    pub red: bool,
    /// Retransmission on request (RFC 4585).
    pub nack: bool,
}

/// Builds the peer connection: makes all choices about sockets, codecs and timing.
pub(super) async fn build(
    settings: &WebRtcSettings,
    socket: Option<Arc<MuxedSocket>>,
    reports: Arc<ReceiverReports>,
    callbacks: Callbacks,
    repairs: LossRecovery,
) -> Result<Arc<dyn PeerConnection>> {
    let mut media_engine = MediaEngine::default();
    let mut opus = opus();
    if repairs.nack {
        // An answer has NACK only if the offer has it.
        opus.rtcp_feedback.push(RTCPFeedback { typ: "nack".to_owned(), parameter: String::new() });
    }
    let codec = RTCRtpCodecParameters { rtp_codec: opus.clone(), payload_type: OPUS_PAYLOAD_TYPE };
    media_engine.register_codec(codec, RtpCodecKind::Audio)?;
    if repairs.red {
        let (mime_type, sdp_fmtp_line) = (MIME_TYPE_RED.to_owned(), RED_PARAMETERS.to_owned());
        let rtp_codec = RTCRtpCodec { mime_type, sdp_fmtp_line, rtcp_feedback: Vec::new(), ..opus };
        let codec = RTCRtpCodecParameters { rtp_codec, payload_type: RED_PAYLOAD_TYPE };
        media_engine.register_codec(codec, RtpCodecKind::Audio)?;
    }
    let bind = match socket {
        // The library's socket is closed at once, see `muxed_runtime`.
        Some(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        None => SocketAddr::new(settings.udp.ip(), 0),
    };
    let srtp = socket.as_ref().map(|socket| socket.srtp()).unwrap_or_default();
    let unbound = UnboundInput::new(callbacks.input.clone());
    let registry =
        configure_rtcp_reports(Registry::new()).with(RtcpObserver::SLOT, RtcpObserver::new(reports, srtp, unbound));
    let registry = match &socket {
        // Each interceptor works only if the descriptions negotiate NACK.
        Some(_) => registry.with(Slot::NackResponder, NackResponderBuilder::new().with_size(NACK_BUFFER).build()),
        None => registry.with(
            Slot::NackGenerator,
            NackGeneratorBuilder::new()
                .with_size(NACK_WINDOW)
                .with_interval(NACK_INTERVAL)
                .with_max_nacks_per_packet(NACK_RETRIES)
                .build(),
        ),
    };
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
    // At the mux we check the caller's liveness ourselves: the library counts STUN alone.
    let timeout = if socket.is_some() { Duration::ZERO } else { PEER_TIMEOUT };
    let builder = SettingEngineBuilder::new()
        .with_ice_timeouts(Some(timeout), Some(timeout), Some(KEEPALIVE))
        .with_ice_connection_attempts(Some(CHECK_INTERVAL), Some(MAX_CHECKS))
        // The peer then starts the handshake, right after the check that connects it.
        .with_answering_dtls_role(RTCDtlsRole::Server)
        // A caller's certificate is checked by `peer_certificate`.
        .with_disable_certificate_fingerprint_verification(socket.is_some())
        // Browsers hide their addresses behind mDNS names; they are still found as peer-reflexive ones.
        .with_multicast_dns_mode(MulticastDnsMode::Disabled)
        // Explicit, independent of the library's defaults. A window spans more than any jitter: late packets are no
        // replays.
        .with_dtls_replay_protection_window(DTLS_WINDOW)
        .with_srtp_replay_protection_window(SRTP_WINDOW)
        .with_srtcp_replay_protection_window(SRTCP_WINDOW)
        .with_include_loopback_candidate(bind.ip().is_loopback())
        .with_sctp_max_message_size(SctpMaxMessageSize::Bounded(settings.max_message_size));
    match socket.map(MuxedSocket::credentials) {
        Some(ours) => builder.with_lite(true).with_ice_credentials(ours.ufrag.clone(), ours.password.clone()).build(),
        None => builder.build(),
    }
}

/// The only audio codec besides its redundant form.
fn opus() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.to_owned(),
        clock_rate: 48_000,
        channels: OPUS_CHANNELS,
        sdp_fmtp_line: OPUS_PARAMETERS.to_owned(),
        rtcp_feedback: Vec::new(),
    }
}

/// Our audio track, with the SSRC `ssrc`.
pub(super) fn audio_track(ssrc: u32) -> MediaStreamTrack {
    let encoding = RTCRtpEncodingParameters {
        rtp_coding_parameters: RTCRtpCodingParameters { ssrc: Some(ssrc), ..Default::default() },
        codec: opus(),
        ..Default::default()
    };
    let name = || "voice".to_owned();
    MediaStreamTrack::new(name(), name(), name(), RtpCodecKind::Audio, vec![encoding])
}
