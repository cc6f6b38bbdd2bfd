//! The realtime voice gateway.
//!
//! - [`protocol`]: the OpenAI Realtime GA wire
//! - [`session`]: the conversation as a state machine, without I/O and without a clock
//! - [`call`]: the task of one call, between a line, the conversation and the engine
//! - [`media`]: Opus, jitter buffer, resampling, voice activity, playout clock
//! - [`transport`]: websocket and WebRTC lines
//! - [`server`]: HTTP routes, admission, health, shutdown
//! - [`ask`]: one turn without a server
//! - [`config`], [`metrics`], [`ids`]: settings, what is counted, names
//!
//! Dependencies point one way: transport -> call -> session -> protocol.

pub mod ask;
pub mod call;
pub mod config;
pub mod ids;
pub mod media;
pub mod metrics;
pub mod protocol;
pub mod server;
pub mod session;
#[doc(hidden)]
pub mod testing;
pub mod transport;
