//! The realtime voice gateway.
//!
//! - [`protocol`]: the OpenAI Realtime GA wire
//! - [`session`]: the conversation as a state machine, without I/O and without a clock
//! - [`call`]: the task of one call, between a line, the conversation and the engine
//! - [`media`]: Opus, jitter buffer, resampling, voice activity, playout clock
//! - [`transport`]: websocket and WebRTC lines
//! - [`server`]: HTTP routes, admission, health, shutdown
//! - [`ask`]: one turn without a server
//! - [`auth`], [`admission`]: keys, and how much each caller may have
//! - [`wav`]: files of sound
//! - [`config`], [`metrics`], [`ids`]: settings, what is counted, names
//! - [`lan`]: what a server for the phones in the house needs
//!
//! Dependencies point one way: transport -> call -> session -> protocol.

pub mod admission;
pub mod ask;
pub mod auth;
pub mod call;
pub mod config;
#[cfg(test)]
mod fuzzing;
pub mod ids;
pub mod lan;
pub mod media;
pub mod metrics;
pub mod protocol;
pub mod server;
pub mod session;
#[doc(hidden)]
pub mod testing;
pub mod transport;
pub mod wav;
