//! What the process tells of its work besides metrics. Neither sound nor text of a call is ever part of it.
//!
//! - [`log`]: lines on standard error, as text or JSON
//! - [`traces`]: spans of calls, turns and stages, over OTLP
//! - `collector`: the HTTP client that carries them

mod collector;
pub mod log;
pub mod traces;

pub use log::LogFormat;
pub use traces::{CallError, CallSpan, TraceExporter};
