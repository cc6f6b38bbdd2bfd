//! Every stage of the first family against its reference, on the CPU or, with the feature `cuda`, on a CUDA device.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "../common/mod.rs"]
mod common;

mod code2wav;
mod stages;
