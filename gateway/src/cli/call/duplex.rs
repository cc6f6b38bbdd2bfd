//! Conversation over pipes: raw sound of a microphone in, raw sound of a loudspeaker out, both in real time.
//!
//! The server detects the turns. A caller who speaks into an answer stops it. After the end of the input the call lasts until the last
//! answer was played.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::interval;

use super::connection::{CallSocket, CallTarget};
use super::error::CallError;
use super::playout::{FRAME_BYTES, FRAME_MS, Playout};
use super::wire_event::{append, kind, sound};

/// Frames that wait between a pipe and the call: a second.
const QUEUE: usize = 1_000 / FRAME_MS;
/// Sound that may be sent before it is due. A microphone whose clock is a hundredth faster is not late for it.
const AHEAD: Duration = Duration::from_millis(200);
/// Silence of both sides after the end of the input that ends the call.
const SETTLED: Duration = Duration::from_secs(2);
/// Longest call after the end of the input.
const LONGEST_END: Duration = Duration::from_secs(120);

/// State of a call over pipes.
#[derive(Debug)]
struct PipedCall {
    playout: Playout,
    /// Responses in progress.
    active: HashSet<String>,
    /// True while the server hears the caller speak.
    caller_speaks: bool,
    /// Time of the last event or sound of either side.
    moved: Instant,
    /// True within a printed line.
    in_line: bool,
}

/// Talks with a server: sends the raw sound of `microphone` (16 bits, 24 kHz, mono), writes that of the answers to `loudspeaker`, and prints
/// transcripts to `out`. Ends some time after the microphone, or with the loudspeaker.
///
/// # Errors
/// The server cannot be reached, or ends the call.
pub async fn talk(
    target: &CallTarget,
    microphone: impl Read + Send + 'static,
    loudspeaker: impl Write + Send + 'static,
    out: &mut (impl Write + Send),
) -> Result<(), CallError> {
    let mut socket = target.connect().await?;
    let (mut microphone, loudspeaker) = (read_frames(microphone)?, write_frames(loudspeaker)?);
    let mut frames = interval(Duration::from_millis(FRAME_MS as u64));
    let begun = Instant::now();
    let mut talk = PipedCall {
        playout: Playout::default(),
        active: HashSet::new(),
        caller_speaks: false,
        moved: begun,
        in_line: false,
    };
    let (mut sent, mut ended) = (Duration::ZERO, None::<Instant>);
    loop {
        tokio::select! {
            event = socket.next() => talk.handle(&mut socket, &event?, out).await?,
            _ = frames.tick() => {
                if !talk.playout.is_empty() {
                    talk.moved = Instant::now();
                }
                match loudspeaker.try_reserve() {
                    Ok(place) => place.send(talk.playout.frame()),
                    // A slow loudspeaker delays the sound and loses none.
                    Err(TrySendError::Full(())) => {}
                    Err(TrySendError::Closed(())) => break,
                }
                let elapsed = begun.elapsed();
                while sent < elapsed + elapsed / 100 + AHEAD {
                    let frame = match microphone.try_recv() {
                        Ok(frame) => frame,
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => {
                            ended.get_or_insert_with(Instant::now);
                            // Silence, so that the turn ends.
                            vec![0; FRAME_BYTES]
                        }
                    };
                    socket.send(&append(&frame)).await?;
                    sent += Duration::from_millis(FRAME_MS as u64);
                }
                if ended.is_some_and(|ended| talk.is_over(ended)) {
                    break;
                }
            }
        }
    }
    talk.end_line(out)?;
    socket.close().await;
    Ok(())
}

impl PipedCall {
    /// True if nothing is left to come after an input that ended at `ended`.
    fn is_over(&self, ended: Instant) -> bool {
        let settled = self.moved.max(ended).elapsed() > SETTLED;
        let idle = self.active.is_empty() && !self.caller_speaks && self.playout.is_empty();
        (idle && settled) || ended.elapsed() > LONGEST_END
    }

    async fn handle(
        &mut self,
        socket: &mut CallSocket,
        event: &Value,
        out: &mut (impl Write + Send),
    ) -> Result<(), CallError> {
        self.moved = Instant::now();
        let response = || event["response"]["id"].as_str().unwrap_or_default();
        match kind(event) {
            "input_audio_buffer.speech_started" => {
                self.caller_speaks = true;
                for (item, heard_ms) in self.playout.clear() {
                    let truncate = json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0,
                                          "audio_end_ms": heard_ms});
                    socket.send(&truncate).await?;
                }
            }
            "input_audio_buffer.speech_stopped" => self.caller_speaks = false,
            "response.created" => drop(self.active.insert(response().to_owned())),
            "response.done" => {
                self.active.remove(response());
                self.end_line(out)?;
            }
            "response.output_audio.delta" => {
                self.playout.push(event["item_id"].as_str().unwrap_or_default(), &sound(event)?);
            }
            "response.output_audio_transcript.delta" | "response.output_text.delta" => {
                write!(out, "{}", event["delta"].as_str().unwrap_or_default())?;
                out.flush()?;
                self.in_line = true;
            }
            "conversation.item.input_audio_transcription.completed" => {
                self.end_line(out)?;
                writeln!(out, "> {}", event["transcript"].as_str().unwrap_or_default().trim())?;
            }
            "error" => {
                self.end_line(out)?;
                writeln!(out, "{}", CallError::failed(&event["error"]))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn end_line(&mut self, out: &mut impl Write) -> Result<(), CallError> {
        if std::mem::take(&mut self.in_line) {
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Reads frames on a thread of its own; the last one is filled up with silence.
fn read_frames(mut input: impl Read + Send + 'static) -> Result<Receiver<Vec<u8>>, CallError> {
    let (sender, frames) = mpsc::channel(QUEUE);
    let read = move || {
        loop {
            let (mut frame, mut filled) = (vec![0; FRAME_BYTES], 0);
            while filled < FRAME_BYTES {
                match input.read(&mut frame[filled..]) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            if filled == 0 || sender.blocking_send(frame).is_err() || filled < FRAME_BYTES {
                return;
            }
        }
    };
    std::thread::Builder::new().name("microphone".to_owned()).spawn(read)?;
    Ok(frames)
}

/// Writes frames on a thread of its own; the queue is closed when the output is.
fn write_frames(mut output: impl Write + Send + 'static) -> Result<Sender<Vec<u8>>, CallError> {
    let (frames, mut receiver) = mpsc::channel::<Vec<u8>>(QUEUE);
    let write = move || {
        while let Some(frame) = receiver.blocking_recv() {
            if output.write_all(&frame).and_then(|()| output.flush()).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("loudspeaker".to_owned()).spawn(write)?;
    Ok(frames)
}
