//! Subcommands and options of the binary besides serving.
//!
//! - [`ask`]: one turn from a sound file or a text to a wav file; [`say`]: a text read aloud
//! - [`speech`]: the speech of both, its times and its file
//! - [`call`]: a conversation with a running server
//! - [`check`]: the summary of a checkpoint
//! - [`examine`]: problems of the settings that a server would meet
//! - [`lan`]: addresses, key and QR code for a server in the local network
//! - [`loading`]: progress of the start; [`progress_line`]: a line of a terminal
//! - [`memory`]: memory for the weights
//! - [`output`]: text for the standard output, which may be closed

pub mod ask;
pub mod call;
pub mod check;
pub mod examine;
pub mod lan;
pub mod loading;
pub mod memory;
pub mod output;
pub mod progress_line;
pub mod say;
pub mod speech;
