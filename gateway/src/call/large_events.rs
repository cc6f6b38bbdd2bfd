//! Parsing of client events: small ones at once, large ones on a thread of their own, because every other call of the
//! runtime's thread would wait.

use std::pin::Pin;

use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ClientEvent, ClientMessage, ErrorBody, ErrorKind};
use repartee_realtime::ItemAudio;
use repartee_realtime::audio::{self, EncodedAudio};

use crate::long_work::{CallerWork, WorkPermit};

/// Largest event that is parsed at once, in bytes: 100 ms of sound take 6 KiB, and parsing 64 KiB takes 0.1 ms.
const MAX_AT_ONCE: usize = 64 << 10;
/// Most audio of items that is decoded and resampled at once, in base64 letters.
const MAX_ITEM_AUDIO_AT_ONCE: usize = 4 << 10;

/// Form of audio in events, and of the audio that the model takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct AudioForm {
    /// Format of the caller's audio.
    pub format: AudioFormat,
    /// Input rate of the model, in Hz.
    pub model_rate: u32,
}

/// A parsed message.
#[derive(Debug)]
pub(super) enum ParsedMessage {
    /// An event.
    Event(Box<ClientMessage>),
    /// An event with the decoded audio of its items.
    EventWithAudio(Box<ClientMessage>, ItemAudio),
    /// Appended sound.
    Audio {
        /// Samples in -1..1.
        samples: Vec<f32>,
        /// Sampling rate, in Hz.
        rate: u32,
    },
    /// Much appended sound.
    Encoded(EncodedAudio),
    /// A message that is no event, or sound that cannot be decoded.
    Refused(Box<ErrorBody>),
}

/// A message that is being parsed.
pub(super) type PendingMessage = Pin<Box<dyn Future<Output = ParsedMessage> + Send>>;

/// Parses a message; returns the future of one that takes long.
pub(super) fn parse(text: String, form: AudioForm, work: &CallerWork) -> Result<ParsedMessage, PendingMessage> {
    if text.len() > MAX_AT_ONCE {
        let parse = move |permit: &mut WorkPermit| {
            let message = parse_now(&text, form.format, true);
            // The text may be as large as all that comes of it.
            drop(text);
            with_item_audio(message, form, permit)
        };
        return Err(later(work, parse));
    }
    let mut message = parse_now(&text, form.format, false);
    if let ParsedMessage::Event(event) = &mut message
        && ItemAudio::encoded_len(&mut event.event) > MAX_ITEM_AUDIO_AT_ONCE
    {
        return Err(later(work, move |permit| with_item_audio(message, form, permit)));
    }
    Ok(message)
}

/// Runs `parse` apart from calls.
fn later(work: &CallerWork, parse: impl FnOnce(&mut WorkPermit) -> ParsedMessage + Send + 'static) -> PendingMessage {
    let work = work.clone();
    Box::pin(async move {
        work.run(parse).await.unwrap_or_else(|error| {
            tracing::error!(%error, "an event could not be parsed");
            ParsedMessage::Refused(Box::new(ErrorBody::server(ErrorKind::Internal, "the event could not be parsed")))
        })
    })
}

/// Decodes the audio of a message's items.
fn with_item_audio(message: ParsedMessage, form: AudioForm, permit: &mut WorkPermit) -> ParsedMessage {
    let ParsedMessage::Event(mut message) = message else { return message };
    let pause = || permit.pause().is_ok();
    let audio = ItemAudio::take(&mut message.event, form.format, form.model_rate, pause);
    ParsedMessage::EventWithAudio(message, audio)
}

/// Parses a message at once, but leaves `much` appended sound encoded.
fn parse_now(text: &str, format: AudioFormat, much: bool) -> ParsedMessage {
    match ClientMessage::parse(text) {
        // The decoder of Opus belongs to the call.
        Ok(ClientMessage { event_id, event: ClientEvent::InputAppend(append) }) if format != AudioFormat::Opus => {
            let decoded = match much {
                true => EncodedAudio::new(&append.audio, format).map(ParsedMessage::Encoded),
                false => audio::decode(&append.audio, format)
                    .map(|samples| ParsedMessage::Audio { samples, rate: format.rate() }),
            };
            decoded.unwrap_or_else(|error| ParsedMessage::Refused(Box::new(error.with_event_id(event_id))))
        }
        Ok(message) => ParsedMessage::Event(Box::new(message)),
        Err(error) => ParsedMessage::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: AudioForm = AudioForm { format: AudioFormat::Pcmu, model_rate: 16_000 };

    fn append(samples: usize) -> String {
        let audio = "AAAA".repeat(samples / 3);
        format!(r#"{{"type":"input_audio_buffer.append","audio":"{audio}"}}"#)
    }

    fn item(samples: usize) -> String {
        let audio = "AAAA".repeat(samples / 3);
        let content = format!(r#"[{{"type":"input_audio","audio":"{audio}"}}]"#);
        format!(
            r#"{{"type":"conversation.item.create","item":{{"type":"message","role":"user","content":{content}}}}}"#
        )
    }

    fn parse_of_caller(text: String) -> Result<ParsedMessage, PendingMessage> {
        parse(text, FORM, &CallerWork::default())
    }

    #[test]
    fn small_events_are_parsed_at_once() {
        let parsed = parse_of_caller(append(300));
        assert!(matches!(parsed, Ok(ParsedMessage::Audio { samples, rate: 8_000 }) if samples.len() == 300));
        assert!(matches!(parse_of_caller("{".into()), Ok(ParsedMessage::Refused(_))));
        let commit = r#"{"type":"input_audio_buffer.commit"}"#;
        assert!(matches!(parse_of_caller(commit.into()), Ok(ParsedMessage::Event(_))));
        assert!(matches!(parse_of_caller(item(300)), Ok(ParsedMessage::Event(_))));
    }

    #[tokio::test]
    async fn large_events_leave_the_thread_free() {
        let pending = parse_of_caller(append(300_000));
        let Err(pending) = pending else { panic!("a large event was parsed at once") };
        let ParsedMessage::Encoded(mut audio) = pending.await else { panic!("no encoded audio") };
        assert_eq!(audio.next(usize::MAX).len(), 300_000);
        // One that nobody awaits any more holds no place.
        drop(parse_of_caller(append(300_000)));
        let wrong = format!(r#"{{"type":"party.start","x":"{}"}}"#, "x".repeat(MAX_AT_ONCE));
        let Err(pending) = parse_of_caller(wrong) else { panic!("a large event was parsed at once") };
        assert!(matches!(pending.await, ParsedMessage::Refused(_)));
    }

    #[tokio::test]
    async fn audio_of_items_is_decoded_apart() {
        for samples in [6_000, 300_000] {
            let Err(pending) = parse_of_caller(item(samples)) else { panic!("an item was decoded at once") };
            let ParsedMessage::EventWithAudio(mut message, _) = pending.await else { panic!("no event with audio") };
            assert_eq!(ItemAudio::encoded_len(&mut message.event), 0, "the session decodes nothing");
        }
    }
}
