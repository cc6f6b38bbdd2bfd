//! The stock `openai` client from PyPI, unmodified, over the websocket.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use repartee_tests::{asr, demo, questions, tools};
use serde::Deserialize;

/// What `tests/clients/openai_turn.py` reports.
#[derive(Debug, Deserialize)]
struct Talk {
    turns: Vec<Turn>,
}

#[derive(Debug, Deserialize)]
struct Turn {
    transcript: String,
    recording: PathBuf,
    /// Length of the sound.
    seconds: f64,
    /// From the commit to the first slice above -45 dBFS, by the client's clock.
    first_sound_ms: Option<f64>,
    /// Of the response.
    status: String,
    /// Every event type in order.
    events: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_openai_client_takes_two_spoken_turns() -> Result<()> {
    // Two that do not lean on each other, in one session.
    let asked = [questions::named("four-plus-eight.wav")?, questions::named("nine-plus-two.wav")?];
    let server = demo::serve().await?;
    let recordings = tools::recordings("openai_client")?;

    let mut client = tools::python()?;
    client.arg(tools::root().join("tests/clients/openai_turn.py")).arg(server.api()).arg(&recordings);
    client.args(asked.iter().map(questions::Question::path));
    let said = tools::output(&mut client, Duration::from_secs(120)).await?;
    let talk: Talk = serde_json::from_str(&said).context(said)?;

    let recorded: Vec<_> = talk.turns.iter().map(|turn| turn.recording.clone()).collect();
    let heard = asr::transcribe(&recorded).await?;
    assert_eq!(talk.turns.len(), asked.len());
    for ((question, turn), heard) in asked.iter().zip(&talk.turns).zip(&heard) {
        println!("{} -> {} | heard: {heard} | {:?} ms", question.text, turn.transcript, turn.first_sound_ms);
        assert_eq!(turn.transcript, question.answer);
        assert!(question.is_answered_by(heard), "heard for {}: {heard}", question.text);
        assert_eq!(turn.status, "completed");
        assert!(turn.seconds > 0.5 && turn.first_sound_ms.is_some(), "{turn:?}");
        assert_in_order(turn, &ANSWER);
    }
    // The first was committed by the client, the second by the server when it heard the pause.
    assert!(!talk.turns[0].events.iter().any(|event| event == "input_audio_buffer.speech_started"));
    assert_in_order(&talk.turns[1], &HEARD);
    Ok(())
}

/// What the server's voice activity detection reports before an answer.
const HEARD: [&str; 4] = [
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "response.created",
];

/// The life of an answer with sound.
const ANSWER: [&str; 10] = [
    "input_audio_buffer.committed",
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.done",
];

/// Asserts that `expected` happened in this order, whatever happened in between.
fn assert_in_order(turn: &Turn, expected: &[&str]) {
    let mut left = turn.events.iter();
    for event in expected {
        assert!(left.any(|seen| seen == event), "{event} is missing or late in {:?}", turn.events);
    }
}
