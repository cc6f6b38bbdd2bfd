//! User agent against other sides of a simulated network, under a virtual clock.
#![allow(clippy::unwrap_used, reason = "a panic is a test's report")]

mod calls;
mod connections;
mod hostile;
mod other_side;
mod outgoing;
mod registration;
