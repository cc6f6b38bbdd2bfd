//! Helpers shared by the end-to-end tests.
//!
//! - [`demo`]: the server with the demo model
//! - [`questions`]: what is asked, in voices that the demo model never heard
//! - [`ear`]: what an independent recogniser hears in the answers
//! - [`tools`]: the programs that drive the server from outside, and where they are

pub mod demo;
pub mod ear;
pub mod questions;
pub mod tools;
