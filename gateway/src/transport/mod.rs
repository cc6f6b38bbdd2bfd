//! Transports between callers and calls: they move bytes and know nothing of turns.

pub mod ping_limit;
pub mod relay;
pub mod sideband;
pub mod telephony;
pub mod webrtc;
pub mod websocket;
