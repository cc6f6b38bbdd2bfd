//! The CPU device: products, formats, attention, worker pool, portability; one set of bits on every processor.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod bits;
mod drawn;
mod formats;
mod packed;
mod pool;
mod portable;
mod threads;
