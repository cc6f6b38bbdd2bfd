//! Transcripts of the caller's turns. The model writes each in a background out-of-band response, one at a time. A model
//! that hears text reports it while the turn is open too.

use std::time::{Duration, Instant};

use repartee_engine_api::{
    Command, EngineUsage, Event, FinishReason, ItemId, Listen, SessionError, TextDelay, Transcribe,
};
use repartee_protocol::item::{Item, ItemContent};
use repartee_protocol::transcription::{
    Delay, TranscriptionCompleted, TranscriptionDelta, TranscriptionFailed, TranscriptionInputTokens,
    TranscriptionUsage,
};
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};

use super::transcriber::{ActiveTranscript, OpenTranscript, PendingTranscript};
use super::{Delivery, Effect, RealtimeSession, engine_error};

/// Maximum number of waiting turns.
const MAX_WAITING: usize = 16;
/// Interval and number of retries while the engine has no free slot.
const RETRY: Duration = Duration::from_secs(1);
const TRIES: u32 = 30;

impl RealtimeSession {
    /// Asks for the text of the turn that was just opened, if the model can tell and the session wants it.
    pub(super) fn listen(&mut self, announced: bool) {
        let settings = match &self.config.audio.input.transcription {
            Some(settings) if self.setup.model.hears_text => settings.clone(),
            _ => return,
        };
        let item = self.number();
        let (language, prompt) = (settings.language, settings.prompt.unwrap_or_default());
        let delay = text_delay(settings.delay.unwrap_or_default());
        self.command(Command::Listen(Listen { language, prompt, delay, ..Listen::new(item) }));
        if let Some(turn) = self.input.turn() {
            turn.transcript = Some(OpenTranscript { item, announced, sent: 0 });
        }
    }

    /// Sends what is new in the text of the open turn.
    fn open_transcript(&mut self, item: ItemId, text: &str, stable: usize) {
        let Some(turn) = self.input.turn() else { return };
        let Some(transcript) = turn.transcript.as_mut().filter(|open| open.item == item && open.announced) else {
            return;
        };
        let delta = text.get(transcript.sent..stable).unwrap_or_default().to_owned();
        transcript.sent = transcript.sent.max(stable);
        let item_id = turn.item_id.clone();
        if !delta.is_empty() {
            self.send(ServerEvent::TranscriptionDelta(TranscriptionDelta { item_id, content_index: 0, delta }));
        }
    }

    /// True if the session takes more of the caller's input now. Turns that are sent faster than real time wait for the
    /// transcription of those before them; a live caller cannot wait.
    pub fn wants_input(&self) -> bool {
        self.setup.delivery == Delivery::Paced || self.transcriber.waiting.len() < MAX_WAITING
    }

    /// Queues a turn for transcription, if enabled in the session; the client got the first `sent` bytes of its text.
    pub(super) fn transcribe(&mut self, item_id: String, item: ItemId, sent: usize) {
        if self.config.audio.input.transcription.is_none() {
            return;
        }
        let turn = PendingTranscript { item_id, item, sent, tries: 0 };
        if self.transcriber.waiting.len() >= MAX_WAITING {
            let message = format!("{MAX_WAITING} turns already wait for transcription");
            return self.transcription_failed(turn, ErrorBody::server(ErrorKind::TranscriptionFailed, message));
        }
        self.transcriber.waiting.push_back(turn);
        self.next_transcript();
    }

    /// Starts the next transcript, unless one is in progress or a retry is due later.
    fn next_transcript(&mut self) {
        if self.transcriber.active.is_some() || self.transcriber.retry_at.is_some() {
            return;
        }
        let Some(turn) = self.transcriber.waiting.pop_front() else { return };
        let response = self.number();
        let settings = self.config.audio.input.transcription.clone().unwrap_or_default();
        self.command(Command::Transcribe(Transcribe {
            language: settings.language,
            prompt: settings.prompt.unwrap_or_default(),
            ..Transcribe::new(response, turn.item)
        }));
        let sent = turn.sent;
        self.transcriber.active = Some(ActiveTranscript { response, turn: Some(turn), text: String::new(), sent });
    }

    /// Retries the first waiting transcript if its time has come.
    pub(super) fn retry_transcript(&mut self, now: Instant) {
        if self.transcriber.retry_at.is_some_and(|at| at <= now) {
            self.transcriber.retry_at = None;
            self.next_transcript();
        }
    }

    /// Cancels the transcript of an item that was deleted.
    pub(super) fn cancel_transcript(&mut self, item_id: &str) {
        self.transcriber.waiting.retain(|turn| turn.item_id != item_id);
        if let Some(active) = &mut self.transcriber.active
            && active.turn.take_if(|turn| turn.item_id == item_id).is_some()
        {
            let response = active.response;
            self.command(Command::Cancel { response });
        }
    }

    /// Handles an engine event of a transcript; returns any other event.
    pub(super) fn transcription_event(&mut self, event: Event, now: Instant) -> Option<Event> {
        if let Event::InputText { response: None, item, text, stable } = &event {
            self.open_transcript(*item, text, *stable);
            return None;
        }
        let active = self.transcriber.active.as_mut();
        let Some(active) = active.filter(|active| event.response() == Some(active.response)) else {
            return Some(event);
        };
        match event {
            Event::InputText { text, stable, .. } => {
                // Deltas are append-only, so they are of the text that stays.
                let delta = text.get(active.sent..stable).unwrap_or_default().to_owned();
                active.sent = active.sent.max(stable);
                active.text = text;
                if let Some(item_id) = active.turn.as_ref().map(|turn| turn.item_id.clone())
                    && !delta.is_empty()
                {
                    self.send(ServerEvent::TranscriptionDelta(TranscriptionDelta { item_id, content_index: 0, delta }));
                }
            }
            Event::SegmentFinished { reason, usage, .. } => self.transcription_ended(reason, &usage),
            Event::Failed { error, .. } => {
                self.transcription_refused(&error, now);
                // A fatal error also ends the session.
                if error.is_fatal() {
                    return Some(Event::Failed { response: None, error });
                }
            }
            Event::Text { .. }
            | Event::InputDetails { .. }
            | Event::Audio { .. }
            | Event::ToolCall { .. }
            | Event::ToolArguments { .. }
            | Event::Finished => {}
        }
        None
    }

    fn transcription_ended(&mut self, reason: FinishReason, usage: &EngineUsage) {
        let Some(ActiveTranscript { turn, text, .. }) = self.transcriber.active.take() else { return };
        self.effects.push(Effect::CountUsage(*usage));
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

    /// Handles a transcript that the engine refused: retries if the engine had no free slot, else reports the failure.
    fn transcription_refused(&mut self, error: &SessionError, now: Instant) {
        let Some(ActiveTranscript { turn, .. }) = self.transcriber.active.take() else { return };
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
        self.send(ServerEvent::TranscriptionFailed(TranscriptionFailed {
            item_id: turn.item_id,
            content_index: 0,
            error,
        }));
    }
}

/// Certainty of the engine for a client's delay.
fn text_delay(delay: Delay) -> TextDelay {
    match delay {
        Delay::Minimal => TextDelay::Minimal,
        Delay::Low => TextDelay::Low,
        Delay::Medium => TextDelay::Medium,
        Delay::High => TextDelay::High,
        Delay::VeryHigh => TextDelay::VeryHigh,
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
