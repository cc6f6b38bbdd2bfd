//! Subcommands and options of the binary besides serving.
//!
//! - [`ask`]: one turn from file to file
//! - [`lan`]: addresses, key and QR code for a server in the local network
//! - [`loading`]: how far a start is

pub mod ask;
pub mod lan;
pub mod loading;
