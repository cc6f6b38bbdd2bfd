//! Nodes as processes, and what fails of them: each row prints what is promised and what was seen.
//!
//! - `processes`: nodes and servers of NATS as processes
//! - `nodes_lost`: a node that is killed, stopped, drained, or replaced
//! - `bus_lost`: servers of NATS that are killed
//! - `forged`: forged ids, requests and messages
//! - `load`: many calls at once, and the time that a forward takes
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod bus_lost;
mod forged;
mod load;
mod nodes_lost;
mod processes;

/// Prints a row of the table in docs/cluster.md.
fn row(event: &str, promised: &str, seen: &str) {
    println!("| {event} | {promised} | {seen} |");
}

/// Duration in whole ms.
fn ms(duration: std::time::Duration) -> String {
    format!("{} ms", duration.as_millis())
}
