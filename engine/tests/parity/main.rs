//! Every stage of the first family against its reference, on the CPU or, with the feature `cuda`, on a CUDA device.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod code2wav;
mod stages;
