//! Clients: stock ones, the examples, questions to the demo model.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod conformance;
mod documented;
mod examples;
mod gateway_calls;
mod openai_client;
mod telephone;
