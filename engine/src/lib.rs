//! The speech engine of Repartee: sessions, sub-requests, continuous batching and model families.
//!
//! No network and no async runtime: one thread owns the device and the models, callers hold a [`session::Session`].
//!
//! - [`session`]: the handle, its commands and events
//! - [`checkpoint`]: published-format model folders
//! - [`models`]: one folder a model family
//! - [`audio`]: the log-mel front end
//! - [`text`]: the tokenizer

pub mod audio;
pub mod checkpoint;
pub mod models;
pub mod session;
pub mod text;
