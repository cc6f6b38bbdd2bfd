//! The client against servers that misbehave, over TCP and in memory.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod answers;
mod broken_answers;
mod cancellation;
mod connections;
mod model_list;
mod proxy;
mod refusals;
mod retries;
mod time_limits;
mod tls;
mod transport_failures;
