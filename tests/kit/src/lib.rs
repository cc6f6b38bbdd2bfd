//! Test helpers shared by several crates; not part of the shipped binary.
//!
//! - [`scripted`]: an engine that follows a script
//! - [`network`]: a simulated network on a virtual clock
//! - [`signal`]: test signals and measurements of signals
//! - [`random`]: reproducible random numbers
//! - [`fuzz`]: inputs made from a saved corpus
//! - [`wav`]: wav files of every format
//! - [`memory`]: resident memory, and a counting allocator
//! - [`session_description`]: rules that an SDP answer must keep
//! - [`offer_edits`]: changes of SDP offers

pub mod fuzz;
pub mod memory;
pub mod network;
pub mod offer_edits;
pub mod random;
pub mod scripted;
pub mod session_description;
pub mod signal;
pub mod wav;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;
