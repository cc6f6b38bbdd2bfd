//! Parsing of client events: small ones at once, large ones on a thread of their own, because every other call of the
//! runtime's thread would wait.

use std::pin::Pin;

use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ClientEvent, ClientMessage, ErrorBody, ErrorKind};
use repartee_realtime::audio;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Largest event that is parsed at once, in bytes: 100 ms of sound take 6 KiB, and parsing 64 KiB takes 0.1 ms.
const MAX_AT_ONCE: usize = 64 << 10;

/// Large events that are parsed at a time, so that they leave processors to calls. All share one, first come first
/// served: a call has one such event at a time.
static PARSERS: Semaphore = Semaphore::const_new(1);

/// A parsed message.
#[derive(Debug)]
pub(super) enum ParsedMessage {
    /// An event.
    Event(Box<ClientMessage>),
    /// Appended sound.
    Audio {
        /// Samples in -1..1.
        samples: Vec<f32>,
        /// Sampling rate, in Hz.
        rate: u32,
    },
    /// A message that is no event, or sound that cannot be decoded.
    Refused(Box<ErrorBody>),
}

/// A message that is being parsed.
pub(super) type PendingMessage = Pin<Box<dyn Future<Output = ParsedMessage> + Send>>;

/// Parses a message whose sound is in `format`; returns the future of a large one.
pub(super) fn parse(text: String, format: AudioFormat) -> Result<ParsedMessage, PendingMessage> {
    if text.len() <= MAX_AT_ONCE {
        return Ok(parse_now(&text, format));
    }
    Err(Box::pin(async move {
        // The semaphore is never closed.
        let _permit = PARSERS.acquire().await;
        let parsed = spawn_blocking(move || parse_now(&text, format)).await;
        parsed.unwrap_or_else(|error| {
            tracing::error!(%error, "an event could not be parsed");
            ParsedMessage::Refused(Box::new(ErrorBody::server(ErrorKind::Internal, "the event could not be parsed")))
        })
    }))
}

fn parse_now(text: &str, format: AudioFormat) -> ParsedMessage {
    match ClientMessage::parse(text) {
        // The decoder of Opus belongs to the call.
        Ok(ClientMessage { event_id, event: ClientEvent::InputAppend(append) }) if format != AudioFormat::Opus => {
            match audio::decode(&append.audio, format) {
                Ok(samples) => ParsedMessage::Audio { samples, rate: format.rate() },
                Err(error) => ParsedMessage::Refused(Box::new(error.with_event_id(event_id))),
            }
        }
        Ok(message) => ParsedMessage::Event(Box::new(message)),
        Err(error) => ParsedMessage::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(samples: usize) -> String {
        let audio = "AAAA".repeat(samples * 2 / 3);
        format!(r#"{{"type":"input_audio_buffer.append","audio":"{audio}"}}"#)
    }

    #[test]
    fn small_events_are_parsed_at_once() {
        let parsed = parse(append(300), AudioFormat::default());
        assert!(matches!(parsed, Ok(ParsedMessage::Audio { samples, rate: 24_000 }) if samples.len() == 300));
        assert!(matches!(parse("{".into(), AudioFormat::default()), Ok(ParsedMessage::Refused(_))));
        let commit = r#"{"type":"input_audio_buffer.commit"}"#;
        assert!(matches!(parse(commit.into(), AudioFormat::default()), Ok(ParsedMessage::Event(_))));
    }

    #[tokio::test]
    async fn large_events_leave_the_thread_free() {
        let pending = parse(append(300_000), AudioFormat::default());
        let Err(pending) = pending else { panic!("a large event was parsed at once") };
        assert!(matches!(pending.await, ParsedMessage::Audio { samples, .. } if samples.len() == 300_000));
        // One that nobody awaits any more holds no place.
        drop(parse(append(300_000), AudioFormat::default()));
        let wrong = format!(r#"{{"type":"party.start","x":"{}"}}"#, "x".repeat(MAX_AT_ONCE));
        let Err(pending) = parse(wrong, AudioFormat::default()) else { panic!("a large event was parsed at once") };
        assert!(matches!(pending.await, ParsedMessage::Refused(_)));
    }
}
