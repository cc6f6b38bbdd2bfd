//! Transports between callers and calls: they move bytes and know nothing of turns.

pub mod announced;
pub mod message_bytes;
pub mod ping_limit;
pub mod relay;
pub mod rtp_time_limit;
pub mod sideband;
#[cfg(feature = "phone")]
pub mod sip;
pub mod telephony;
pub mod webrtc;
pub mod websocket;
