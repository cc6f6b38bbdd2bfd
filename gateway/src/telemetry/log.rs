//! Log lines, as text or JSON. Every line of a call is inside the call's span, which has the call's id.

use std::future::Future;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tracing::{Instrument as _, Span, field};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Readable text lines.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log with `filter`. Fails if a subscriber is installed already.
pub fn init<W>(
    format: LogFormat,
    filter: EnvFilter,
    writer: W,
    ansi: bool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(ansi);
    match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    }
}

/// Creates the log span of a call. Its level is error, so that no filter removes it.
pub(crate) fn call_span(id: &str, transport: &'static str) -> Span {
    tracing::error_span!(target: "repartee", "call", id, transport, session = field::Empty)
}

/// Spawns a task within the current span.
pub(crate) fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(task.in_current_span())
}
