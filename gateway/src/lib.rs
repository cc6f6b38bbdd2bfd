//! The realtime voice gateway.
//!
//! - [`transport`]: websocket and WebRTC
//! - [`call`]: the task of one call, between a transport, the realtime session and the engine
//! - [`server`]: HTTP routes, admission, health, shutdown
//! - [`thinker`]: a chat-completions server as the language model of a cascade
//! - [`turn_judge`]: threads that run the turn-detection model
//! - [`recording`]: recordings of telephone calls
//! - [`voices`]: voices enrolled from recordings, with consents
//! - [`auth`], [`admission`], [`budget`], `address_rate`: keys, and limits of each caller and key
//! - `byte_budget`: bytes that requests hold in memory, bounded for the server, each key and each address
//! - [`headroom`]: admission of calls by how full the machine is
//! - [`long_work`]: long computations apart from calls; [`heap`]: freed memory is given back
//! - [`config`], [`metrics`], [`ids`]: settings, metrics, ids
//! - [`telemetry`]: logs, and traces over OTLP
//! - `hub`: checkpoints of the Hugging Face hub, with the feature of that name
//! - `read_text`: given text in the form and in the pieces that a model reads
//! - `cluster`: membership of a cluster of nodes, with the feature of that name
//! - [`cli`]: commands besides serving
//!
//! Separate crates: `repartee-chat-client` (client of chat-completions servers), `repartee-protocol` (the wire), `repartee-realtime` (the realtime session as a state machine) and
//! `repartee-media` (Opus, jitter buffer, resampling, voice activity, playout clock). Dependencies point one way:
//! server -> transport -> call -> realtime -> protocol, media, engine api.

mod address_rate;
pub mod admission;
pub mod auth;
pub mod budget;
mod byte_budget;
pub mod call;
pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod config;
pub mod headroom;
pub mod heap;
#[cfg(feature = "hub")]
pub mod hub;
pub mod ids;
pub mod long_work;
pub mod metrics;
mod read_text;
pub mod recording;
pub mod server;
pub mod telemetry;
#[cfg(test)]
mod testdata;
pub mod thinker;
pub mod transport;
pub mod turn_judge;
pub mod usage;
pub mod voices;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: repartee_testkit::memory::CountingAllocator = repartee_testkit::memory::CountingAllocator;
