//! Logs and traces. They never contain audio or text of a call.
//!
//! - [`log`]: lines on standard error, as text or JSON
//! - [`traces`]: spans of calls, turns and stages, over OTLP
//! - `collector`: the HTTP client that sends the spans

mod collector;
pub mod log;
pub mod traces;

pub use log::LogFormat;
pub use traces::{CallError, CallSpan, TraceExporter};
