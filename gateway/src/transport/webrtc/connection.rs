//! The peer connection under a call, with its track, its state and its supervisor.
//!
//! One task, the supervisor, owns the end: any side that notices it calls [`CallState::end`], and the supervisor closes
//! the connection.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use webrtc::error::{Error, Result};
use webrtc::media_stream::track_local::TrackLocal;
use webrtc::media_stream::track_local::static_rtp::TrackLocalStaticRTP;
use webrtc::peer_connection::PeerConnection;

use super::call_state::CallState;
use super::callbacks::{Callbacks, read_channel};
use super::event_queue::PeerEvents;
use super::muxed_socket::MuxedSocket;
use super::peer_connection::{LossRecovery, audio_track, build};
use super::reports::ReceiverReports;
use super::settings::{DATA_CHANNEL_LABEL, WebRtcSettings};
use super::supervisor::{OfferedPeer, supervise};
use super::unbound_input::RtpInput;
use crate::telemetry::log;

/// Peer connection with its track, state and tasks. Dropping it ends the call.
pub(super) struct Connection {
    pub pc: Arc<dyn PeerConnection>,
    pub track: Arc<TrackLocalStaticRTP>,
    pub ssrc: u32,
    pub state: Arc<CallState>,
    /// The peer's reports of our audio.
    pub reports: Arc<ReceiverReports>,
    /// The call's socket at the mux, if it has one.
    pub socket: Option<Arc<MuxedSocket>>,
    /// Event queue, until the [`WebRtcCall`](super::WebRtcCall) takes it.
    pub events: Option<PeerEvents>,
    supervisor: Option<JoinHandle<()>>,
    /// Closed once everything is freed.
    freed: watch::Receiver<()>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates a connection for one call: over its socket at the mux, or over its own UDP socket. The peer's certificate
    /// has one of the fingerprints of `offered`; without them the library compares it with the peer's description.
    pub(super) async fn new(
        settings: &WebRtcSettings,
        socket: Option<Arc<MuxedSocket>>,
        repairs: LossRecovery,
        offered: Option<OfferedPeer>,
    ) -> Result<Self> {
        let (state, events) = CallState::new();
        let state = Arc::new(state);
        let ssrc = getrandom::u32().map_err(|error| Error::Other(error.to_string()))?;
        let reports = Arc::new(ReceiverReports::new(ssrc));
        let pc = build(
            settings,
            socket.clone(),
            reports.clone(),
            Callbacks { input: RtpInput { state: Arc::clone(&state), socket: socket.clone() } },
            repairs,
        )
        .await?;
        let (free, freed) = watch::channel(());
        let life = supervise(Arc::clone(&pc), Arc::clone(&state), socket.clone(), settings.connect_within, offered);
        let supervisor = log::spawn(async move {
            life.await;
            drop(free);
        });
        let track = Arc::new(TrackLocalStaticRTP::new(audio_track(ssrc)));
        let (events, supervisor) = (Some(events), Some(supervisor));
        Ok(Self { pc, track, ssrc, state, reports, socket, events, supervisor, freed })
    }

    /// Adds our audio track.
    pub(super) async fn add_track(&self) -> Result<()> {
        self.pc.add_track(Arc::clone(&self.track) as Arc<dyn TrackLocal>).await.map(drop)
    }

    /// Opens the data channel, as the calling side does.
    pub(super) async fn open_channel(&self) -> Result<()> {
        self.state.claim_channel(true);
        let channel = self.pc.create_data_channel(DATA_CHANNEL_LABEL, None).await?;
        log::spawn(read_channel(channel, Arc::clone(&self.state), true));
        Ok(())
    }

    /// Returns once all local candidates are known.
    pub(super) async fn gathered(&self) {
        self.state.until_gathered().await;
    }

    /// Returns once the call has ended and all of it is freed.
    pub(super) fn freed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut freed = self.freed.clone();
        // The channel carries no value: it only closes.
        async move { while freed.changed().await.is_ok() {} }
    }

    /// Ends the call and waits until everything is freed.
    pub(super) async fn close(mut self) {
        self.state.hang_up();
        // Dropping the queue releases tasks that wait for room in it.
        self.events = None;
        if let Some(supervisor) = self.supervisor.take() {
            // Fails only if the runtime shuts down, which frees everything too.
            let _ = supervisor.await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.state.hang_up();
    }
}
