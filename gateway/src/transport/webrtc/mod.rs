//! One call over WebRTC: Opus both ways and the data channel `oai-events`.
//!
//! ```text
//! offer SDP -> answer() -> answer SDP, and a Call:   events in (audio packets, messages, closed)
//!                                                    send_audio, send_message, round_trip, close
//! ```
//!
//! | file | content |
//! |---|---|
//! | `call` | [`WebRtcCall`]: its events, and methods to send |
//! | `event` | [`PeerEvent`]: events of a peer connection |
//! | `connection` | the peer connection under a call |
//! | `peer_connection`, `callbacks`, `supervisor` | its construction, its callbacks, its end |
//! | `call_state` | the state that these share |
//! | `ice` | our ICE agent: the caller's active address, also after it changes |
//! | `credentials`, `stun` | names and signatures of ICE messages, and the messages |
//! | `probe_budget` | rate limit of STUN to addresses that are not validated |
//! | `ssrcs`, `srtp_state` | limits on the SSRCs that reach the library, and counters of its packets |
//! | `udp_mux` | [`UdpMux`]: one UDP socket for all calls |
//! | `demux` | map from datagrams to calls |
//! | `arrivals` | arrival times of packets at the socket |
//! | `muxed_socket` | one call's socket on the mux |
//! | `muxed_runtime` | the library's runtime over that socket |
//! | `addresses` | the addresses of this machine |
//! | `reports` | RTCP: loss, jitter and round trip of our audio |
//! | `transport` | [`WebRtcTransport`]: the connection as the call's task sees it |
//! | `input_audio` | jitter buffer and decoder |
//! | `output_audio` | playout clock |
//! | `packet_encoder` | encoder, on the sending task |
//! | `sdp` | parsing of offers, with typed errors |
//! | `settings` | addresses and limits |
//!
//! [`offer`] makes the calling side, for tests and load tests.
//!
//! A call ends if its owner closes or drops it, or if the peer hangs up or vanishes: the data channel or the connection
//! closes, or nothing arrives for [`PEER_TIMEOUT`]. In each case the sockets and all tasks of the call are freed.

mod addresses;
mod arrivals;
mod call;
mod call_state;
mod callbacks;
mod connection;
mod credentials;
mod demux;
mod event;
mod ice;
mod input_audio;
mod muxed_runtime;
mod muxed_socket;
mod output_audio;
mod packet_encoder;
mod peer_connection;
mod probe_budget;
mod reports;
mod sdp;
mod settings;
mod srtp_state;
mod ssrcs;
mod stun;
mod supervisor;
mod transport;
mod udp_mux;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use webrtc::peer_connection::RTCSessionDescription;

pub use call::{SendError, WebRtcCall};
pub use event::PeerEvent;
pub use reports::LinkQuality;
pub use settings::WebRtcSettings;
pub use transport::{TransportSettings, WebRtcTransport};
pub use udp_mux::{DroppedDatagrams, UdpMux};

use connection::Connection;
use muxed_socket::MuxedSocket;
use peer_connection::LossRecovery;

/// Label of the data channel that carries the protocol's events.
pub const DATA_CHANNEL_LABEL: &str = "oai-events";
/// A peer is gone if nothing arrives from it for this long.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of gathering candidates, which is local work.
const GATHER_TIMEOUT: Duration = Duration::from_secs(3);

/// Reason for an unanswered offer. All but [`AnswerError::Internal`] are errors of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The text is not SDP.
    #[error("the offer is not SDP: {0}")]
    NotSdp(String),
    /// There is no audio section, or it is disabled.
    #[error("the offer has no audio section: add a microphone track or an audio transceiver")]
    NoAudio,
    /// The audio section does not list Opus.
    #[error("the offer's audio section does not list Opus (opus/48000/2)")]
    NoOpus,
    /// It is SDP, but no call can be made from it.
    #[error("the offer cannot be answered: {0}")]
    Unusable(String),
    /// An internal error.
    #[error("the call could not be set up: {0}")]
    Internal(String),
}

/// Answers an offer. The SDP holds all our candidates, so nothing has to be sent after it; the peer connects once it
/// has the answer, and the call then reports [`PeerEvent::Connected`].
///
/// `caller` is the source address of the offer: the answer then names only our address on the route to it.
///
/// Cancel safe: if the future is dropped, all of the set-up is freed.
pub async fn answer(
    offer: &str,
    udp_mux: &UdpMux,
    caller: Option<IpAddr>,
) -> Result<(String, WebRtcCall), AnswerError> {
    let remote = sdp::read_offer(offer)?;
    let offer = remote.filtered_sdp;
    let (settings, candidates) = (udp_mux.settings().clone(), udp_mux.candidates(caller));
    let socket = MuxedSocket::open(udp_mux, remote.credentials, remote.ssrcs)
        .map_err(|error| AnswerError::Internal(error.to_string()))?;
    run_to_completion(async move {
        let repairs = LossRecovery { red: remote.red, nack: true };
        let connection = Connection::new(&settings, Some(Arc::new(socket)), repairs).await.map_err(internal)?;
        let pc = Arc::clone(&connection.pc);
        let offer = RTCSessionDescription::offer(offer).map_err(|error| AnswerError::NotSdp(error.to_string()))?;
        pc.set_remote_description(offer).await.map_err(unusable)?;
        connection.add_track().await.map_err(internal)?;
        let answer = pc.create_answer(None).await.map_err(unusable)?;
        let description = sdp::with_candidates(&set_local_and_gather(&connection, answer).await?, &candidates);
        let call = WebRtcCall::new(connection, remote.max_message_size, remote.has_channel).await.map_err(unusable)?;
        Ok((description, call))
    })
    .await
}

/// Creates the calling side: an offer to send, and the [`PendingOffer`] that takes the answer.
///
/// Cancel safe: if the future is dropped, all of the set-up is freed.
pub async fn offer(settings: &WebRtcSettings) -> Result<(String, PendingOffer), AnswerError> {
    offer_with(settings, LossRecovery::default()).await
}

/// As [`offer`], with `repairs`.
async fn offer_with(settings: &WebRtcSettings, repairs: LossRecovery) -> Result<(String, PendingOffer), AnswerError> {
    let settings = settings.clone();
    run_to_completion(async move {
        let connection = Connection::new(&settings, None, repairs).await.map_err(internal)?;
        connection.add_track().await.map_err(internal)?;
        connection.open_channel().await.map_err(internal)?;
        let offer = connection.pc.create_offer(None).await.map_err(internal)?;
        let description = set_local_and_gather(&connection, offer).await?;
        Ok((description, PendingOffer { connection }))
    })
    .await
}

/// An offer without an answer yet; dropping it frees everything.
#[derive(Debug)]
pub struct PendingOffer {
    connection: Connection,
}

impl PendingOffer {
    /// Connects with the answer.
    pub async fn accept(self, answer: &str) -> Result<WebRtcCall, AnswerError> {
        let max_message_size = sdp::read_offer(answer)?.max_message_size;
        let answer =
            RTCSessionDescription::answer(answer.to_owned()).map_err(|error| AnswerError::NotSdp(error.to_string()))?;
        self.connection.pc.set_remote_description(answer).await.map_err(unusable)?;
        WebRtcCall::new(self.connection, max_message_size, true).await.map_err(unusable)
    }
}

/// Sets the local description and returns it once it holds all addresses.
async fn set_local_and_gather(
    connection: &Connection,
    description: RTCSessionDescription,
) -> Result<String, AnswerError> {
    connection.pc.set_local_description(description).await.map_err(unusable)?;
    tokio::time::timeout(GATHER_TIMEOUT, connection.gathered())
        .await
        .map_err(|_| AnswerError::Internal("no local address was found in time".to_owned()))?;
    match connection.pc.local_description().await {
        Some(description) => Ok(description.sdp),
        None => Err(AnswerError::Internal("the local description is gone".to_owned())),
    }
}

/// Runs a set-up to its end even if the caller's future is dropped: a peer connection that is dropped half-way keeps
/// its driver, while a finished one is freed by its owner's `Drop`.
async fn run_to_completion<T: Send + 'static>(
    setup: impl Future<Output = Result<T, AnswerError>> + Send + 'static,
) -> Result<T, AnswerError> {
    crate::telemetry::log::spawn(setup).await.map_err(|error| AnswerError::Internal(error.to_string()))?
}

fn internal(error: webrtc::error::Error) -> AnswerError {
    AnswerError::Internal(error.to_string())
}

fn unusable(error: webrtc::error::Error) -> AnswerError {
    AnswerError::Unusable(error.to_string())
}

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod udp_mux_tests;
