//! Offers and answers: both sides of the set-up of a call.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use repartee_sdp::{LocalTransport, Offer, announced_message_size};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use webrtc::peer_connection::RTCSessionDescription;

use super::answer_error::AnswerError;
use super::call::{CallTerms, WebRtcCall};
use super::connection::Connection;
use super::muxed_socket::MuxedSocket;
use super::peer_connection::LossRecovery;
use super::settings::WebRtcSettings;
use super::supervisor::OfferedPeer;
use super::udp_mux::UdpMux;
use crate::telemetry::log;

/// Time limit of gathering candidates, which is local work.
const GATHER_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest offer that is read at once, in bytes: those of browsers have some 6 KiB.
const MAX_AT_ONCE: usize = 16 << 10;

/// Large offers that are read at a time, so that they leave processors to calls.
static READERS: Semaphore = Semaphore::const_new(1);

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
    let offer = read_offer(offer).await?;
    for (line, media, reason) in offer.rejected() {
        tracing::debug!(line, media, reason, "a section of the offer is rejected");
    }
    let (settings, candidates) = (udp_mux.settings().clone(), udp_mux.candidates(caller));
    let socket = MuxedSocket::open(udp_mux, offer.transport.credentials.clone(), offer.ssrcs().to_vec())
        .map_err(|error| AnswerError::Internal(error.to_string()))?;
    run_to_completion(async move {
        let credentials = socket.credentials().clone();
        let repairs = LossRecovery { red: offer.has_red(), nack: true };
        let offered = OfferedPeer {
            fingerprints: offer.transport.fingerprints.clone(),
            candidates: offer.candidates().to_vec(),
            ours: candidates.clone(),
        };
        let connection =
            Connection::new(&settings, Some(Arc::new(socket)), repairs, Some(offered)).await.map_err(internal)?;
        let pc = Arc::clone(&connection.pc);
        let description = RTCSessionDescription::offer(offer.library_offer()).map_err(internal)?;
        pc.set_remote_description(description).await.map_err(internal)?;
        connection.add_track().await.map_err(internal)?;
        let description = pc.create_answer(None).await.map_err(internal)?;
        let library_answer = set_local_and_gather(&connection, description).await?;
        let fingerprint = library_answer.lines().find_map(|line| line.strip_prefix("a=fingerprint:"));
        let answer = offer.answer(&LocalTransport {
            // Half of the numbers: a session's is below 2^63.
            session_id: getrandom::u64().map_err(|error| AnswerError::Internal(error.to_string()))? >> 1,
            credentials: &credentials,
            fingerprint: fingerprint.ok_or_else(|| AnswerError::Internal("there is no fingerprint".to_owned()))?,
            candidates: &candidates,
            ssrc: connection.ssrc,
            max_message_size: settings.max_message_size,
        });
        // The library sends no larger messages than it takes.
        let largest = settings.max_message_size as usize;
        let terms = CallTerms {
            max_message_size: offer.max_message_size().map(|size| size.min(largest)),
            sends_audio: offer.direction().sends(),
            telephone_event: offer.telephone_event(),
        };
        let call = WebRtcCall::new(connection, terms).await.map_err(internal)?;
        Ok((answer, call))
    })
    .await
}

/// Reads an offer: a small one at once, a large one on a thread of its own, because all calls of the runtime's thread
/// would wait.
async fn read_offer(text: &str) -> Result<Offer, AnswerError> {
    if text.len() <= MAX_AT_ONCE {
        return Ok(Offer::read(text)?);
    }
    let text = text.to_owned();
    // The semaphore is never closed.
    let _permit = READERS.acquire().await;
    let read = spawn_blocking(move || Offer::read(&text)).await;
    Ok(read.map_err(|error| AnswerError::Internal(error.to_string()))??)
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
        let connection = Connection::new(&settings, None, repairs, None).await.map_err(internal)?;
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
            let max_message_size = Some(announced_message_size(answer)?);
            let terms = CallTerms { max_message_size, sends_audio: true, telephone_event: None };
            let answer = RTCSessionDescription::answer(answer.to_owned()).map_err(internal)?;
            self.connection.pc.set_remote_description(answer).await.map_err(internal)?;
            WebRtcCall::new(self.connection, terms).await.map_err(internal)
        })
    }
}

/// Sets the local description and returns it once it holds all addresses.
pub(super) async fn set_local_and_gather(
    connection: &Connection,
    description: RTCSessionDescription,
) -> Result<String, AnswerError> {
    connection.pc.set_local_description(description).await.map_err(internal)?;
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
