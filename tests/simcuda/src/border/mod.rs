//! C API: the functions of `libcuda.so`. All `unsafe` code of the crate is here and in `driver::host`.
//!
//! Every pointer comes from a program that calls a C function of CUDA's driver, and satisfies CUDA's documentation of that function. This
//! is the invariant of every block below; blocks that need more state it.
//!
//! `device`, `memory`, `streams` and `modules` hold the implemented functions, over `calls`, `unsupported` those that return "not supported".

mod calls;
mod device;
mod memory;
mod modules;
mod streams;
mod unsupported;

pub use device::simcuda_last_fault;
