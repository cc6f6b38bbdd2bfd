//! Realtime sessions over websocket and WebRTC.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod churn;
mod doors;
mod families;
mod formats;
mod hearing;
mod lifecycle;
mod listening;
mod offers;
mod sip;
mod telephone;
mod thinker;
mod turn;
mod turn_model;
mod webrtc;
mod websocket;
