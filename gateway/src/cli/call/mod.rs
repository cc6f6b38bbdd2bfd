//! `repartee call`: a conversation with a running server over its websocket.
//!
//! - this file: one question and its answer
//! - [`connection`]: the address, and the websocket
//! - [`duplex`]: a conversation over pipes, with turn detection and barge-in
//! - [`playout`]: the paced sound of its answers
//! - `wire_event`: fields of its events; [`error`]: errors

pub mod connection;
pub mod duplex;
pub mod error;
pub mod playout;
mod wire_event;

use std::io::Write;

use repartee_media::pcm;
use serde_json::json;

use super::ask::{AskReport, AskedQuestion, Question, read_question};
use super::speech::{GeneratedSpeech, WavTarget};
use connection::{CallSocket, CallTarget, RATE};
use error::CallError;
use wire_event::{append, kind, sound};

/// Samples of one slice of a question, 100 ms.
const SLICE: usize = RATE as usize / 10;

/// Asks a server one question; prints the transcript to `out` as it arrives, and writes the sound to `answer`. Without it the answer is
/// text alone.
///
/// # Errors
/// The question cannot be read, or the server does not answer it.
pub async fn call_once(
    target: &CallTarget,
    question: &Question,
    answer: Option<&WavTarget>,
    out: &mut (impl Write + Send),
) -> Result<AskReport, CallError> {
    let question = read_question(question, RATE)?;
    let mut socket = target.connect().await?;
    // The question is one turn: no turn detection, it is committed.
    let mut session = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
    if answer.is_none() {
        session["output_modalities"] = json!(["text"]);
    }
    socket.send(&json!({"type": "session.update", "session": session})).await?;
    send_question(&mut socket, &question).await?;
    let mut speech = GeneratedSpeech::begin(RATE);
    socket.send(&json!({"type": "response.create"})).await?;
    let mut transcript = String::new();
    loop {
        let event = socket.next().await?;
        match kind(&event) {
            "response.output_audio_transcript.delta" | "response.output_text.delta" => {
                let text = event["delta"].as_str().unwrap_or_default();
                write!(out, "{text}")?;
                out.flush()?;
                transcript.push_str(text);
            }
            "response.output_audio.delta" => speech.extend(&pcm::decode_i16le(&sound(&event)?)?),
            "response.done" => match event["response"]["status"].as_str() {
                Some("completed" | "incomplete") => break,
                _ => return Err(CallError::failed(&event["response"]["status_details"]["error"])),
            },
            "error" => return Err(CallError::failed(&event["error"])),
            _ => {}
        }
    }
    writeln!(out)?;
    let times = speech.times();
    if let Some(answer) = answer {
        speech.write(answer)?;
    }
    socket.close().await;
    Ok(AskReport { transcript, times })
}

async fn send_question(socket: &mut CallSocket, question: &AskedQuestion) -> Result<(), CallError> {
    match question {
        AskedQuestion::Text(text) => {
            let content = json!([{"type": "input_text", "text": text}]);
            let item = json!({"type": "message", "role": "user", "content": content});
            socket.send(&json!({"type": "conversation.item.create", "item": item})).await
        }
        AskedQuestion::Sound(samples) => {
            for slice in samples.chunks(SLICE) {
                socket.send(&append(&pcm::encode_i16le(slice))).await?;
            }
            socket.send(&json!({"type": "input_audio_buffer.commit"})).await
        }
    }
}
