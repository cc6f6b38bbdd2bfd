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

/// What `tests/browser/conversation.mjs` saw of the page.
#[derive(Debug, Deserialize)]
struct Conversation {
    /// The list of turns.
    turns: Vec<Turn>,
    /// The states that the page went through.
    states: Vec<String>,
    /// What its alert says; empty when there is none.
    alert: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Turn {
    /// What the page's own <audio> element played.
    recording: std::path::PathBuf,
    /// The transcript that the page shows.
    answer: String,
    /// The time to the first sound that it shows.
    first_sound: String,
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
    let said = tools::output(&mut driver, Duration::from_secs(240)).await?;
    let talk: Conversation = serde_json::from_str(&said).context(said)?;

    assert_eq!(talk.alert, "");
    assert_eq!(talk.turns.len(), asked.len(), "{talk:?}");
    let recorded: Vec<_> = talk.turns.iter().map(|turn| turn.recording.clone()).collect();
    let heard = ear::hear(&recorded).await?;
    for ((question, turn), heard) in asked.iter().zip(&talk.turns).zip(&heard) {
        println!("{} -> shown: {} | heard: {heard} | {}", question.text, turn.answer, turn.first_sound);
        assert!(question.is_answered_by(&turn.answer), "shown for {}: {}", question.text, turn.answer);
        assert!(question.is_answered_by(heard), "heard for {}: {heard} (shown: {})", question.text, turn.answer);
        assert!(turn.first_sound.ends_with(" ms"), "no time to the first sound: {turn:?}");
    }
    let mut expected = vec!["connecting", "listening"];
    expected.extend(["hearing", "thinking", "speaking", "listening"].repeat(asked.len()));
    assert_eq!(talk.states, expected);
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
