//! Checks server events against third-party schemas: the `openai` package's types, pipecat's parser and that of
//! `@openai/agents-realtime`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::tools;

/// Timeout of a checker.
const LIMIT: Duration = Duration::from_secs(60);

/// Checks `events` against all schemas; fails with all complaints. Writes the events to `folder`.
pub async fn check(events: &[Value], folder: &Path) -> Result<()> {
    let path = folder.join("events.jsonl");
    let lines: Vec<String> = events.iter().map(|event| format!("{event}\n")).collect();
    std::fs::write(&path, lines.concat())?;
    let scripts = tools::root().join("tests/clients");
    let python =
        async { tools::output(tools::clients_python()?.arg(scripts.join("check_events.py")).arg(&path), LIMIT).await };
    let node = async {
        tools::output(tools::clients_node()?.arg(scripts.join("node/check_events.mjs")).arg(&path), LIMIT).await
    };
    // Runs both, to report all complaints at once.
    match tokio::join!(python, node) {
        (Err(one), Err(other)) => Err(other.context(one)),
        (one, other) => one.and(other).map(|_| ()),
    }
}
