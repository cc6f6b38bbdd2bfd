//! Transcripts of the caller's turns. The model writes each down in an out-of-band response of the lowest priority, one at a time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use repartee_engine_api::{
    Command, MessageContent, Event, FinishReason, ResponseInput, ItemId, Respond, ResponseId,
    Role, Sampling, SessionError, EngineUsage,
};
use repartee_protocol::item::{ItemContent, Item};
use repartee_protocol::transcription::{TranscriptionCompleted, TranscriptionDelta, TranscriptionFailed, TranscriptionInputTokens, TranscriptionUsage};
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};

use super::speculation::response_of;
use super::{RealtimeSession, engine_error};

/// What the model is asked to do.
const INSTRUCTION: &str = "Write down what is said in this recording, word for word, and nothing else.";
/// Turns that may wait; more than anybody speaks while one is written down.
const MAX_WAITING: usize = 16;
/// Text tokens of one transcript: minutes of speech.
const MAX_TOKENS: u32 = 1_024;
/// How long to wait for a free slot of the engine, and how often.
const RETRY: Duration = Duration::from_secs(1);
const TRIES: u32 = 30;

/// A turn to be transcribed.
#[derive(Debug)]
struct PendingTranscript {
    /// Its id on the wire.
    item_id: String,
    /// The engine's id of it.
    item: ItemId,
    /// How often it was tried in vain.
    tries: u32,
}

/// The transcript that is being made.
#[derive(Debug)]
struct Active {
    response: ResponseId,
    /// `None` once the client has deleted it.
    turn: Option<PendingTranscript>,
    text: String,
}

/// Transcripts, being made or to be made.
#[derive(Debug, Default)]
pub(super) struct Transcriber {
    active: Option<Active>,
    waiting: VecDeque<PendingTranscript>,
    /// When the first one is tried again, if the engine had no room for it.
    retry_at: Option<Instant>,
}

impl Transcriber {
    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.active.is_none() && self.waiting.is_empty()
    }

    /// When [`Core::retry_transcript`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }
}

impl RealtimeSession {
    /// Has a turn transcribed, if the session wants that.
    pub(super) fn transcribe(&mut self, item_id: String, item: ItemId) {
        if self.config.audio.input.transcription.is_none() {
            return;
        }
        let turn = PendingTranscript { item_id, item, tries: 0 };
        if self.transcriber.waiting.len() >= MAX_WAITING {
            let message = format!("{MAX_WAITING} turns wait to be transcribed");
            return self.transcription_failed(turn, ErrorBody::server(ErrorKind::TranscriptionFailed, message));
        }
        self.transcriber.waiting.push_back(turn);
        self.next_transcript();
    }

    /// Starts the next transcript, unless one is being made.
    fn next_transcript(&mut self) {
        if self.transcriber.active.is_some() || self.transcriber.retry_at.is_some() {
            return;
        }
        let Some(turn) = self.transcriber.waiting.pop_front() else { return };
        let (response, item) = (self.number(), self.number());
        let settings = self.config.audio.input.transcription.clone().unwrap_or_default();
        let mut text = INSTRUCTION.to_owned();
        if let Some(language) = settings.language {
            text.push_str(&format!(" The language is {language}."));
        }
        if let Some(prompt) = settings.prompt {
            text.push_str(&format!(" {prompt}"));
        }
        let instruction = MessageContent::Text { role: Role::User, text };
        self.command(Command::Respond(Respond {
            audio: false,
            input: Some(vec![ResponseInput::Item(turn.item), ResponseInput::Content(instruction)]),
            out_of_band: true,
            background: true,
            instructions: Some(String::new()),
            tools: self.setup.model.tools.then(Vec::new),
            max_tokens: Some(MAX_TOKENS),
            sampling: Some(Sampling::GREEDY),
            ..Respond::new(response, item)
        }));
        self.transcriber.active = Some(Active { response, turn: Some(turn), text: String::new() });
    }

    /// Tries the first one again, if it is time.
    pub(super) fn retry_transcript(&mut self, now: Instant) {
        if self.transcriber.retry_at.is_some_and(|at| at <= now) {
            self.transcriber.retry_at = None;
            self.next_transcript();
        }
    }

    /// The client has deleted an item, or it was evicted.
    pub(super) fn cancel_transcript(&mut self, item_id: &str) {
        self.transcriber.waiting.retain(|turn| turn.item_id != item_id);
        if let Some(active) = &mut self.transcriber.active
            && active.turn.take_if(|turn| turn.item_id == item_id).is_some()
        {
            let response = active.response;
            self.command(Command::Cancel { response });
        }
    }

    /// Takes an event of the engine, if it is about a transcript; else returns it.
    pub(super) fn transcription_event(&mut self, event: Event, now: Instant) -> Option<Event> {
        let active = self.transcriber.active.as_mut();
        let Some(active) = active.filter(|active| response_of(&event) == Some(active.response)) else {
            return Some(event);
        };
        match event {
            Event::Text { text: delta, .. } => {
                active.text.push_str(&delta);
                if let Some(item_id) = active.turn.as_ref().map(|turn| turn.item_id.clone()) {
                    self.send(ServerEvent::TranscriptionDelta(TranscriptionDelta { item_id, content_index: 0, delta }));
                }
            }
            Event::SegmentFinished { reason, usage, .. } => self.transcription_ended(reason, &usage),
            Event::Failed { error, .. } => {
                self.transcription_refused(&error, now);
                // It ends the session, too.
                if error.is_fatal() {
                    return Some(Event::Failed { response: None, error });
                }
            }
            Event::Audio { .. } | Event::ToolCall { .. } | Event::ToolArguments { .. } | Event::Finished => {}
        }
        None
    }

    fn transcription_ended(&mut self, reason: FinishReason, usage: &EngineUsage) {
        let Some(Active { turn, text, .. }) = self.transcriber.active.take() else { return };
        match turn {
            Some(turn) if reason == FinishReason::Cancelled => {
                let error = ErrorBody::server(ErrorKind::TranscriptionFailed, "the transcript was cancelled");
                self.transcription_failed(turn, error);
            }
            Some(PendingTranscript { item_id, .. }) => {
                let transcript = text.trim().to_owned();
                self.history.change(&item_id, |entry| {
                    if let Item::Message(message) = &mut entry.item
                        && let Some(ItemContent::InputAudio { transcript: held, .. }) = message.content.first_mut()
                    {
                        *held = Some(transcript.clone());
                    }
                });
                self.evict_turn(&item_id);
                let usage = in_tokens(usage);
                let completed = TranscriptionCompleted { item_id, content_index: 0, transcript, usage };
                self.send(ServerEvent::TranscriptionCompleted(completed));
            }
            None => {}
        }
        self.next_transcript();
    }

    /// The engine has refused a transcript: for now, or at all.
    fn transcription_refused(&mut self, error: &SessionError, now: Instant) {
        let Some(Active { turn, .. }) = self.transcriber.active.take() else { return };
        let for_now = matches!(error, SessionError::OutOfMemory | SessionError::TooManyResponses { .. });
        match turn {
            Some(turn) if for_now && turn.tries < TRIES => {
                self.transcriber.waiting.push_front(PendingTranscript { tries: turn.tries + 1, ..turn });
                self.transcriber.retry_at = Some(now + RETRY);
            }
            Some(turn) => self.transcription_failed(turn, engine_error(error)),
            None => {}
        }
        self.next_transcript();
    }

    fn transcription_failed(&mut self, turn: PendingTranscript, error: ErrorBody) {
        self.evict_turn(&turn.item_id);
        self.send(ServerEvent::TranscriptionFailed(TranscriptionFailed { item_id: turn.item_id, content_index: 0, error }));
    }
}

fn in_tokens(engine: &EngineUsage) -> TranscriptionUsage {
    let input_tokens = engine.input_text_tokens + engine.input_audio_tokens;
    TranscriptionUsage {
        total_tokens: input_tokens + engine.output_text_tokens,
        input_tokens,
        input_token_details: TranscriptionInputTokens {
            text_tokens: engine.input_text_tokens,
            audio_tokens: engine.input_audio_tokens,
        },
        output_tokens: engine.output_text_tokens,
        ..TranscriptionUsage::default()
    }
}
