//! Sessions: histories, responses, edges between stages, scheduling, and the generic suite over every family.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod deadlines;
mod edges;
mod family;
mod flow_ticks;
mod generic;
mod given_text;
mod heard_outcomes;
mod hearing;
mod held_answers;
mod history;
mod idle_memory;
mod launches;
mod loops;
mod other_family;
mod panics;
mod preamble;
mod remote;
mod remote_interleavings;
mod session;
mod soak;
mod spoken;
mod text_only;
mod waits;
