//! A device that replays recorded steps: it shows what a step relies on under graph capture.
//!
//! The first launch of a key calls the step and records every operation. Later launches replay the operations over their own row spec and
//! never call the step. So a step that looks at values, counts on the host or keeps numbers of its own gives wrong results here.
//!
//! - `device`: values of a step by number, and recordings; `ops`: the operations

mod device;
mod ops;

pub use device::{RecordedList, RecordedTensor, ReplayOps, Replayable};
