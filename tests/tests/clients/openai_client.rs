//! The stock `openai` client from PyPI, unmodified, over the websocket.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repartee_tests::answer_rate::{self, AskedAnswer};
use repartee_tests::questions::Question;
use repartee_tests::recording_engine::RecordingEngine;
use repartee_tests::spectral_similarity::Sound;
use repartee_tests::{demo, questions, tools};
use serde::Deserialize;

/// Report of the client's scripts.
#[derive(Debug, Deserialize)]
struct Talk {
    turns: Vec<Turn>,
}

#[derive(Debug, Deserialize)]
struct Turn {
    transcript: String,
    recording: PathBuf,
    /// Duration of the sound.
    seconds: f64,
    /// Commit to the first slice above -45 dBFS, by the client's clock.
    first_sound_ms: Option<f64>,
    /// Status of the response.
    status: String,
    /// Every event type in order.
    events: Vec<String>,
}

impl Turn {
    /// Checks that the model heard `asked` as turn `index` of `session`, and that the client has the model's exact
    /// samples.
    fn judge(&self, recorder: &RecordingEngine, session: usize, index: usize, asked: &Question) -> Result<()> {
        ensure!(self.status == "completed", "{self:?}");
        ensure!(self.seconds > 0.5 && self.first_sound_ms.is_some(), "{self:?}");
        assert_in_order(self, &ANSWER);
        recorder.check_input_turn(session, index, asked)?;
        let said = recorder.response_with_text(session, &self.transcript)?.sound;
        ensure!(Sound::read(&self.recording)?.has_samples_of(&said), "another sound than the model's: {self:?}");
        Ok(())
    }
}

/// Runs one of the client's scripts with the questions.
async fn talk(script: &str, server: &str, recordings: &str, asked: &[Question], limit: Duration) -> Result<Talk> {
    let mut client = tools::python()?;
    client.arg(tools::root().join("tests/clients").join(script)).arg(server).arg(tools::recordings(recordings)?);
    client.args(asked.iter().map(Question::path));
    let said = tools::output(&mut client, limit).await?;
    let talk: Talk = serde_json::from_str(&said).context(said)?;
    ensure!(talk.turns.len() == asked.len(), "{} answers to {} questions", talk.turns.len(), asked.len());
    Ok(talk)
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_openai_client_takes_two_spoken_turns() -> Result<()> {
    let asked = [questions::named("capital-of-france.wav")?, questions::named("month-before-may.wav")?];
    let (server, recorder) = demo::start_recorded_demo_server().await?;
    let limit = Duration::from_secs(120);
    let talk = talk("openai_turn.py", &server.api(), "openai_client", &asked, limit).await?;
    for (index, (turn, asked)) in talk.turns.iter().zip(&asked).enumerate() {
        println!("{} -> {} | {:?} ms", asked.text, turn.transcript, turn.first_sound_ms);
        turn.judge(&recorder, 0, index, asked)?;
    }
    // The client committed the first turn, the server the second, at the pause.
    assert!(!talk.turns[0].events.iter().any(|event| event == "input_audio_buffer.speech_started"));
    assert_in_order(&talk.turns[1], &HEARD);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_questions_are_answered_at_card_rate() -> Result<()> {
    let asked = questions::all()?;
    let (server, recorder) = demo::start_recorded_demo_server().await?;
    let limit = Duration::from_secs(300);
    let talk = talk("openai_questions.py", &server.api(), "openai_questions", &asked, limit).await?;
    for (session, (turn, asked)) in talk.turns.iter().zip(&asked).enumerate() {
        turn.judge(&recorder, session, 0, asked)?;
    }
    let answers = talk.turns.iter().zip(&asked).map(|(turn, question)| AskedAnswer {
        question,
        transcript: &turn.transcript,
        recording: turn.recording.clone(),
    });
    answer_rate::check_rates(&answers.collect::<Vec<_>>()).await
}

/// Events of the server's voice activity detection before an answer.
const HEARD: [&str; 4] = [
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "response.created",
];

/// Events of an answer with sound, in order.
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

/// Asserts that `expected` occurred in this order, with any other events in between.
fn assert_in_order(turn: &Turn, expected: &[&str]) {
    let mut left = turn.events.iter();
    for event in expected {
        assert!(left.any(|seen| seen == event), "{event} is missing or late in {:?}", turn.events);
    }
}
