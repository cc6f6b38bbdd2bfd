//! Speech synthesis of one text: its pieces are responses of one session.

use std::collections::VecDeque;

use bytes::Bytes;
use repartee_engine_api::{Command, Event, FinishReason, MessageContent, Respond, ResponseId, ResponseInput, Role};
use repartee_media::tempo::Tempo;
use repartee_spoken::SentenceEnd;
use serde::Serialize;

use super::super::api_error::ApiError;
use super::super::generation::Generation;
use super::audio::{AudioWriter, WriteError};
use super::request::{SpeechPlan, nothing_to_read};
use super::text_body::TextBody;
use crate::read_text::ReadText;
use crate::voices::PassingVoice;

/// Number of pieces requested ahead of the spoken one, so that there is no gap between them.
const AHEAD: usize = 1;

/// Speech synthesis of one text.
pub(super) struct SpeechSynthesis {
    generation: Generation,
    /// Source of more text; `None` once the text is complete. It is read independently of the audio, because a client
    /// may send the whole text before it reads any audio, and a text is small.
    body: Option<TextBody>,
    read: ReadText,
    /// Pieces not requested yet, each true if complete; all but the last are.
    pieces: VecDeque<(String, bool)>,
    /// Requested piece whose text is incomplete.
    growing: Option<ResponseId>,
    /// Template of the request of each piece.
    respond: Respond,
    /// Number of requested pieces whose audio is not complete.
    open: usize,
    /// Speed of the audio.
    tempo: Tempo,
    /// Audio encoder; `None` once it is finished.
    writer: Option<AudioWriter>,
    usage: SpeechUsage,
    /// Number of pieces whose speech ended at the model's limit.
    cut: usize,
    /// Voice of the request's own recording, which lives as long as the speech.
    _voice: Option<PassingVoice>,
}

/// Token usage of a text, as in the OpenAI API.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct SpeechUsage {
    /// Number of text tokens.
    input_tokens: u32,
    /// Number of codec frames.
    output_tokens: u32,
    total_tokens: u32,
}

/// Next input: text, an event of the engine, or the end of both.
enum SpeechInput {
    Text(Option<String>),
    Event(Event),
    End,
}

impl SpeechSynthesis {
    /// Starts to read `text`, then the text from `body`, in the form and the pieces of `read`.
    pub fn new(
        generation: Generation,
        (plan, voice): (SpeechPlan, Option<PassingVoice>),
        (text, body, read): (&str, Option<TextBody>, ReadText),
        (writer, rate): (AudioWriter, u32),
        seed: u64,
    ) -> Self {
        let tempo = Tempo::new(rate, plan.tempo);
        let respond = Respond {
            voice: plan.voice,
            streamed: !plan.is_message,
            input: Some(Vec::new()),
            instructions: Some(plan.instructions),
            tools: Some(Vec::new()),
            seed,
            ..Respond::new(0, 0)
        };
        let mut speech = Self {
            generation,
            body,
            read,
            pieces: VecDeque::new(),
            growing: None,
            respond,
            open: 0,
            tempo,
            writer: Some(writer),
            usage: SpeechUsage::default(),
            cut: 0,
            _voice: voice,
        };
        let mut cuts = speech.read.push(text);
        if speech.body.is_none() {
            cuts.extend(speech.read.finish());
        }
        speech.take(cuts);
        speech
    }

    /// Returns the token usage so far.
    pub fn usage(&self) -> SpeechUsage {
        self.usage
    }

    /// Warning about text that was not spoken to its end, once the speech is complete.
    pub fn cut_warning(&self) -> Option<String> {
        let cut = self.cut;
        (cut > 0)
            .then(|| format!("the model's limit cut the speech of {cut} parts of the text: send shorter sentences"))
    }

    /// Adds text to its pieces, and requests the pieces that are due.
    fn take(&mut self, cuts: Vec<SentenceEnd>) {
        for cut in cuts {
            match (cut, self.growing) {
                (SentenceEnd::Text(text), Some(response)) => {
                    self.generation.submit([Command::StreamText { response, text }])
                }
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
        // A message is requested once it is complete.
        let streams = self.respond.streamed;
        while self.open <= AHEAD
            && self.pieces.front().is_some_and(|(_, ended)| *ended || streams)
            && let Some((text, ended)) = self.pieces.pop_front()
        {
            self.request(text, ended);
        }
    }

    fn request(&mut self, text: String, ended: bool) {
        self.open += 1;
        let response = self.respond.response;
        // A token has at least one byte.
        let most = if ended { text.len() } else { self.read.max_piece() } + 1;
        let respond = Respond { max_tokens: u32::try_from(most).ok(), ..self.respond.clone() };
        self.respond.response += 1;
        self.respond.item += 1;
        if !respond.streamed {
            let message = ResponseInput::Content(MessageContent::Text { role: Role::User, text });
            self.generation.submit([Command::Respond(Respond { input: Some(vec![message]), ..respond })]);
            return;
        }
        self.generation.submit([Command::Respond(respond), Command::StreamText { response, text }]);
        if ended {
            self.generation.submit([Command::EndText { response }]);
        } else {
            self.growing = Some(response);
        }
    }

    /// Returns the next bytes, or the error that ends the response; `None` once all was read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let Some(writer) = &mut self.writer else { return Ok(None) };
            let bytes = match Self::wait(&mut self.body, &mut self.generation, self.open).await? {
                SpeechInput::Text(Some(text)) => {
                    let cuts = self.read.push(&text);
                    self.take(cuts);
                    continue;
                }
                SpeechInput::Text(None) => {
                    self.body = None;
                    let cuts = self.read.finish();
                    self.take(cuts);
                    continue;
                }
                SpeechInput::Event(Event::Audio { samples, .. }) => {
                    let samples = self.tempo.push(samples);
                    writer.push(&samples).map_err(|error| self.generation.fail(internal(error)))?
                }
                SpeechInput::Event(Event::SegmentFinished { usage, reason, .. }) => {
                    self.cut += usize::from(reason == FinishReason::Length);
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
                    let rest = self.tempo.finish();
                    let bytes = writer.push(&rest).and_then(|bytes| match self.writer.take() {
                        Some(writer) => Ok([bytes, writer.finish()?].concat().into()),
                        None => Ok(bytes),
                    });
                    bytes.map_err(|error| self.generation.fail(internal(error)))?
                }
            };
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }

    /// Waits for text or an event; returns the end once neither can follow.
    async fn wait(
        body: &mut Option<TextBody>,
        generation: &mut Generation,
        open: usize,
    ) -> Result<SpeechInput, ApiError> {
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

/// Answer to a failed encoder.
pub(super) fn internal(error: WriteError) -> ApiError {
    ApiError::internal(&error.to_string())
}
