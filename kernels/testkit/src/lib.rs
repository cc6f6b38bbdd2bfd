//! Devices for tests, and operations on numbers of the host.
//!
//! - [`host`]: operations outside of a launched step, on ids, rows and parameters of the host
//! - [`recording`]: a device that records its calls; tests prove with it that shapes alone fix the sequence of operations
//! - [`replay`]: a device that replays recorded steps without calling them again
//! - [`stored`]: matrices of random integers, in each kind of published files

pub mod host;
pub mod recording;
pub mod replay;
pub mod stored;
