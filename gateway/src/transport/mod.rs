//! How bytes come and go. A transport knows nothing of speech.

pub mod sideband;
pub mod webrtc;
pub mod websocket;
