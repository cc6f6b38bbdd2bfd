//! Nodes as processes, and what fails of them: each row prints what is promised and what was seen.
//!
//! - `processes`: nodes and servers of NATS as processes
//! - `links`: links that a test cuts
//! - `nodes_lost`: a node that is killed, stopped, or drained
//! - `one_machine`: the lines of docs/cluster.md for several devices in one machine
//! - `rolls`: nodes that are replaced one after another
//! - `links_cut`: links to NATS and between nodes that are cut
//! - `bus_lost`: servers of NATS that are killed
//! - `callers`: callers over WebRTC and websockets
//! - `balancer`: callers who come through HAProxy, and its end
//! - `forged`: forged ids, requests and messages
//! - `key_limits`: one key on several nodes
//! - `demo`: the nodes of `make run-cluster`
//! - `load`: many calls at once, and the time that a forward takes
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod balancer;
mod bus_lost;
mod callers;
mod demo;
mod forged;
mod key_limits;
mod links;
mod links_cut;
mod load;
mod nodes_lost;
mod one_machine;
mod processes;
mod rolls;

/// Prints a row of the table in docs/cluster.md.
fn row(event: &str, promised: &str, seen: &str) {
    println!("| {event} | {promised} | {seen} |");
}

/// Prints a row of the table of aims there.
fn aim(of: &str, aim: &str, measured: &str) {
    println!("| aim: {of} | {aim} | {measured} |");
}

/// Duration in whole ms.
fn ms(duration: std::time::Duration) -> String {
    format!("{} ms", duration.as_millis())
}
