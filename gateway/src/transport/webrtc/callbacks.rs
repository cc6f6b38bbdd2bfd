//! Callbacks of a peer connection, and the tasks that read its track and its data channel.
//!
//! Callbacks run on the connection's driver and must not wait, so they only change the [`CallState`] or spawn a task.

use std::sync::Arc;

use async_trait::async_trait;
use rtc::rtp_transceiver::rtp_sender::RtpCodecKind;
use webrtc::data_channel::{DataChannel, DataChannelEvent};
use webrtc::media_stream::track_remote::{TrackRemote, TrackRemoteEvent};
use webrtc::peer_connection::{
    PeerConnectionEventHandler, RTCIceConnectionState, RTCIceGatheringState, RTCPeerConnectionState,
};

use super::call_state::CallState;
use super::event::PeerEvent;
use super::settings::DATA_CHANNEL_LABEL;
use super::unbound_input::RtpInput;
use crate::telemetry::log;

/// Callbacks of a connection. They run on its driver.
pub(super) struct Callbacks {
    /// The call's state, and the queue of its audio.
    pub input: RtpInput,
}

#[async_trait]
impl PeerConnectionEventHandler for Callbacks {
    async fn on_ice_gathering_state_change(&self, state: RTCIceGatheringState) {
        if state == RTCIceGatheringState::Complete {
            self.input.state.set_gathered();
        }
    }

    async fn on_ice_connection_state_change(&self, state: RTCIceConnectionState) {
        use RTCIceConnectionState::{Closed, Disconnected, Failed};
        if matches!(state, Disconnected | Failed | Closed) {
            self.input.state.end();
        }
    }

    async fn on_connection_state_change(&self, state: RTCPeerConnectionState) {
        use RTCPeerConnectionState::{Closed, Connected, Disconnected, Failed};
        match state {
            Connected => self.input.state.set_encrypted(),
            Disconnected | Failed | Closed => self.input.state.end(),
            _ => {}
        }
    }

    async fn on_data_channel(&self, channel: Arc<dyn DataChannel>) {
        log::spawn(read_remote_channel(channel, Arc::clone(&self.input.state)));
    }

    async fn on_track(&self, track: Arc<dyn TrackRemote>) {
        log::spawn(read_track(track, self.input.clone()));
    }
}

/// Reads audio packets of the peer, until the track ends.
async fn read_track(track: Arc<dyn TrackRemote>, input: RtpInput) {
    if track.kind().await != RtpCodecKind::Audio || !input.state.until_connected().await {
        return;
    }
    while let Some(event) = track.poll().await {
        if let TrackRemoteEvent::OnRtpPacket(packet) = event {
            input.queue(packet);
        }
    }
}

/// Reads a channel that the peer opened, if it is the one for events: the first of any label, until one with our label
/// comes. Closes others.
async fn read_remote_channel(channel: Arc<dyn DataChannel>, state: Arc<CallState>) {
    let is_ours = channel.label().await.is_ok_and(|label| label == DATA_CHANNEL_LABEL);
    if state.claim_channel(is_ours) {
        read_channel(channel, state, is_ours).await;
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
/// channel, and the peer's window closes. The end of a channel with our label is the end of the call: the connection's
/// own state lags. Messages of another one are dropped once there is one with our label.
pub(super) async fn read_channel(channel: Arc<dyn DataChannel>, state: Arc<CallState>, is_ours: bool) {
    if !state.until_connected().await {
        return;
    }
    let is_displaced = || !is_ours && state.has_our_channel();
    while let Some(event) = channel.poll().await {
        let report = match event {
            DataChannelEvent::OnOpen => {
                if state.has_ended() {
                    break;
                }
                if is_displaced() {
                    continue;
                }
                state.channel_opened(Arc::clone(&channel));
                PeerEvent::ChannelOpen
            }
            DataChannelEvent::OnMessage(message) if message.is_string && !is_displaced() => {
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
    if is_ours {
        state.channel_closed();
    } else {
        state.other_channel_closed();
    }
}
