//! Log lines, as text or JSON. Every line of a call is inside its span, which has the call's id.

use std::future::Future;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tracing::{Instrument as _, Span, field};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How a line of the log is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Begins to log what `filter` lets through. Fails if something logs already.
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

/// The span of one call's lines. An error's level, so that the lines have it whatever the filter lets through.
pub(crate) fn call_span(id: &str, transport: &'static str) -> Span {
    tracing::error_span!(target: "repartee", "call", id, transport, session = field::Empty)
}

/// Runs a task of the call whose span this is.
pub(crate) fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(task.in_current_span())
}
