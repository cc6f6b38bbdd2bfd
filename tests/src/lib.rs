//! Helpers shared by the end-to-end tests.
//!
//! - [`server`]: a server in this process; [`demo`]: the one with the demo model
//! - [`questions`]: what is asked, in voices that the demo model never heard
//! - [`witness`]: what the model itself said; [`ear`]: what an independent recogniser hears in it; [`likeness`]: how much of it is
//!   in a recording
//! - [`tools`]: the programs that drive the server from outside, and where they are
//! - [`conformance`]: the conversation that every stock client must be able to have

pub mod conformance;
pub mod demo;
pub mod ear;
pub mod likeness;
pub mod questions;
pub mod server;
pub mod tools;
pub mod witness;
