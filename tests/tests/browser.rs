//! What a person does: open the page in a real Chromium, speak, and hear the answer.
//!
//! Real time, so one after another.

use std::time::Duration;

use anyhow::{Context, Result};
use repartee_tests::{demo, ear, questions, tools};
use serde::Deserialize;
use tokio::sync::Mutex;

/// Held by the test that runs: two conversations at once would slow each other down on a small machine.
static REAL_TIME: Mutex<()> = Mutex::const_new(());

/// What `tests/browser/conversation.mjs` saw of one call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    /// What the page's own <audio> element played.
    recording: std::path::PathBuf,
    /// The transcript that the page shows.
    answer: String,
    /// Turns in its list.
    turns: u32,
    /// The time to the first sound that it shows.
    first_sound: String,
    /// What its alert says; empty when there is none.
    alert: String,
    /// The states that it went through.
    states: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn three_questions_spoken_to_the_page_are_answered_aloud() -> Result<()> {
    let _alone = REAL_TIME.lock().await;
    let asked = questions::shuffled(3)?;
    let server = demo::serve().await?;
    let recordings = tools::recordings("browser")?;

    let mut driver = tools::node()?;
    driver.arg(tools::root().join("tests/browser/conversation.mjs")).arg(server.page()).arg(&recordings);
    driver.args(asked.iter().map(questions::Question::path));
    let said = tools::output(&mut driver, Duration::from_secs(300)).await?;
    let calls: Vec<Call> = serde_json::from_str(&said).context(said)?;

    let recorded: Vec<_> = calls.iter().map(|call| call.recording.clone()).collect();
    let heard = ear::hear(&recorded).await?;
    assert_eq!(calls.len(), asked.len());
    for ((question, call), heard) in asked.iter().zip(&calls).zip(&heard) {
        println!("{} -> shown: {} | heard: {heard} | first sound {}", question.text, call.answer, call.first_sound);
        assert_eq!(call.alert, "");
        assert_eq!(call.turns, 1, "{call:?}");
        assert!(question.is_answered_by(&call.answer), "shown for {}: {}", question.text, call.answer);
        assert!(question.is_answered_by(heard), "heard for {}: {heard} (shown: {})", question.text, call.answer);
        assert!(call.first_sound.ends_with(" ms"), "no time to the first sound: {call:?}");
        let passed = |states: &[&str]| {
            let mut left = call.states.iter();
            states.iter().all(|state| left.any(|seen| seen == state))
        };
        assert!(passed(&["connecting", "listening", "hearing", "thinking", "speaking", "listening"]), "{call:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_in_plain_words_what_happens() -> Result<()> {
    let _alone = REAL_TIME.lock().await;
    let server = demo::serve().await?;
    let mut driver = tools::node()?;
    driver.args(["--test", "--test-timeout=60000"]).arg(tools::root().join("tests/browser/page.test.mjs"));
    driver.env("REPARTEE_URL", server.page());
    println!("{}", tools::output(&mut driver, Duration::from_secs(300)).await?);
    Ok(())
}
