//! The load generator: callers who speak, listen and time what they hear. It shares no code with the gateway, so that a bug of
//! both ends does not cancel out: WebRTC is str0m's, and the wire is read by hand.
//!
//! | file | what it does |
//! |---|---|
//! | `target`, `server` | the server under load, and one of our own |
//! | `scenario` | who calls when, and does what, as TOML |
//! | `questions`, `speech` | what is asked, as sound; which answers are right |
//! | `caller`, `turn` | one caller's call; one turn's times |
//! | `line` | a call over either transport, and a bad network in between |
//! | `wire` | the protocol as an independent client reads it |
//! | `measure` | what is heard, logged and watched |
//! | `run` | one scenario from beginning to end |
//! | `knee`, `soak` | searches the most callers; a long run |
//! | `chat`, `peer` | realtime against one upload; a call's cost against aiortc |
//! | `report`, `compare` | figures, plots and pages; two reports side by side |
//! | `live`, `command` | the terminal; the command line |

mod caller;
pub mod chat;
pub mod command;
pub mod compare;
pub mod knee;
pub mod transport;
pub mod progress;
pub mod measure;
pub mod peer;
pub mod questions;
pub mod random;
pub mod report;
pub mod run;
pub mod scenario;
pub mod server;
pub mod soak;
pub mod speech;
pub mod target;
pub mod turn;
pub mod server_events;
