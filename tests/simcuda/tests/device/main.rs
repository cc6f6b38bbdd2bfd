//! The simulated device: opcodes, warps, faults, and the assembler.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

#[path = "../support/nvcc.rs"]
mod nvcc;
#[path = "../support/mod.rs"]
mod support;

mod faults;
mod opcodes;
mod ptxas;
mod warps;
