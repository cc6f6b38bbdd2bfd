//! Offers and answers: both sides of the set-up of a call.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use webrtc::peer_connection::RTCSessionDescription;

use super::call::WebRtcCall;
use super::connection::Connection;
use super::muxed_socket::MuxedSocket;
use super::peer_connection::LossRecovery;
use super::sdp::{self, AnswerError};
use super::settings::WebRtcSettings;
use super::udp_mux::UdpMux;
use crate::telemetry::log;

/// Time limit of gathering candidates, which is local work.
const GATHER_TIMEOUT: Duration = Duration::from_secs(3);

/// Answers an offer. The SDP holds all our candidates, so nothing has to be sent after it; the peer connects once it
/// has the answer, and the call then reports [`PeerEvent::Connected`](super::PeerEvent::Connected).
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
pub fn offer(settings: &WebRtcSettings) -> BoxFuture<'_, Result<(String, PendingOffer), AnswerError>> {
    Box::pin(offer_with(settings, LossRecovery::default()))
}

/// As [`offer`], with `repairs`.
pub(super) async fn offer_with(
    settings: &WebRtcSettings,
    repairs: LossRecovery,
) -> Result<(String, PendingOffer), AnswerError> {
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
    pub(super) connection: Connection,
}

impl PendingOffer {
    /// Connects with the answer.
    pub fn accept(self, answer: &str) -> BoxFuture<'_, Result<WebRtcCall, AnswerError>> {
        Box::pin(async move {
            let max_message_size = sdp::read_offer(answer)?.max_message_size;
            let answer = RTCSessionDescription::answer(answer.to_owned())
                .map_err(|error| AnswerError::NotSdp(error.to_string()))?;
            self.connection.pc.set_remote_description(answer).await.map_err(unusable)?;
            WebRtcCall::new(self.connection, max_message_size, true).await.map_err(unusable)
        })
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
    log::spawn(setup).await.map_err(|error| AnswerError::Internal(error.to_string()))?
}

fn internal(error: webrtc::error::Error) -> AnswerError {
    AnswerError::Internal(error.to_string())
}

fn unusable(error: webrtc::error::Error) -> AnswerError {
    AnswerError::Unusable(error.to_string())
}
