//! The stock `openai` client from PyPI, unmodified, with one spoken question in one upload: what realtime is compared with.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use repartee_tests::{demo, ear, questions, tools};
use serde::Deserialize;

/// What `tests/clients/openai_upload.py` reports.
#[derive(Debug, Deserialize)]
struct Report {
    whole: Answer,
    streamed: Answer,
    finish_reasons: Vec<String>,
    models: Vec<String>,
    /// The error's code.
    missing_model: Option<String>,
    /// How it begins.
    ephemeral_key: String,
}

#[derive(Debug, Deserialize)]
struct Answer {
    transcript: String,
    recording: PathBuf,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_in_one_upload_is_answered_whole_and_as_a_stream() -> Result<()> {
    let asked = questions::named("capital-of-japan.wav")?;
    let server = demo::serve().await?;
    let mut client = tools::python()?;
    client.arg(tools::root().join("tests/clients/openai_upload.py")).arg(server.api());
    client.arg(asked.path()).arg(tools::recordings("openai_upload")?);
    let said = tools::output(&mut client, Duration::from_secs(120)).await?;
    let report: Report = serde_json::from_str(&said).context(said)?;

    let heard = ear::hear(&[report.whole.recording.clone(), report.streamed.recording.clone()]).await?;
    for (answer, heard) in [&report.whole, &report.streamed].into_iter().zip(&heard) {
        println!("{} -> {} | heard: {heard}", asked.text, answer.transcript);
        assert_eq!(answer.transcript, asked.answer);
        assert!(asked.is_answered_by(heard), "heard for {}: {heard}", asked.text);
    }
    assert_eq!(report.finish_reasons, ["stop", "stop"]);
    assert_eq!(report.models, ["demo"]);
    assert_eq!(report.missing_model.as_deref(), Some("model_not_found"));
    assert_eq!(report.ephemeral_key, "ek_");
    Ok(())
}
