//! A call over a websocket. Sound arrives unpaced; the client's own clock plays it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{sleep_until, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::measure::playback::Playback;
use crate::server_events::{Event, TimedEvent};
use crate::speech::{Frame, from_pcm16};
use crate::target::{Stream, Target};

/// Playback buffer of a client: a loudspeaker's own buffer.
const BUFFER: Duration = Duration::from_millis(20);

/// A call over a websocket.
pub struct WebSocketTransport {
    socket: WebSocketStream<Box<dyn Stream>>,
    playback: Playback,
    /// Number of samples received.
    position: u64,
    /// Delay of a slow reader before each message.
    read_delay: Duration,
    next_read: Instant,
}

impl std::fmt::Debug for WebSocketTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocketLine").field("position", &self.position).finish_non_exhaustive()
    }
}

impl WebSocketTransport {
    /// Opens a websocket; `patience` is the deadline.
    ///
    /// # Errors
    /// The server refuses the call, or the deadline passes.
    pub async fn call(target: &Target, caller: usize, read_delay: Duration, patience: Instant) -> Result<Self> {
        let opened = async {
            let stream = target.connect(caller).await?;
            client_async(target.socket_request()?, stream).await.map_err(|error| match error {
                // Reports the server's error code, not the library's message.
                tokio_tungstenite::tungstenite::Error::Http(refusal) => {
                    let body = refusal.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                    let code = crate::target::error_code(&body);
                    anyhow::anyhow!("the call was refused: {} {code}", refusal.status().as_u16())
                }
                other => other.into(),
            })
        };
        let (socket, _) = timeout_at(patience.into(), opened).await.context("the websocket did not open in time")??;
        let playback = Playback::new(BUFFER);
        Ok(Self { socket, playback, position: 0, read_delay, next_read: Instant::now() })
    }

    /// Returns the next event other than sound, or `None` at `until`. Sound goes to the playback.
    ///
    /// # Errors
    /// The server hung up, or sent something malformed.
    pub async fn next(&mut self, until: Instant) -> Result<Option<TimedEvent>> {
        let entered = Instant::now();
        loop {
            if !self.read_delay.is_zero() {
                sleep_until(self.next_read.min(until).into()).await;
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            let Ok(message) = timeout_at(until.into(), self.socket.next()).await else { return Ok(None) };
            let now = Instant::now();
            self.next_read = now + self.read_delay;
            let at = arrival(entered, until, now);
            match message {
                Some(Ok(Message::Text(text))) => match Event::read(&text)? {
                    Event::Audio(delta) => {
                        let samples = from_pcm16(&STANDARD.decode(delta).context("the sound is not base64")?);
                        self.playback.push(self.position, &samples, at, false);
                        self.position += samples.len() as u64;
                    }
                    event => return Ok(Some(TimedEvent { event, at })),
                },
                Some(Ok(Message::Close(_))) | None => bail!("the server hung up"),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error).context("receive"),
            }
        }
    }

    /// Sends one 20 ms frame of the microphone; `patience` is the deadline.
    ///
    /// # Errors
    /// The connection is closed, or the deadline passes.
    pub async fn send_frame(&mut self, frame: &Frame, patience: Instant) -> Result<()> {
        self.send_event(&json!({"type": "input_audio_buffer.append", "audio": frame.pcm}), patience).await
    }

    /// Sends a client event; `patience` is the deadline.
    ///
    /// # Errors
    /// The connection is closed, or the deadline passes.
    pub async fn send_event(&mut self, event: &Value, patience: Instant) -> Result<()> {
        let sent = self.socket.send(Message::text(event.to_string()));
        timeout_at(patience.into(), sent).await.context("the server does not read")?.context("send")
    }

    /// Returns the playback of received sound.
    pub fn playback(&mut self) -> &mut Playback {
        &mut self.playback
    }

    /// Closes the websocket, within a second; errors are ignored.
    pub async fn close(&mut self) {
        // The server need not answer the close.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.socket.close(None)).await;
    }
}

/// Estimates the arrival of a message read at `now`, after a wait from `entered` to at most `until`. TCP has no time
/// stamps: if the caller wakes up late, the message counts as arrived at `until`, the due time of the wake-up.
fn arrival(entered: Instant, until: Instant, now: Instant) -> Instant {
    now.min(until.max(entered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_lateness_is_not_the_servers() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(arrival(at(0), at(20), at(7)), at(7));
        // Asleep for 200 ms in place of 20.
        assert_eq!(arrival(at(0), at(20), at(200)), at(20));
        // The wait began late, so nothing is known of the time before.
        assert_eq!(arrival(at(50), at(20), at(51)), at(50));
    }
}
