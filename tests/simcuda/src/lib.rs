//! A CUDA driver library for tests, on machines without a GPU.
//!
//! It is built as a shared library with the C functions of `libcuda.so`, so that the stock `cudarc` runs the very PTX that ships. It
//! interprets that PTX warp by warp and finds faults that hardware would hide: see [`fault::FaultKind`].
//!
//! - [`ptx`]: PTX text -> tree; [`decode`]: opcodes -> what is carried out; [`kernel`]: a module whose variables have addresses
//! - [`run`]: a launch, warp by warp; [`memory`], [`shared`]: what it touches, with bounds, fresh bytes and races
//! - [`driver`]: streams whose work is deferred, events, captures, graphs; [`border`]: the C functions
//! - [`fault`]: what goes wrong, and the code that CUDA answers with
//!
//! # What is covered
//!
//! Anything else is an error with its line when the module is loaded.
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
