//! The load generator: callers who speak, listen and time the answers. It shares no code with the gateway, so a bug
//! cannot cancel out between both ends: WebRTC is str0m's, and events are parsed by hand. Both write reports
//! with the crate `repartee_report`, which knows nothing of either: no audio, no events, no network.
//!
//! | file | what it does |
//! |---|---|
//! | `target`, `server` | the server under load, and one of our own |
//! | `scenario` | scenarios in TOML: arrivals, turns, network |
//! | `questions`, `speech` | questions and their right answers; audio as frames |
//! | `sample_rate`, `mulaw` | sample rate of the callers; the telephone's encoding |
//! | `caller`, `turn` | the calls of one caller; the times of one turn |
//! | `transport` | a call over either transport, and a simulated bad network |
//! | `server_events` | server events, parsed independently of the gateway |
//! | `measure` | playback, logs, lateness and resource use |
//! | `run` | runs one scenario |
//! | `knee`, `overload`, `soak` | search for the most callers within limits; more callers than that; a long run |
//! | `hostile` | innocent callers while attacks run |
//! | `chat`, `peer`, `telephone` | realtime against one upload; CPU cost of a call against aiortc; SIP beside WebRTC |
//! | `report`, `compare` | rows, plots and pages; two reports side by side |
//! | `progress`, `command` | progress on the terminal; the command line |

mod caller;
pub mod chat;
pub mod command;
pub mod compare;
pub mod hostile;
pub mod knee;
pub mod measure;
pub mod mulaw;
pub mod overload;
pub mod peer;
pub mod progress;
pub mod questions;
pub mod random;
pub mod report;
pub mod run;
pub mod sample_rate;
pub mod scenario;
pub mod server;
pub mod server_events;
pub mod soak;
pub mod speech;
pub mod target;
pub mod telephone;
pub mod transport;
pub mod turn;
