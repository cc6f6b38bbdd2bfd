//! State of `libcuda`: modules, memory, streams, events, captures and graphs, behind handles.
//!
//! Enqueued work is deferred until something waits for it, and then only the required work is run. So a missing wait shows: an early read
//! finds uninitialised or old memory.
//!
//! - `state`: the state, its memory and its copies; `objects`: what handles stand for; `host`: host memory; `code`: results
//! - `stream`: the queues; `work`: execution; `module`: kernels; `capture`: the rules within captures; `graph`: their results

mod capture;
mod code;
mod graph;
mod host;
mod module;
mod objects;
mod state;
mod stream;
mod work;

pub use code::{CuResult, Failure, names};
pub use host::{HostRange, Pinned};
pub use module::{SHARED, SHARED_OPT_IN, THREADS};
pub use objects::{CaptureMode, DEFAULT_STREAM, StreamWork, UploadSource};
pub use state::Driver;
