//! Transports between callers and calls: they move bytes and know nothing of turns.

pub mod relay;
pub mod sideband;
pub mod webrtc;
pub mod websocket;
