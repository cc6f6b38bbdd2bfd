//! Asks one spoken question over the websocket, prints the transcript of the answer and writes its sound.
//!
//! ```text
//! cargo run --release -p repartee --example client -- question.wav answer.wav [ws://127.0.0.1:8080/v1/realtime]
//! ```
//!
//! A server with keys takes the one in `REPARTEE_KEY`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{SinkExt as _, StreamExt as _};
use repartee_media::{pcm, sound_file, wav};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest as _};

/// Samples a second on the wire.
const RATE: u32 = 24_000;
/// Samples of one slice, 100 ms.
const SLICE: usize = RATE as usize / 10;
/// The longest question.
const MAX_DURATION: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(question), Some(answer)) = (arguments.next(), arguments.next()) else {
        bail!("usage: client QUESTION.wav ANSWER.wav [URL]");
    };
    let url = arguments.next().unwrap_or_else(|| "ws://127.0.0.1:8080/v1/realtime".into());
    let key = std::env::var("REPARTEE_KEY").ok();
    println!("{}", ask(&url, key.as_deref(), question.as_ref(), answer.as_ref()).await?);
    Ok(())
}

/// One spoken turn; returns the transcript of the answer.
pub async fn ask(url: &str, key: Option<&str>, question: &Path, answer: &Path) -> Result<String> {
    let file = std::fs::read(question).with_context(|| question.display().to_string())?;
    let sound = sound_file::read(&file[..], RATE, MAX_DURATION).with_context(|| question.display().to_string())?;

    let mut request = url.into_client_request()?;
    if let Some(key) = key {
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse()?);
    }
    let (mut socket, _) = connect_async(request).await.with_context(|| url.to_owned())?;
    // The file is one turn: no turn detection, we commit.
    let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
    let mut events = vec![json!({"type": "session.update", "session": session})];
    events.extend(sound.chunks(SLICE).map(|slice| {
        let audio = BASE64_STANDARD.encode(pcm::encode_i16le(slice));
        json!({"type": "input_audio_buffer.append", "audio": audio})
    }));
    events.extend([json!({"type": "input_audio_buffer.commit"}), json!({"type": "response.create"})]);
    for event in events {
        socket.send(Message::text(event.to_string())).await?;
    }

    let (mut transcript, mut samples) = (String::new(), Vec::new());
    while let Some(message) = socket.next().await {
        let Message::Text(text) = message? else { continue };
        let event: Value = serde_json::from_str(&text)?;
        let delta = event["delta"].as_str().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "response.output_audio_transcript.delta" => transcript.push_str(delta),
            "response.output_audio.delta" => samples.extend(pcm::decode_i16le(&BASE64_STANDARD.decode(delta)?)?),
            "response.done" if event["response"]["status"] == "completed" => {
                std::fs::write(answer, wav::encode(&samples, RATE)?).with_context(|| answer.display().to_string())?;
                return Ok(transcript);
            }
            "response.done" => bail!("no answer: {}", event["response"]["status_details"]),
            "error" => bail!("refused: {}", event["error"]["message"]),
            _ => {}
        }
    }
    bail!("the server closed the connection before the answer was done");
}
