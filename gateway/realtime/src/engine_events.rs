//! Engine events of active responses, and the end of a response.

use std::time::Instant;

use repartee_engine_api::{Command, EngineUsage, Event, FinishReason, LatencyStamps, ResponseId, SessionError};
use repartee_media::tempo::heard;
use repartee_protocol::ServerEvent;
use repartee_protocol::extension::EventExtension;
use repartee_protocol::item::ItemStatus;
use repartee_protocol::response::{
    ArgumentsDelta, ArgumentsDone, ContentDelta, ContentPart, OutputItem, ResponseError, ResponseEvent, ResponseStatus,
    StatusDetails, TextDone, TranscriptDone,
};
use repartee_protocol::session::Modality;

use super::history::HistoryEntry;
use super::response::{ActiveResponse, ItemBody, PlayingResponse, ResponseItem, usage};
use super::{Delivery, Effect, RealtimeSession, engine_error};

impl RealtimeSession {
    pub(super) fn process_engine_event(&mut self, event: Event, now: Instant) {
        let Some(event) = self.transcription_event(event, now) else { return };
        match event {
            Event::Text { response, text } => self.on_text(response, &text),
            Event::Audio { response, samples, stamps, .. } => self.on_audio(response, samples, stamps, now),
            Event::ToolCall { response, call, name } => self.on_tool_call(response, call, name),
            Event::ToolArguments { response, call, arguments } => self.on_tool_arguments(response, call, &arguments),
            Event::SegmentFinished { response, reason, usage: count } => {
                self.finish_response(response, reason, &count, None, now)
            }
            Event::Failed { response, error } => self.on_failed(response, &error, now),
            // Transcripts were handled above.
            Event::InputText { .. } | Event::InputDetails { .. } | Event::Finished => {}
        }
    }

    /// Returns the response; `None` if it has ended or is stopping.
    fn active(&mut self, engine_id: ResponseId) -> Option<&mut ActiveResponse> {
        let active = |response: &ActiveResponse| response.stopping.is_none() && !response.stopped_at_call;
        self.responses.iter_mut().find(|response| response.engine_id == engine_id && active(response))
    }

    fn on_text(&mut self, engine_id: ResponseId, text: &str) {
        if self.active(engine_id).is_none() || text.is_empty() {
            return;
        }
        self.announce_message(engine_id);
        let Some(response) = self.active(engine_id) else { return };
        let message = response.outputs.iter_mut().find_map(|output| match &mut output.body {
            ItemBody::Message(text) => Some(text),
            ItemBody::Call { .. } => None,
        });
        if let Some(message) = message {
            message.push_str(text);
        }
        let Some(at) = response.part_ref() else { return };
        let delta = ContentDelta { part_ref: at, delta: text.to_owned() };
        let event = match response.modality {
            Modality::Audio => ServerEvent::TranscriptDelta(delta),
            Modality::Text => ServerEvent::TextDelta(delta),
        };
        self.send(event);
    }

    fn on_audio(&mut self, engine_id: ResponseId, samples: Vec<f32>, stamps: Option<LatencyStamps>, now: Instant) {
        if self.active(engine_id).is_none() || samples.is_empty() {
            return;
        }
        self.announce_message(engine_id);
        if let Some(stamps) = stamps {
            self.effects.push(Effect::Stamps { response: engine_id, stamps });
        }
        let Some(response) = self.active(engine_id) else { return };
        let samples = response.tempo.push(samples);
        self.send_audio(engine_id, samples, now);
    }

    /// Sends what is left of the audio whose speed was changed.
    fn finish_audio(&mut self, engine_id: ResponseId, now: Instant) {
        let Some(response) = self.active(engine_id) else { return };
        let rest = response.tempo.finish();
        self.send_audio(engine_id, rest, now);
    }

    /// Sends audio at the speed at which it is played.
    fn send_audio(&mut self, engine_id: ResponseId, samples: Vec<f32>, now: Instant) {
        if samples.is_empty() {
            return;
        }
        let (event_id, delivery, rate) = (self.new_event_id(), self.setup.delivery, self.setup.model.output_rate);
        let Some(response) = self.active(engine_id) else { return };
        let Some(part) = response.part_ref() else { return };
        let first = response.samples == 0;
        response.samples += samples.len() as u64;
        if first {
            let (format, playing) = (response.output.format, PlayingResponse::new(response, &part));
            self.effects.push(Effect::AudioStart { response: engine_id, format });
            if delivery == Delivery::Paced {
                self.playing.push_back(playing);
            }
        }
        self.client_playback.extend(samples.len() as u64, rate, now);
        self.effects.push(Effect::Audio { event_id, response: engine_id, part, samples });
    }

    fn on_tool_call(&mut self, engine_id: ResponseId, call: u32, name: String) {
        let Some(response) = self.active(engine_id) else { return };
        let cut = !response.parallel_calls && response.has_call();
        response.stopped_at_call = cut;
        self.finish_calls(engine_id, ItemStatus::Completed);
        if cut {
            self.command(Command::Cancel { response: engine_id });
            return;
        }
        let call_id = self.new_call_id();
        self.add_output_item(engine_id, ItemBody::Call { call, call_id, name, arguments: String::new() });
    }

    fn on_tool_arguments(&mut self, engine_id: ResponseId, call: u32, piece: &str) {
        let Some(response) = self.active(engine_id) else { return };
        let index = response.outputs.iter_mut().enumerate().find_map(|(index, output)| match &mut output.body {
            ItemBody::Call { call: number, arguments, .. } if *number == call => {
                arguments.push_str(piece);
                Some(index)
            }
            _ => None,
        });
        if let Some(call) = index.and_then(|index| response.call_ref(index)) {
            self.send(ServerEvent::ArgumentsDelta(ArgumentsDelta { call, delta: piece.to_owned() }));
        }
    }

    /// Adds the response's message before its first delta, and announces it to the client.
    fn announce_message(&mut self, engine_id: ResponseId) {
        let Some(response) = self.active(engine_id) else { return };
        if response.message().is_some() {
            return;
        }
        self.add_output_item(engine_id, ItemBody::Message(String::new()));
        let Some(response) = self.active(engine_id) else { return };
        let (at, part) = (response.part_ref(), response.part());
        if let Some(at) = at {
            self.send(ServerEvent::ContentPartAdded(ContentPart { part_ref: at, part }));
        }
    }

    /// Adds an item to the response, and announces it to the client.
    fn add_output_item(&mut self, engine_id: ResponseId, body: ItemBody) {
        let id = self.new_item_id();
        let Some(response) = self.active(engine_id) else { return };
        // The engine has one item per response: it maps to the message, or without a message to the first call.
        let is_message = matches!(body, ItemBody::Message(_));
        let engine = if is_message || response.outputs.is_empty() { vec![response.item] } else { Vec::new() };
        let within = (!is_message).then_some(response.item);
        let calls: Vec<_> = response.outputs.iter().filter(|_| is_message).map(|output| output.id.clone()).collect();
        let previous = response.outputs.last().map_or(&response.previous_item_id, |output| &output.id).clone();
        response.outputs.push(ResponseItem { id: id.clone(), body, status: ItemStatus::InProgress });
        let output_index = response.outputs.len() as u32 - 1;
        let Some(item) = response.outputs.last().map(|output| response.output_item(output)) else { return };
        let (response_id, in_conversation) = (response.id.clone(), response.in_conversation());
        self.send(ServerEvent::OutputItemAdded(OutputItem { response_id, output_index, item: item.clone() }));
        if in_conversation {
            for call in calls {
                self.history.change(&call, |entry| entry.engine.clear());
            }
            self.add_item(HistoryEntry { within, ..HistoryEntry::new(id.clone(), item, engine) }, Some(&previous));
            if let Some(added) = self.history.added(&id) {
                self.send(ServerEvent::ItemAdded(added));
            }
        }
    }

    fn on_failed(&mut self, response: Option<ResponseId>, error: &SessionError, now: Instant) {
        let body = engine_error(error);
        if let Some(engine_id) = response {
            let failure =
                ResponseError { kind: body.kind.clone(), code: body.code.clone(), message: body.message.clone() };
            self.finish_response(engine_id, FinishReason::Stop, &EngineUsage::default(), Some(failure), now);
        }
        // All further slices of a turn that is too long, or that the model cannot hear, fail the same way: one error per turn.
        let repeated = matches!(error, SessionError::AudioTooLong { .. } | SessionError::NoAudioInput)
            && self.input.turn().is_some_and(|turn| std::mem::replace(&mut turn.refused, true));
        // The end of the response says it; the session is as good as before.
        let told = response.is_some() && matches!(error, SessionError::Thinker { .. });
        if !(repeated || told) {
            self.send_error(body);
        }
        if error.is_fatal() {
            self.effects.push(Effect::Close);
        }
    }

    /// Ends the response on the wire, truncates it to the heard part, and starts the next queued one.
    fn finish_response(
        &mut self,
        engine_id: ResponseId,
        reason: FinishReason,
        count: &EngineUsage,
        failure: Option<ResponseError>,
        now: Instant,
    ) {
        let Some(index) = self.responses.iter().position(|response| response.engine_id == engine_id) else { return };
        let details = match failure {
            Some(failure) => StatusDetails { kind: ResponseStatus::Failed, reason: None, error: Some(failure) },
            None => self.responses[index].status_details(reason),
        };
        let status = details.kind;
        let ended = if status == ResponseStatus::Completed { ItemStatus::Completed } else { ItemStatus::Incomplete };
        self.finish_calls(engine_id, ended);
        self.finish_audio(engine_id, now);
        self.finish_message(engine_id, ended);
        let response = self.responses.remove(index);
        let completed_after_stop = response.stopping.is_some() && reason != FinishReason::Cancelled;
        // The client may have deleted only a function call, and not the message.
        let is_kept = response.message().is_some_and(|(_, message)| self.history.find(&message.id).is_some());
        let is_gone = response.deleted && !is_kept;
        // The engine's history may hold more than was sent: calls after the first if parallel calls are off, a deleted item, or output
        // after the stop.
        let holds_more =
            response.stopped_at_call || response.deleted || (completed_after_stop && response.truncate_at.is_none());
        if is_gone {
            self.delete_in_engine(response.item);
        } else if holds_more && response.in_conversation() {
            self.truncate_in_engine(response.item, response.text().to_owned());
        }
        let wire = response.to_wire(Some((details, usage(count))));
        self.send(ServerEvent::ResponseDone(ResponseEvent { response: wire, repartee: EventExtension::default() }));
        self.effects.push(Effect::CountResponse(status));
        self.effects.push(Effect::CountUsage(*count));
        if let Some(heard_ms) = response.truncate_at.filter(|_| response.in_conversation() && !is_gone) {
            match response.message() {
                Some((_, message)) => self.truncate_to_heard(&message.id, heard_ms, &response.truncations, false),
                None if response.outputs.is_empty() => self.truncate_in_engine(response.item, String::new()),
                None => {}
            }
        }
        if response.in_conversation() {
            self.idle.arm();
        }
        self.start_queued();
    }

    /// Ends the response's message on the wire.
    fn finish_message(&mut self, engine_id: ResponseId, status: ItemStatus) {
        let Some(response) = self.responses.iter().find(|response| response.engine_id == engine_id) else { return };
        let (Some(at), Some((index, _))) = (response.part_ref(), response.message()) else { return };
        let (modality, text, part) = (response.modality, response.text().to_owned(), response.part());
        match modality {
            Modality::Audio => {
                if response.samples > 0 {
                    let event_id = self.new_event_id();
                    self.effects.push(Effect::AudioEnd { event_id, response: engine_id, part: at.clone() });
                }
                self.send(ServerEvent::AudioDone(at.clone()));
                self.send(ServerEvent::TranscriptDone(TranscriptDone { part_ref: at.clone(), transcript: text }));
            }
            Modality::Text => self.send(ServerEvent::TextDone(TextDone { part_ref: at.clone(), text })),
        }
        self.send(ServerEvent::ContentPartDone(ContentPart { part_ref: at, part }));
        self.finish_output_item(engine_id, index, status);
    }

    /// Ends the function calls in progress on the wire.
    fn finish_calls(&mut self, engine_id: ResponseId, status: ItemStatus) {
        let Some(response) = self.responses.iter().find(|response| response.engine_id == engine_id) else { return };
        let open = response.outputs.iter().enumerate().filter(|(_, output)| output.status == ItemStatus::InProgress);
        let calls: Vec<_> = open
            .filter_map(|(index, output)| match &output.body {
                ItemBody::Call { name, arguments, .. } => {
                    let (name, arguments) = (name.clone(), arguments.clone());
                    response.call_ref(index).map(|call| (index, ArgumentsDone { call, name, arguments }))
                }
                ItemBody::Message(_) => None,
            })
            .collect();
        for (index, done) in calls {
            self.send(ServerEvent::ArgumentsDone(done));
            self.finish_output_item(engine_id, index, status);
        }
    }

    /// Ends one item of the response on the wire.
    fn finish_output_item(&mut self, engine_id: ResponseId, index: usize, status: ItemStatus) {
        let rate = self.setup.model.output_rate;
        let Some(response) = self.responses.iter_mut().find(|response| response.engine_id == engine_id) else { return };
        let Some(output) = response.outputs.get_mut(index) else { return };
        output.status = status;
        let (id, is_message) = (output.id.clone(), matches!(output.body, ItemBody::Message(_)));
        let (response_id, audio_ms, speed) = (response.id.clone(), response.audio_ms(rate), response.speed);
        let Some(item) = response.outputs.get(index).map(|output| response.output_item(output)) else { return };
        // Out-of-band responses may use other voices.
        let learns = status == ItemStatus::Completed && is_message && response.in_conversation();
        // If the client has deleted the item meanwhile, this does nothing.
        self.history.change(&id, |entry| {
            entry.item = item.clone();
            (entry.audio_ms, entry.speed) = (if is_message { audio_ms } else { 0 }, speed);
        });
        if learns && let Some(text) = self.history.find(&id).and_then(|entry| entry.transcript()) {
            self.estimator.observe(text, heard(speed, audio_ms));
        }
        self.send(ServerEvent::OutputItemDone(OutputItem { response_id, output_index: index as u32, item }));
        if let Some(added) = self.history.added(&id) {
            self.send(ServerEvent::ItemDone(added));
        }
    }
}
