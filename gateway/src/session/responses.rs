//! Asking for answers, and what the engine says about them.

use std::time::Instant;

use repartee_engine::session::{Command, Event, FinishReason, Respond, ResponseId, SessionError, Usage as EngineUsage};

use serde_json::{Map, Value};

use super::answer::{Answer, usage};
use super::config::MAX_INSTRUCTIONS;
use super::history::{Entry, Kind};
use super::playback::Playing;
use super::{Core, Delivery, Effect, engine_error};
use crate::protocol::item::Status as ItemStatus;
use crate::protocol::rate_limits::Updated;
use crate::protocol::response::{
    ContentPart, Delta, Failure, OutputItem, Overrides, Reason, ResponseOutput, State, Status, StatusDetails, TextDone,
    TranscriptDone,
};
use crate::protocol::session::{MaxTokens, Modality};
use crate::protocol::{ErrorBody, ErrorKind, ServerEvent};

/// The most that a response's metadata may hold, in bytes.
const MAX_METADATA: usize = 16 << 10;

/// An answer that was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    overrides: Overrides,
    /// Since when the caller waits.
    since: Instant,
}

fn written_length(metadata: &Map<String, Value>) -> usize {
    metadata.iter().map(|(key, value)| key.len() + value.to_string().len()).sum()
}

impl Core {
    pub(super) fn create_response(&mut self, overrides: Overrides, now: Instant) -> Result<(), ErrorBody> {
        let refuse = |param: &str, message: &str| {
            Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).at(format!("response.{param}")))
        };
        if overrides.conversation.as_deref().is_some_and(|conversation| conversation != "auto") {
            return refuse("conversation", "answers outside of the conversation are not offered");
        }
        if overrides.input.is_some() {
            return refuse("input", "only the conversation can be answered");
        }
        if overrides.instructions.as_ref().is_some_and(|instructions| instructions.len() > MAX_INSTRUCTIONS) {
            return refuse("instructions", "these instructions are too long");
        }
        if overrides.metadata.as_ref().is_some_and(|metadata| written_length(metadata) > MAX_METADATA) {
            return refuse("metadata", "the metadata of a response holds at most 16 KiB");
        }
        // One that is being stopped makes room in a moment; one answer can wait for it.
        let busy = self.answer.as_ref().is_some_and(|answer| answer.stopping.is_none()) || self.deferred.is_some();
        if busy {
            let id = self.answer.as_ref().map_or("", |answer| &answer.id);
            let message = format!(
                "Conversation already has an active response in progress: {id}. Wait until the response is finished \
                 before creating a new one."
            );
            return Err(ErrorBody::invalid(ErrorKind::ActiveResponse, message));
        }
        self.respond_when_free(overrides, now);
        Ok(())
    }

    /// Begins an answer now, or once the one being made has ended.
    pub(super) fn respond_when_free(&mut self, overrides: Overrides, since: Instant) {
        let asked = Asked { overrides, since };
        if self.answer.is_some() {
            self.deferred = Some(asked);
        } else {
            self.respond(asked);
        }
    }

    fn respond(&mut self, asked: Asked) {
        let overrides = asked.overrides;
        let response = self.number();
        let (item_id, item) = self.new_item();
        let wants_audio = |modalities: &Vec<Modality>| modalities.contains(&Modality::Audio);
        let audio =
            overrides.output_modalities.as_ref().map_or(wants_audio(&self.config.output_modalities), wants_audio);
        let max_tokens = overrides.max_output_tokens.unwrap_or(self.config.max_output_tokens);
        let voice = self.voice(&overrides);
        let answer = Answer {
            response,
            id: format!("resp_{}_{response}", self.setup.stem),
            item,
            item_id,
            modality: if audio { Modality::Audio } else { Modality::Text },
            max_tokens,
            output: ResponseOutput { format: self.config.audio.output.format, voice: voice.clone() },
            metadata: overrides.metadata,
            text: String::new(),
            samples: 0,
            announced: false,
            stopping: None,
            truncate_at: None,
        };
        self.effects.push(Effect::Asked { response, since: asked.since });
        let respond = Command::Respond(Respond {
            voice: Some(voice),
            audio,
            max_tokens: match max_tokens {
                MaxTokens::Count(count) => Some(count),
                MaxTokens::Unlimited(_) => None,
            },
            seed: self.setup.seed,
            ..Respond::new(response, item)
        });
        match overrides.instructions {
            // Commands are executed in order, so these instructions hold for this answer alone.
            Some(instructions) => {
                self.command(Command::Instruct(instructions));
                self.command(respond);
                self.command(Command::Instruct(self.config.instructions.clone()));
            }
            None => self.command(respond),
        }
        let created = answer.wire(None, Vec::new());
        self.answer = Some(answer);
        self.send(ServerEvent::ResponseCreated(State { response: created }));
    }

    /// The voice that an answer asks for, if there is such a voice, else the session's.
    fn voice(&self, overrides: &Overrides) -> String {
        let asked = overrides.audio.as_ref().and_then(|audio| audio.output.as_ref()?.voice.as_ref());
        let asked = asked.and_then(|voice| voice.as_str().or_else(|| voice.get("id")?.as_str()));
        asked
            .filter(|asked| self.setup.model.voices.iter().any(|voice| voice == asked))
            .unwrap_or(&self.config.audio.output.voice)
            .to_owned()
    }

    pub(super) fn cancel_response(&mut self, id: Option<&str>) -> Result<(), ErrorBody> {
        // An answer that still waits is taken back without a trace: the client has not heard of it.
        let waited = self.deferred.take().is_some();
        let active =
            self.answer.as_ref().is_some_and(|answer| answer.stopping.is_none() && id.is_none_or(|id| id == answer.id));
        if !active && !waited {
            let message = "Cancellation failed: no active response found";
            return Err(ErrorBody::invalid(ErrorKind::CancelNotActive, message));
        }
        self.stop_answer(Reason::ClientCancelled);
        Ok(())
    }

    /// Stops the answer being made, if it is not being stopped already. Nothing more of it is sent; it ends once the
    /// engine has stopped.
    pub(super) fn stop_answer(&mut self, reason: Reason) {
        let Some(answer) = &mut self.answer else { return };
        if answer.stopping.is_none() {
            answer.stopping = Some(reason);
            let response = answer.response;
            self.command(Command::Cancel { response });
        }
    }

    pub(super) fn engine(&mut self, event: Event) {
        match event {
            Event::Text { response, text } => self.said(response, &text),
            Event::Audio { response, samples, .. } => self.sounded(response, samples),
            Event::SegmentFinished { response, reason, usage: count } => {
                if self.answer.as_ref().is_some_and(|answer| answer.response == response) {
                    self.finish(reason, &count, None);
                }
            }
            Event::Failed { response, error } => self.failed(response, &error),
            Event::ToolCall { .. } | Event::ToolArguments { .. } | Event::Finished => {}
        }
    }

    /// Whether news of `response` still interests the client.
    fn is_live(&self, response: ResponseId) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.response == response && answer.stopping.is_none())
    }

    fn said(&mut self, response: ResponseId, text: &str) {
        if !self.is_live(response) || text.is_empty() {
            return;
        }
        self.announce();
        let Some(answer) = &mut self.answer else { return };
        answer.text.push_str(text);
        let delta = Delta { name: answer.part_name(), delta: text.to_owned() };
        let event = match answer.modality {
            Modality::Audio => ServerEvent::TranscriptDelta(delta),
            Modality::Text => ServerEvent::TextDelta(delta),
        };
        self.send(event);
    }

    fn sounded(&mut self, response: ResponseId, samples: Vec<f32>) {
        if !self.is_live(response) || samples.is_empty() {
            return;
        }
        self.announce();
        let event_id = self.new_event_id();
        let Some(answer) = &mut self.answer else { return };
        if answer.samples == 0 && self.setup.delivery == Delivery::Paced {
            self.playing.push_back(Playing::new(answer));
        }
        answer.samples += samples.len() as u64;
        self.effects.push(Effect::Speak { event_id, response, name: answer.part_name(), samples });
    }

    /// Tells the client about the answer's item, before the first piece of it.
    fn announce(&mut self) {
        let Some(answer) = &mut self.answer else { return };
        if answer.announced {
            return;
        }
        answer.announced = true;
        let (item, id) = (answer.item, answer.item_id.clone());
        let kind = match answer.modality {
            Modality::Audio => Kind::AssistantAudio,
            Modality::Text => Kind::AssistantText,
        };
        let (response_id, name, part) = (answer.id.clone(), answer.part_name(), answer.part());
        self.history.push(Entry {
            id: id.clone(),
            item,
            kind,
            status: ItemStatus::InProgress,
            text: String::new(),
            audio_ms: 0,
        });
        if let Some(placed) = self.history.placed(&id) {
            let item = placed.item.clone();
            self.send(ServerEvent::OutputItemAdded(OutputItem { response_id, output_index: 0, item }));
            self.send(ServerEvent::ItemAdded(placed));
        }
        self.send(ServerEvent::ContentPartAdded(ContentPart { name, part }));
    }

    fn failed(&mut self, response: Option<ResponseId>, error: &SessionError) {
        let body = engine_error(error);
        let ours = response.is_some() && response == self.answer.as_ref().map(|answer| answer.response);
        if ours {
            let failure = Failure { kind: body.kind.clone(), code: body.code.clone(), message: body.message.clone() };
            self.finish(FinishReason::Stop, &EngineUsage::default(), Some(failure));
        }
        // Every further slice of a turn that is too long fails alike: said once.
        let repeated = matches!(error, SessionError::AudioTooLong { .. })
            && self.hearing.turn().is_some_and(|turn| std::mem::replace(&mut turn.refused, true));
        if !repeated {
            self.fail(body);
        }
        if error.is_fatal() {
            self.effects.push(Effect::Close);
        }
    }

    /// Ends the answer on the wire, cuts it where it was heard, and begins the one that waits.
    fn finish(&mut self, reason: FinishReason, count: &EngineUsage, failure: Option<Failure>) {
        let Some(answer) = self.answer.take() else { return };
        let details = match failure {
            Some(failure) => StatusDetails { kind: Status::Failed, reason: None, error: Some(failure) },
            None => answer.end(reason),
        };
        let status = details.kind;
        let made_ms = answer.made_ms(self.setup.model.output_rate);
        let output = if answer.announced { self.finish_item(&answer, status, made_ms) } else { Vec::new() };
        let outdated = answer.stopping.is_some() && reason != FinishReason::Cancelled;
        if outdated && answer.truncate_at.is_none() {
            // The engine had already finished: its history holds more than was sent.
            self.command(Command::Truncate { item: answer.item, text: answer.text.clone() });
        }
        let response = answer.wire(Some((details, usage(count))), output);
        self.send(ServerEvent::ResponseDone(State { response }));
        self.send(ServerEvent::RateLimitsUpdated(Updated::default()));
        self.effects.push(Effect::Answered(status));
        if let Some(heard_ms) = answer.truncate_at {
            if answer.announced {
                self.cut_item(&answer.item_id, heard_ms, false);
            } else {
                self.command(Command::Truncate { item: answer.item, text: String::new() });
            }
        }
        if let Some(asked) = self.deferred.take() {
            self.respond(asked);
        }
    }

    /// Ends the answer's item on the wire and returns it.
    fn finish_item(&mut self, answer: &Answer, status: Status, made_ms: u64) -> Vec<crate::protocol::item::Item> {
        let name = answer.part_name();
        match answer.modality {
            Modality::Audio => {
                let event_id = self.new_event_id();
                self.effects.push(Effect::SpeechEnd { event_id, response: answer.response, name: name.clone() });
                self.send(ServerEvent::AudioDone(name.clone()));
                let transcript = answer.text.clone();
                self.send(ServerEvent::TranscriptDone(TranscriptDone { name: name.clone(), transcript }));
            }
            Modality::Text => {
                self.send(ServerEvent::TextDone(TextDone { name: name.clone(), text: answer.text.clone() }));
            }
        }
        self.send(ServerEvent::ContentPartDone(ContentPart { name, part: answer.part() }));
        let whole = status == Status::Completed;
        // A client may have deleted the item in between.
        let Some(entry) = self.history.find_mut(&answer.item_id) else { return Vec::new() };
        entry.status = if whole { ItemStatus::Completed } else { ItemStatus::Incomplete };
        entry.text.clone_from(&answer.text);
        entry.audio_ms = made_ms;
        let item = entry.wire();
        let done = OutputItem { response_id: answer.id.clone(), output_index: 0, item: item.clone() };
        self.send(ServerEvent::OutputItemDone(done));
        if let Some(placed) = self.history.placed(&answer.item_id) {
            self.send(ServerEvent::ItemDone(placed));
        }
        vec![item]
    }
}
