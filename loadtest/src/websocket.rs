//! A caller over the websocket that commits its turns itself: time to first packet without endpointing.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use repartee_media::opus::FRAME;
use repartee_media::pcm;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::Plan;
use crate::turn::{CallLog, Turn};
use crate::wire::Event;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Makes one call.
pub async fn call(plan: &Plan, caller: usize, log: &mut CallLog) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (mut socket, _) = connect_async(plan.server.socket()?).await.context("connect")?;
    timeout(plan.timeout, prepare(&mut socket)).await.context("the session was not set up in time")??;
    log.setup.push(begun.elapsed());
    for turn in 0..plan.turns {
        let frames = &plan.utterance(caller, turn).frames;
        match timeout(plan.timeout, speak_and_listen(&mut socket, frames, log)).await {
            Ok(done) => log.turn(&done?),
            Err(_) => bail!("no answer in time"),
        }
        tokio::time::sleep(plan.pause).await;
    }
    socket.close(None).await?;
    Ok(())
}

/// Receives the session and switches its turn detection off.
async fn prepare(socket: &mut Socket) -> anyhow::Result<()> {
    while next(socket).await? != Event::Created {}
    let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
    send(socket, json!({"type": "session.update", "session": session})).await?;
    loop {
        match next(socket).await? {
            Event::Updated => return Ok(()),
            Event::Error { error } => bail!("session.update: {error}"),
            _ => {}
        }
    }
}

/// Sends `frames` in real time, commits, and receives the response to its end.
async fn speak_and_listen(socket: &mut Socket, frames: &[Vec<f32>], log: &mut CallLog) -> anyhow::Result<Turn> {
    let mut turn = Turn::new(Duration::ZERO);
    let mut ticks = interval(FRAME);
    for frame in frames {
        let due = ticks.tick().await;
        log.lateness.push(due.elapsed());
        let audio = STANDARD.encode(pcm::encode_i16le(frame));
        send(socket, json!({"type": "input_audio_buffer.append", "audio": audio})).await?;
    }
    let end = Instant::now();
    (turn.speech_end, turn.committed) = (Some(end), Some(end));
    send(socket, json!({"type": "input_audio_buffer.commit"})).await?;
    send(socket, json!({"type": "response.create"})).await?;
    loop {
        match next(socket).await? {
            Event::Audio { delta } => {
                let arrival = Instant::now();
                turn.playback.push(&pcm::decode_i16le(&STANDARD.decode(delta)?)?, arrival);
            }
            Event::Done { response } if response.status == "failed" => bail!("the answer failed"),
            Event::Done { .. } => return Ok(turn),
            Event::Error { error } => bail!("error event: {error}"),
            _ => {}
        }
    }
}

async fn send(socket: &mut Socket, event: Value) -> anyhow::Result<()> {
    socket.send(Message::text(event.to_string())).await.context("send")
}

async fn next(socket: &mut Socket) -> anyhow::Result<Event> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Event::read(&text),
            Some(Ok(Message::Close(_))) | None => bail!("the server closed the socket"),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error).context("receive"),
        }
    }
}
