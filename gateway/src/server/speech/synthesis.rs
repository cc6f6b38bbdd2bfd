//! A text while it is read: its pieces are responses of one session.

use std::collections::VecDeque;

use bytes::Bytes;
use repartee_engine_api::{Command, Event, Respond, ResponseId};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::Serialize;

use super::super::api_error::ApiError;
use super::super::generation::Generation;
use super::audio::AudioWriter;
use super::internal;
use super::request::SpeechPlan;
use super::sentences::{SentenceEnd, MAX_PIECE, SentenceSplitter};
use super::text_body::TextBody;

/// Pieces that are requested before the one that is spoken has ended, so that between them nobody waits.
const AHEAD: usize = 1;

/// A text while it is read.
pub(super) struct SpeechSynthesis {
    generation: Generation,
    /// Where more text comes from; `None` once it is whole. It is read however far the sound is: a client may send all of it before it
    /// reads any sound, and a text is small.
    body: Option<TextBody>,
    sentences: SentenceSplitter,
    /// Pieces that were not requested yet, and whether each has ended; all but the last have.
    pieces: VecDeque<(String, bool)>,
    /// The requested piece whose text has not ended.
    growing: Option<ResponseId>,
    /// What every piece is requested with.
    respond: Respond,
    /// Requested pieces that have not been spoken to their end.
    open: usize,
    /// `None` once it is finished.
    writer: Option<AudioWriter>,
    usage: SpeechUsage,
}

/// What a text took, as published.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct SpeechUsage {
    /// Tokens of the text.
    input_tokens: u32,
    /// Codec frames.
    output_tokens: u32,
    total_tokens: u32,
}

/// What comes next.
enum SpeechInput {
    Text(Option<String>),
    Event(Event),
    End,
}

impl SpeechSynthesis {
    /// Reads `text`, and then what comes from `body`.
    pub fn new(
        generation: Generation,
        plan: SpeechPlan,
        (text, body): (&str, Option<TextBody>),
        writer: AudioWriter,
        seed: u64,
    ) -> Self {
        let respond = Respond {
            voice: plan.voice,
            streamed: true,
            input: Some(Vec::new()),
            instructions: Some(plan.instructions),
            tools: Some(Vec::new()),
            seed,
            ..Respond::new(0, 0)
        };
        let mut speech = Self {
            generation,
            body,
            sentences: SentenceSplitter::default(),
            pieces: VecDeque::new(),
            growing: None,
            respond,
            open: 0,
            writer: Some(writer),
            usage: SpeechUsage::default(),
        };
        let mut cuts = speech.sentences.push(text);
        if speech.body.is_none() {
            cuts.extend(speech.sentences.finish());
        }
        speech.take(cuts);
        speech
    }

    /// What the text took so far.
    pub fn usage(&self) -> SpeechUsage {
        self.usage
    }

    /// Sends text to the pieces that it belongs to, and requests those that it is time for.
    fn take(&mut self, cuts: Vec<SentenceEnd>) {
        for cut in cuts {
            match (cut, self.growing) {
                (SentenceEnd::Text(text), Some(response)) => self.generation.submit([Command::StreamText { response, text }]),
                (SentenceEnd::End, Some(response)) => {
                    self.generation.submit([Command::EndText { response }]);
                    self.growing = None;
                }
                (SentenceEnd::Text(text), None) => match self.pieces.back_mut() {
                    Some((piece, false)) => piece.push_str(&text),
                    _ => self.pieces.push_back((text, false)),
                },
                (SentenceEnd::End, None) => {
                    if let Some((_, ended)) = self.pieces.back_mut() {
                        *ended = true;
                    }
                }
            }
        }
        while self.open <= AHEAD
            && let Some((text, ended)) = self.pieces.pop_front()
        {
            self.request(text, ended);
        }
    }

    fn request(&mut self, text: String, ended: bool) {
        self.open += 1;
        let response = self.respond.response;
        // A token is a byte at least.
        let most = if ended { text.len() } else { MAX_PIECE } + 1;
        let respond = Respond { max_tokens: u32::try_from(most).ok(), ..self.respond.clone() };
        self.respond.response += 1;
        self.respond.item += 1;
        self.generation.submit([Command::Respond(respond), Command::StreamText { response, text }]);
        if ended {
            self.generation.submit([Command::EndText { response }]);
        } else {
            self.growing = Some(response);
        }
    }

    /// The next bytes, or the error that ends the response; `None` once all has been read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let Some(writer) = &mut self.writer else { return Ok(None) };
            let bytes = match Self::wait(&mut self.body, &mut self.generation, self.open).await? {
                SpeechInput::Text(Some(text)) => {
                    let cuts = self.sentences.push(&text);
                    self.take(cuts);
                    continue;
                }
                SpeechInput::Text(None) => {
                    self.body = None;
                    let cuts = self.sentences.finish();
                    self.take(cuts);
                    continue;
                }
                SpeechInput::Event(Event::Audio { samples, .. }) => {
                    writer.push(&samples).map_err(|error| self.generation.fail(internal(error)))?
                }
                SpeechInput::Event(Event::SegmentFinished { usage, .. }) => {
                    self.usage.input_tokens += usage.output_text_tokens;
                    self.usage.output_tokens += usage.output_audio_frames;
                    self.usage.total_tokens = self.usage.input_tokens + self.usage.output_tokens;
                    self.open -= 1;
                    self.take(Vec::new());
                    continue;
                }
                SpeechInput::Event(_) => continue,
                SpeechInput::End if self.respond.response == 0 => {
                    return Err(self.generation.fail(ApiError::bad_request(nothing_to_read())));
                }
                SpeechInput::End => {
                    let writer = self.writer.take();
                    let bytes = writer.map_or(Ok(Bytes::new()), AudioWriter::finish);
                    bytes.map_err(|error| self.generation.fail(internal(error)))?
                }
            };
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }

    /// Text or an event, whichever comes first; the end once there can be neither.
    async fn wait(body: &mut Option<TextBody>, generation: &mut Generation, open: usize) -> Result<SpeechInput, ApiError> {
        match body {
            Some(body) => tokio::select! {
                text = body.next() => text.map(SpeechInput::Text).map_err(|error| generation.fail(error)),
                event = generation.next() => event.map(SpeechInput::Event),
            },
            None if open > 0 => generation.next().await.map(SpeechInput::Event),
            None => Ok(SpeechInput::End),
        }
    }
}

/// The error of a text without a word.
pub(super) fn nothing_to_read() -> ErrorBody {
    ErrorBody::invalid(ErrorKind::InvalidValue, "the input holds no text to read").with_param("input")
}
