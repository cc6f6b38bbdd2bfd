//! The binary: command line, settings, start, end, the embedded model, traces.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod ask;
mod call;
mod cascade;
mod checkpoints;
mod command;
mod config;
mod demo;
#[cfg(feature = "hub")]
mod hub;
mod limits_page;
mod memory;
mod parts;
mod sandbox;
mod shutdown;
mod starting;
mod traces;
mod visits;
