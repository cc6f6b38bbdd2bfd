//! Subcommands and options of the binary besides serving.
//!
//! - [`ask`]: one turn from sound file to wav file
//! - [`check`]: the summary of a checkpoint
//! - [`lan`]: addresses, key and QR code for a server in the local network
//! - [`loading`]: progress of the start

pub mod ask;
pub mod check;
pub mod lan;
pub mod loading;
