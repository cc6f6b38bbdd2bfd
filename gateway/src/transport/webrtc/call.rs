//! One WebRTC call: its events, its data channel and its audio track.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rtc::peer_connection::configuration::media_engine::MIME_TYPE_OPUS;
use rtc::rtp;
use thiserror::Error;
use webrtc::media_stream::track_local::TrackLocal as _;

use super::connection::Connection;
#[cfg(doc)]
use super::event::PeerEvent;
use super::event_queue::PeerEvents;
use super::peer_connection::MIME_TYPE_RED;
use super::reports::LinkQuality;

/// RTP clock rate; for Opus always 48 kHz.
const CLOCK: u128 = 48_000;

/// Error of sending a message or audio.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SendError {
    /// The peer accepts no messages of this size; the channel stays open.
    #[error("a message of {size} bytes exceeds the peer's limit of {limit}")]
    TooLarge {
        /// Size of the message, in bytes.
        size: usize,
        /// Largest size that the peer accepts, in bytes.
        limit: usize,
    },
    /// The data channel is not open yet.
    #[error("the data channel is not open yet")]
    NotOpen,
    /// The call is over.
    #[error("the call is over")]
    Closed,
}

/// WebRTC call. Dropping it hangs up and frees everything in the background; [`WebRtcCall::close`] waits for that.
#[derive(Debug)]
pub struct WebRtcCall {
    /// The call's events, in order. `None` only after [`PeerEvent::Closed`].
    pub events: PeerEvents,
    connection: Connection,
    terms: CallTerms,
    payload_types: PayloadTypes,
    clock: Mutex<RtpClock>,
}

/// Agreements of a call's descriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallTerms {
    /// Largest message that the peer accepts, in bytes; `None` without a data channel.
    pub max_message_size: Option<usize>,
    /// True if the peer receives our audio.
    pub sends_audio: bool,
    /// Payload type of the peer's telephone events (RFC 4733).
    pub telephone_event: Option<u8>,
}

/// RTP payload types of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PayloadTypes {
    /// Payload type of plain Opus.
    pub opus: u8,
    /// Payload type of redundant Opus, if the peer accepts it.
    pub red: Option<u8>,
    /// Payload type of telephone events (RFC 4733), if the peer sends them.
    pub telephone_event: Option<u8>,
}

impl PayloadTypes {
    /// True for plain and redundant Opus.
    pub fn is_audio(self, payload_type: u8) -> bool {
        payload_type == self.opus || Some(payload_type) == self.red
    }
}

/// Sequence number and timestamp of the next RTP packet.
#[derive(Debug)]
struct RtpClock {
    sequence: u16,
    timestamp: u32,
    /// The next packet is the first after silence.
    marker: bool,
}

impl WebRtcCall {
    /// Creates a call over a connection that has both descriptions.
    pub(super) async fn new(mut connection: Connection, terms: CallTerms) -> webrtc::error::Result<Self> {
        let mut payload_types = None;
        for sender in connection.pc.get_senders().await {
            let parameters = sender.get_parameters().await?.rtp_parameters;
            let find = |mime_type: &str| {
                let mut codecs = parameters.codecs.iter();
                let codec = codecs.find(|codec| codec.rtp_codec.mime_type.eq_ignore_ascii_case(mime_type));
                codec.map(|codec| codec.payload_type)
            };
            payload_types = find(MIME_TYPE_OPUS).map(|opus| PayloadTypes {
                opus,
                red: find(MIME_TYPE_RED),
                telephone_event: terms.telephone_event,
            });
        }
        let payload_types = payload_types.ok_or(webrtc::error::Error::ErrUnsupportedCodec)?;
        let random = getrandom::u64().map_err(|error| webrtc::error::Error::Other(error.to_string()))?;
        let clock = RtpClock { sequence: random as u16, timestamp: (random >> 16) as u32, marker: true };
        // Only `new` takes the events.
        let events = connection.events.take().ok_or(webrtc::error::Error::ErrConnectionClosed)?;
        Ok(Self { events, connection, terms, payload_types, clock: Mutex::new(clock) })
    }

    /// Largest message that the peer accepts, in bytes.
    pub fn max_message_size(&self) -> usize {
        self.terms.max_message_size.unwrap_or(usize::MAX)
    }

    /// True if a data channel was negotiated.
    pub fn has_channel(&self) -> bool {
        self.terms.max_message_size.is_some()
    }

    /// Number of the peer's audio packets that were dropped because the owner did not read.
    pub fn dropped_audio(&self) -> u64 {
        self.connection.state.dropped_audio()
    }

    /// Sends a text message, in order. Pending while 1 MiB is unsent: give it a time limit. Cancel safe: if the future
    /// is dropped, the message was sent wholly or not at all.
    pub async fn send_message(&self, text: &str) -> Result<(), SendError> {
        if text.len() > self.max_message_size() {
            return Err(SendError::TooLarge { size: text.len(), limit: self.max_message_size() });
        }
        if self.connection.state.has_ended() {
            return Err(SendError::Closed);
        }
        let channel = self.connection.state.channel().ok_or(SendError::NotOpen)?;
        let state = &self.connection.state;
        // A channel with another label may have closed without an end of the call.
        let goes_on = || !state.has_ended() && !state.has_our_channel();
        channel.send_text(text).await.map_err(|_| if goes_on() { SendError::NotOpen } else { SendError::Closed })
    }

    /// Returns the negotiated payload types.
    pub(super) fn payload_types(&self) -> PayloadTypes {
        self.payload_types
    }

    /// Sends one Opus packet that lasts `duration`, at once: the caller does the pacing.
    pub async fn send_audio(&self, payload: Bytes, duration: Duration) -> Result<(), SendError> {
        self.send_rtp(self.payload_types.opus, payload, duration).await
    }

    /// Sends the payload of one packet that lasts `duration`, as one of the negotiated payload types. A peer that is not
    /// connected, or that receives nothing, gets none.
    pub(super) async fn send_rtp(&self, payload_type: u8, payload: Bytes, duration: Duration) -> Result<(), SendError> {
        if self.connection.state.has_ended() {
            return Err(SendError::Closed);
        }
        let header = {
            let mut clock = self.lock_clock();
            let (sequence_number, timestamp) = (clock.sequence, clock.timestamp);
            clock.sequence = sequence_number.wrapping_add(1);
            clock.timestamp = timestamp.wrapping_add(ticks(duration));
            rtp::Header {
                version: 2,
                marker: std::mem::take(&mut clock.marker),
                payload_type,
                sequence_number,
                timestamp,
                ssrc: self.connection.ssrc,
                ..Default::default()
            }
        };
        if !self.terms.sends_audio || !self.connection.state.is_connected() {
            return Ok(());
        }
        self.connection.track.write_rtp(rtp::Packet { header, payload }).await.map_err(|_| SendError::Closed)
    }

    /// Skips `duration` of silence in the RTP timestamps; sends no packet for it (DTX).
    pub fn skip_audio(&self, duration: Duration) {
        let mut clock = self.lock_clock();
        clock.timestamp = clock.timestamp.wrapping_add(ticks(duration));
        clock.marker = true;
    }

    /// Loss and jitter of our audio at the peer, and the round trip, as far as known.
    pub fn quality(&self) -> LinkQuality {
        let mut quality = self.connection.reports.quality();
        // STUN measures the round trip more often than RTCP, and also during silence.
        if let Some(measured) = self.connection.socket.as_ref().and_then(|socket| socket.round_trip()) {
            quality.round_trip = Some(measured);
        }
        quality
    }

    /// Number of changes of the peer's address.
    pub fn address_changes(&self) -> u64 {
        self.connection.socket.as_ref().map_or(0, |socket| socket.address_changes())
    }

    /// Returns once the call has ended and is freed: earlier messages have arrived, or the peer is out of reach.
    pub fn freed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.connection.freed()
    }

    /// Hangs up and waits until everything is freed. If the future is dropped, it is freed in the background.
    pub async fn close(self) {
        let Self { events, connection, .. } = self;
        drop(events);
        connection.close().await;
    }

    fn lock_clock(&self) -> std::sync::MutexGuard<'_, RtpClock> {
        // Plain numbers: a panic cannot leave them half-changed.
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ticks(duration: Duration) -> u32 {
    // Wraps as RTP timestamps do.
    (duration.as_micros() * CLOCK / 1_000_000) as u32
}
