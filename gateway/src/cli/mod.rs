//! Subcommands and options of the binary besides serving.
//!
//! - [`ask`]: one turn from sound file to wav file
//! - [`check`]: the summary of a checkpoint
//! - [`examine`]: problems of the settings that a server would meet
//! - [`lan`]: addresses, key and QR code for a server in the local network
//! - [`loading`]: progress of the start
//! - [`output`]: text for the standard output, which may be closed

pub mod ask;
pub mod check;
pub mod examine;
pub mod lan;
pub mod loading;
pub mod output;
