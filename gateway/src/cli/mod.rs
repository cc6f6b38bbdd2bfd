//! Subcommands and options of the binary that are no server.
//!
//! - [`ask`]: one turn from file to file
//! - [`lan`]: what a server for the phones in the house needs

pub mod ask;
pub mod lan;
