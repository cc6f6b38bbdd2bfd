//! Transcripts by an independent speech recogniser (`tests/clients/asr.py`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::tools;

/// Transcribes each recording. Returns the transcripts in the same order. Fails after three minutes.
pub async fn transcribe(recordings: &[PathBuf]) -> Result<Vec<String>> {
    let mut command = tools::python()?;
    command.arg(tools::root().join("tests/clients/asr.py")).args(recordings);
    let said = tools::output(&mut command, Duration::from_secs(180)).await?;
    let heard: HashMap<PathBuf, String> = serde_json::from_str(&said).context(said)?;
    recordings.iter().map(|path| found(&heard, path)).collect()
}

fn found(heard: &HashMap<PathBuf, String>, path: &Path) -> Result<String> {
    heard.get(path).cloned().with_context(|| format!("the recogniser did not report on {}", path.display()))
}
