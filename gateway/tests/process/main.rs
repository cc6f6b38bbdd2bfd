//! The binary: command line, settings, start, the embedded model, traces.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

#[path = "../common/mod.rs"]
mod common;

mod ask;
mod command;
mod config;
mod demo;
mod starting;
mod traces;
