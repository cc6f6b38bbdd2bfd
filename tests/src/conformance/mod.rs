//! The conversation that every stock client must be able to have with a server whose answers are known beforehand.
//!
//! - [`scenario`]: what is said and answered, and how a client is driven through it
//! - [`tap`]: what crosses a websocket, seen from between client and server
//! - [`events`]: the events of a conversation against the schemas of others
//! - [`voice`]: the scripted voice after a codec, a network and a receiver
//! - [`verdict`]: what must be true of a conversation afterwards

pub mod events;
pub mod scenario;
pub mod tap;
pub mod verdict;
pub mod voice;
