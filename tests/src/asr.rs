//! An independent recogniser's opinion of a recording (`tests/clients/asr.py`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::tools;

/// What is heard in each recording, in their order.
pub async fn transcribe(recordings: &[PathBuf]) -> Result<Vec<String>> {
    let mut command = tools::python()?;
    command.arg(tools::root().join("tests/clients/asr.py")).args(recordings);
    let said = tools::output(&mut command, Duration::from_secs(180)).await?;
    let heard: HashMap<PathBuf, String> = serde_json::from_str(&said).context(said)?;
    recordings.iter().map(|path| found(&heard, path)).collect()
}

/// What is heard in each sound as it was `said`, and as it was `recorded` where it was played. Near the edge of what a recogniser
/// understands either may come out as another word, and one of them is enough: that both are the same sound is for
/// [`crate::spectral_similarity`] to tell.
pub async fn transcribe_both(said: &[PathBuf], recorded: &[PathBuf]) -> Result<Vec<[String; 2]>> {
    let heard = transcribe(&[said, recorded].concat()).await?;
    let (said, recorded) = heard.split_at(said.len());
    Ok(said.iter().zip(recorded).map(|(said, recorded)| [said.clone(), recorded.clone()]).collect())
}

fn found(heard: &HashMap<PathBuf, String>, path: &Path) -> Result<String> {
    heard.get(path).cloned().with_context(|| format!("the recogniser did not report on {}", path.display()))
}
