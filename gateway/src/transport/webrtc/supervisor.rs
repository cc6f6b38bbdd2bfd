//! End of a call: waits for it, delivers the last messages, and closes the peer connection. A connection that is only
//! dropped would keep its driver running.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use repartee_sdp::Fingerprints;
use webrtc::data_channel::DataChannel;
use webrtc::peer_connection::PeerConnection;

use super::call_state::{CallPhase, CallState};
use super::event::PeerEvent;
use super::muxed_socket::MuxedSocket;
use super::peer_certificate::verify_certificate;
use super::peer_connection::KEEPALIVE;
use super::settings::PEER_TIMEOUT;

/// Time limit for the delivery of the last messages if we end a call: a lost packet is sent again after a second.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Poll interval of that delivery.
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// Time limit for reading the peer's last messages; also the base of the wait for the data channel to close.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);
/// Minimum pause between liveness checks of a caller that is silent for longer than [`KEEPALIVE`].
const LIVENESS_POLL: Duration = Duration::from_millis(250);

/// The caller and our addresses, as the call's descriptions name them.
#[derive(Debug, Clone)]
pub(super) struct OfferedPeer {
    /// Fingerprints of the caller's certificate.
    pub fingerprints: Fingerprints,
    /// The caller's first candidates, for the log.
    pub candidates: Vec<String>,
    /// Addresses that our answer names, the preferred one first.
    pub ours: Vec<SocketAddr>,
}

/// Waits for the end of a call and frees it.
pub(super) async fn supervise(
    pc: Arc<dyn PeerConnection>,
    state: Arc<CallState>,
    socket: Option<Arc<MuxedSocket>>,
    connect_within: Duration,
    offered: Option<OfferedPeer>,
) {
    let mut phase = state.phase();
    let encrypted = phase.wait_for(|phase| *phase != CallPhase::Connecting);
    let encrypted = tokio::time::timeout(connect_within, encrypted).await.is_ok();
    if !encrypted && let (Some(offered), Some(socket)) = (&offered, &socket) {
        log_unconnected(offered, socket, connect_within);
    }
    let fingerprints = offered.as_ref().map(|offered| &offered.fingerprints);
    let is_peer = encrypted && !state.has_ended() && is_expected_peer(&pc, fingerprints).await;
    if is_peer {
        state.set_connected();
        tokio::select! {
            // Cannot fail: the sender lives in `state`.
            _ = phase.wait_for(|phase| *phase == CallPhase::Ended) => {}
            () = peer_timeout(socket.as_deref()) => {}
        }
    }
    state.end();
    if let Some(channel) = state.take_channel() {
        if state.is_hung_up() {
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained(&channel)).await;
            // Browsers report an error if the association ends while the channel is open. The peer's close is not
            // reported, so we wait: it takes a round trip each way.
            if channel.close().await.is_ok() {
                let round_trip = socket.as_ref().and_then(|socket| socket.round_trip()).unwrap_or_default();
                tokio::time::sleep((round_trip * 3).clamp(CLOSE_TIMEOUT / 2, CLOSE_TIMEOUT * 4)).await;
            }
        } else {
            // The owner first reads the peer's last messages. After this limit the peer is out of reach.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, state.until_channel_closed()).await;
        }
    }
    let told = state.try_queue_event(PeerEvent::Closed);
    if let Err(error) = pc.close().await {
        tracing::debug!(%error, "closing a peer connection");
    }
    drop(pc);
    if !told {
        // The queue was full: the owner finds this event behind the others, or has dropped the queue.
        state.queue_event(PeerEvent::Closed).await;
    }
}

/// Logs the reason why a call has not connected in time, with the candidates of both sides.
fn log_unconnected(offered: &OfferedPeer, socket: &MuxedSocket, waited: Duration) {
    let report = socket.connectivity();
    let (missing, checks_from) = (report.missing(), &report.checked);
    let (ours, theirs) = (&offered.ours, &offered.candidates);
    tracing::warn!(?waited, missing, ?ours, ?theirs, ?checks_from, "a call has not connected in time");
}

/// True if the peer has a certificate with one of `fingerprints`, or if the library has checked it.
async fn is_expected_peer(pc: &Arc<dyn PeerConnection>, fingerprints: Option<&Fingerprints>) -> bool {
    let Some(fingerprints) = fingerprints else { return true };
    let verified = verify_certificate(pc, fingerprints).await;
    if let Err(error) = &verified {
        tracing::warn!(%error, "a call was refused");
    }
    verified.is_ok()
}

/// Returns once nothing has come from the caller for [`PEER_TIMEOUT`], although checks were sent. Never returns for a
/// connection with its own UDP socket, whose ICE agent has this timeout.
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

/// Returns once the peer has received all messages sent over the channel.
async fn drained(channel: &Arc<dyn DataChannel>) {
    while channel.outstanding_bytes().await.is_ok_and(|bytes| bytes > 0) {
        tokio::time::sleep(DRAIN_POLL).await;
    }
}
