//! Callbacks of a peer connection, and the tasks that read its track and its data channel.
//!
//! Callbacks run on the connection's driver and must not wait, so they only change the [`CallState`] or spawn a task.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use rtc::rtp_transceiver::rtp_sender::RtpCodecKind;
use webrtc::data_channel::{DataChannel, DataChannelEvent};
use webrtc::media_stream::track_remote::{TrackRemote, TrackRemoteEvent};
use webrtc::peer_connection::{
    PeerConnectionEventHandler, RTCIceConnectionState, RTCIceGatheringState, RTCPeerConnectionState,
};

use super::call_state::CallState;
use super::event::PeerEvent;
use super::muxed_socket::MuxedSocket;
use super::settings::DATA_CHANNEL_LABEL;
use crate::telemetry::log;

/// Callbacks of a connection. They run on its driver.
pub(super) struct Callbacks {
    pub state: Arc<CallState>,
    /// The call's socket at the mux, if it has one; it stores the arrival times of packets.
    pub socket: Option<Arc<MuxedSocket>>,
}

#[async_trait]
impl PeerConnectionEventHandler for Callbacks {
    async fn on_ice_gathering_state_change(&self, state: RTCIceGatheringState) {
        if state == RTCIceGatheringState::Complete {
            self.state.set_gathered();
        }
    }

    async fn on_ice_connection_state_change(&self, state: RTCIceConnectionState) {
        use RTCIceConnectionState::{Closed, Disconnected, Failed};
        if matches!(state, Disconnected | Failed | Closed) {
            self.state.end();
        }
    }

    async fn on_connection_state_change(&self, state: RTCPeerConnectionState) {
        use RTCPeerConnectionState::{Closed, Connected, Disconnected, Failed};
        match state {
            Connected => self.state.set_encrypted(),
            Disconnected | Failed | Closed => self.state.end(),
            _ => {}
        }
    }

    async fn on_data_channel(&self, channel: Arc<dyn DataChannel>) {
        log::spawn(read_remote_channel(channel, Arc::clone(&self.state)));
    }

    async fn on_track(&self, track: Arc<dyn TrackRemote>) {
        log::spawn(read_track(track, Arc::clone(&self.state), self.socket.clone()));
    }
}

/// Reads audio packets of the peer, until the track ends.
async fn read_track(track: Arc<dyn TrackRemote>, state: Arc<CallState>, socket: Option<Arc<MuxedSocket>>) {
    if track.kind().await != RtpCodecKind::Audio || !state.until_connected().await {
        return;
    }
    while let Some(event) = track.poll().await {
        if let TrackRemoteEvent::OnRtpPacket(packet) = event {
            let (ssrc, sequence) = (packet.header.ssrc, packet.header.sequence_number);
            let arrival = socket.as_ref().and_then(|socket| socket.arrival(ssrc, sequence));
            state.queue_audio(PeerEvent::Audio {
                ssrc,
                sequence,
                timestamp: packet.header.timestamp,
                marker: packet.header.marker,
                payload_type: packet.header.payload_type,
                payload: packet.payload,
                arrival: arrival.unwrap_or_else(Instant::now),
            });
        }
    }
}

/// Reads a channel that the peer opened, if it is the one for events; closes others.
async fn read_remote_channel(channel: Arc<dyn DataChannel>, state: Arc<CallState>) {
    if channel.label().await.is_ok_and(|label| label == DATA_CHANNEL_LABEL) && state.claim_channel() {
        read_channel(channel, state).await;
    } else {
        decline(channel).await;
    }
}

/// Closes a channel that the call does not use. Drops its messages until the peer has closed it too: otherwise the
/// library would store hundreds of unread messages of each channel.
async fn decline(channel: Arc<dyn DataChannel>) {
    if let Err(error) = channel.close().await {
        tracing::debug!(%error, "closing a data channel");
    }
    while channel.poll().await.is_some_and(|event| !matches!(event, DataChannelEvent::OnClose)) {}
}

/// Reads messages of the peer, until the channel closes. While the owner does not read, nothing is taken from the
/// channel, and the peer's window closes.
pub(super) async fn read_channel(channel: Arc<dyn DataChannel>, state: Arc<CallState>) {
    if !state.until_connected().await {
        return;
    }
    while let Some(event) = channel.poll().await {
        let report = match event {
            DataChannelEvent::OnOpen => {
                if state.has_ended() {
                    break;
                }
                state.channel_opened(Arc::clone(&channel));
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
        if !state.queue_event(report).await {
            break;
        }
    }
    state.channel_closed();
}
