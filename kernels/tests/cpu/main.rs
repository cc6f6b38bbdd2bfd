//! The CPU device: products, formats, attention, worker pool, portability.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod drawn;
mod formats;
mod packed;
mod pool;
mod portable;
mod threads;
