//! A CUDA driver library for tests on machines without a GPU.
//!
//! It is a shared library with the C functions of `libcuda.so`, so the stock `cudarc` runs the very PTX that ships. It interprets the PTX
//! warp by warp and detects faults that hardware hides: see [`fault::FaultKind`].
//!
//! - [`ptx`]: PTX text -> tree; [`decode`]: opcodes -> executable instructions; [`kernel`]: loaded modules
//! - [`run`]: launches, warp by warp; [`memory`], [`shared`]: memory with checks for bounds, uninitialised bytes and races
//! - [`driver`]: streams with deferred work, events, captures, graphs; [`border`]: the C functions
//! - [`fault`]: faults, and their CUDA result codes
//!
//! # Covered opcodes
//!
//! The load of a module fails at any other opcode, with its line.
//!
#![doc = include_str!("coverage.md")]

pub mod border;
pub mod decode;
pub mod driver;
pub mod fault;
pub mod kernel;
pub mod memory;
pub mod ptx;
pub mod run;
pub mod shared;
