//! Events of a peer connection.

use std::time::Instant;

use bytes::Bytes;

/// Event of a peer connection.
///
/// The queue is bounded in number, and messages in bytes. They are never dropped: while it is full, the peer's window closes. Audio packets are
/// dropped and counted ([`WebRtcCall::dropped_audio`](super::WebRtcCall::dropped_audio)) if the owner has not read for seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerEvent {
    /// The peer is connected and encrypted.
    Connected,
    /// The data channel is open: messages may be sent.
    ChannelOpen,
    /// An RTP packet of the peer's audio, as it arrived; see [`repartee_media::jitter`].
    Audio {
        /// SSRC of the sender; one for each track.
        ssrc: u32,
        /// RTP sequence number.
        sequence: u16,
        /// RTP timestamp, 48 kHz.
        timestamp: u32,
        /// RTP marker: the first packet after silence.
        marker: bool,
        /// RTP payload type: plain or redundant Opus.
        payload_type: u8,
        /// One Opus packet; redundant Opus adds copies of earlier ones.
        payload: Bytes,
        /// Arrival at the socket, or time of decryption if the arrival is no longer stored.
        arrival: Instant,
    },
    /// A text message of the peer.
    Message(String),
    /// The call is over; the last event.
    Closed,
}
