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

use super::DATA_CHANNEL_LABEL;
use super::call_state::CallState;
use super::event::PeerEvent;

/// The connection's callbacks. They run on its driver.
pub(super) struct Callbacks(pub Arc<CallState>);

#[async_trait]
impl PeerConnectionEventHandler for Callbacks {
    async fn on_ice_gathering_state_change(&self, state: RTCIceGatheringState) {
        if state == RTCIceGatheringState::Complete {
            self.0.set_gathered();
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

/// Reads audio packets of the peer, until the track ends.
async fn read_track(track: Arc<dyn TrackRemote>, state: Arc<CallState>) {
    if track.kind().await != RtpCodecKind::Audio {
        return;
    }
    while let Some(event) = track.poll().await {
        if let TrackRemoteEvent::OnRtpPacket(packet) = event {
            state.audio(PeerEvent::Audio {
                sequence: packet.header.sequence_number,
                timestamp: packet.header.timestamp,
                marker: packet.header.marker,
                payload: packet.payload,
                arrival: Instant::now(),
            });
        }
    }
}

/// Reads a channel that the peer has opened, if it is the one for events.
async fn read_remote_channel(channel: Arc<dyn DataChannel>, state: Arc<CallState>) {
    if channel.label().await.is_ok_and(|label| label == DATA_CHANNEL_LABEL) {
        read_channel(channel, state).await;
    }
}

/// Reads messages of the peer, until the channel closes. While the owner does not read, nothing is taken from the channel, and
/// the peer's window closes.
pub(super) async fn read_channel(channel: Arc<dyn DataChannel>, state: Arc<CallState>) {
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
        if !state.report(report).await {
            break;
        }
    }
    state.channel_closed();
}
