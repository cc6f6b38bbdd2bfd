//! The directory of nodes: beats, the table under a simulated network, placement of calls, and what nodes sign.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod answers;
mod beats;
mod homes;
mod key_counts;
mod placing;
mod signatures;
mod simulation;
mod support;
mod tables;
