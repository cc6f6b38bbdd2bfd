//! Conformance of stock clients: each completes one conversation with a server whose answers are scripted.
//!
//! - [`scenario`]: turns and answers of the conversation; runs a client
//! - [`tap`]: a relay that records a websocket
//! - [`events`]: checks events against third-party schemas
//! - [`voice`]: checks the scripted voice after codec, network and receiver
//! - [`verdict`]: checks the whole conversation

pub mod events;
pub mod scenario;
pub mod tap;
pub mod verdict;
pub mod voice;
