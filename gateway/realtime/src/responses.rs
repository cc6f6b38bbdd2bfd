//! What the engine says about the answers being made, and their ends.

use std::time::Instant;

use repartee_engine_api::{Command, Event, FinishReason, ResponseId, SessionError, Stamps, Usage as EngineUsage};
use repartee_protocol::ServerEvent;
use repartee_protocol::item::Status as ItemStatus;
use repartee_protocol::rate_limits::Updated;
use repartee_protocol::response::{
    ArgumentsDelta, ArgumentsDone, ContentPart, Delta, Failure, OutputItem, State, Status, StatusDetails, TextDone,
    TranscriptDone,
};
use repartee_protocol::session::Modality;

use super::answer::{Answer, Body, Output, usage};
use super::history::Entry;
use super::playback::Playing;
use super::{Core, Delivery, Effect, engine_error};

impl Core {
    pub(super) fn engine(&mut self, event: Event, now: Instant) {
        match event {
            Event::Text { response, text } => self.said(response, &text),
            Event::Audio { response, samples, stamps, .. } => self.sounded(response, samples, stamps, now),
            Event::ToolCall { response, call, name } => self.called(response, call, name),
            Event::ToolArguments { response, call, arguments } => self.argued(response, call, &arguments),
            Event::SegmentFinished { response, reason, usage: count } => self.finish(response, reason, &count, None),
            Event::Failed { response, error } => self.failed(response, &error),
            Event::Finished => {}
        }
    }

    /// The answer, if news of it still interests the client.
    fn live(&mut self, response: ResponseId) -> Option<&mut Answer> {
        self.answers.iter_mut().find(|answer| answer.response == response && answer.stopping.is_none())
    }

    fn said(&mut self, response: ResponseId, text: &str) {
        if self.live(response).is_none() || text.is_empty() {
            return;
        }
        self.announce_said(response);
        let Some(answer) = self.live(response) else { return };
        let said = answer.outputs.iter_mut().find_map(|output| match &mut output.body {
            Body::Said(said) => Some(said),
            Body::Call { .. } => None,
        });
        if let Some(said) = said {
            said.push_str(text);
        }
        let Some(name) = answer.part_name() else { return };
        let delta = Delta { name, delta: text.to_owned() };
        let event = match answer.modality {
            Modality::Audio => ServerEvent::TranscriptDelta(delta),
            Modality::Text => ServerEvent::TextDelta(delta),
        };
        self.send(event);
    }

    fn sounded(&mut self, response: ResponseId, samples: Vec<f32>, stamps: Option<Stamps>, now: Instant) {
        if self.live(response).is_none() || samples.is_empty() {
            return;
        }
        self.announce_said(response);
        if let Some(stamps) = stamps {
            self.effects.push(Effect::Stamped { response, stamps });
        }
        let (event_id, delivery, rate) = (self.new_event_id(), self.setup.delivery, self.setup.model.output_rate);
        let Some(answer) = self.live(response) else { return };
        let Some(name) = answer.part_name() else { return };
        let first = answer.samples == 0;
        answer.samples += samples.len() as u64;
        let (format, playing) = (answer.output.format, Playing::new(answer, &name));
        if first {
            self.effects.push(Effect::Begin { response, format });
            if delivery == Delivery::Paced {
                self.playing.push_back(playing);
            }
        }
        self.sounds_until.lengthen(samples.len() as u64, rate, now);
        self.effects.push(Effect::Speak { event_id, response, name, samples });
    }

    fn called(&mut self, response: ResponseId, call: u32, name: String) {
        if self.live(response).is_none() {
            return;
        }
        self.end_calls(response, ItemStatus::Completed);
        let call_id = self.new_call_id();
        self.announce(response, Body::Call { call, call_id, name, arguments: String::new() });
    }

    fn argued(&mut self, response: ResponseId, call: u32, piece: &str) {
        let Some(answer) = self.live(response) else { return };
        let index = answer.outputs.iter_mut().enumerate().find_map(|(index, output)| match &mut output.body {
            Body::Call { call: number, arguments, .. } if *number == call => {
                arguments.push_str(piece);
                Some(index)
            }
            _ => None,
        });
        if let Some(name) = index.and_then(|index| answer.call_name(index)) {
            self.send(ServerEvent::ArgumentsDelta(ArgumentsDelta { name, delta: piece.to_owned() }));
        }
    }

    /// Tells the client about what the answer says, before the first piece of it.
    fn announce_said(&mut self, response: ResponseId) {
        let Some(answer) = self.live(response) else { return };
        if answer.said().is_some() {
            return;
        }
        self.announce(response, Body::Said(String::new()));
        let Some(answer) = self.live(response) else { return };
        let (name, part) = (answer.part_name(), answer.part());
        if let Some(name) = name {
            self.send(ServerEvent::ContentPartAdded(ContentPart { name, part }));
        }
    }

    /// Tells the client about an item of the answer.
    fn announce(&mut self, response: ResponseId, body: Body) {
        let id = self.new_item_id();
        let Some(answer) = self.live(response) else { return };
        // The engine has one item for the whole answer: what is said has its name, or else its first call.
        let said = matches!(body, Body::Said(_));
        let engine = if said || answer.outputs.is_empty() { vec![answer.item] } else { Vec::new() };
        let calls: Vec<_> = answer.outputs.iter().filter(|_| said).map(|output| output.id.clone()).collect();
        let previous = answer.outputs.last().map_or(&answer.follows, |output| &output.id).clone();
        answer.outputs.push(Output { id: id.clone(), body, status: ItemStatus::InProgress });
        let output_index = answer.outputs.len() as u32 - 1;
        let Some(item) = answer.outputs.last().map(|output| answer.output_item(output)) else { return };
        let (response_id, remembered) = (answer.id.clone(), answer.is_remembered());
        self.send(ServerEvent::OutputItemAdded(OutputItem { response_id, output_index, item: item.clone() }));
        if remembered {
            for call in calls {
                self.history.change(&call, |entry| entry.engine.clear());
            }
            self.remember(Entry::new(id.clone(), item, engine), Some(&previous));
            if let Some(placed) = self.history.placed(&id) {
                self.send(ServerEvent::ItemAdded(placed));
            }
        }
    }

    fn failed(&mut self, response: Option<ResponseId>, error: &SessionError) {
        let body = engine_error(error);
        if let Some(response) = response {
            let failure = Failure { kind: body.kind.clone(), code: body.code.clone(), message: body.message.clone() };
            self.finish(response, FinishReason::Stop, &EngineUsage::default(), Some(failure));
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
    fn finish(&mut self, response: ResponseId, reason: FinishReason, count: &EngineUsage, failure: Option<Failure>) {
        let Some(index) = self.answers.iter().position(|answer| answer.response == response) else { return };
        let details = match failure {
            Some(failure) => StatusDetails { kind: Status::Failed, reason: None, error: Some(failure) },
            None => self.answers[index].end(reason),
        };
        let status = details.kind;
        let ended = if status == Status::Completed { ItemStatus::Completed } else { ItemStatus::Incomplete };
        self.end_calls(response, ended);
        self.end_said(response, ended);
        let answer = self.answers.remove(index);
        let outdated = answer.stopping.is_some() && reason != FinishReason::Cancelled;
        if answer.deleted {
            self.command(Command::Delete { item: answer.item });
        } else if outdated && answer.is_remembered() && answer.truncate_at.is_none() {
            // The engine had already finished: its history holds more than was sent.
            self.command(Command::Truncate { item: answer.item, text: answer.text().to_owned() });
        }
        let wire = answer.wire(Some((details, usage(count))));
        self.send(ServerEvent::ResponseDone(State { response: wire }));
        self.send(ServerEvent::RateLimitsUpdated(Updated::default()));
        self.effects.push(Effect::Answered(status));
        if let Some(heard_ms) = answer.truncate_at.filter(|_| answer.is_remembered() && !answer.deleted) {
            match answer.said() {
                Some((_, said)) => self.cut_item(&said.id, heard_ms, answer.truncate_asked, false),
                None if answer.outputs.is_empty() => {
                    self.command(Command::Truncate { item: answer.item, text: String::new() });
                }
                None => {}
            }
        }
        if answer.is_remembered() {
            self.idle.answered();
        }
        self.respond_to_waiting();
    }

    /// Ends what the answer says on the wire.
    fn end_said(&mut self, response: ResponseId, status: ItemStatus) {
        let Some(answer) = self.answers.iter().find(|answer| answer.response == response) else { return };
        let (Some(name), Some((index, _))) = (answer.part_name(), answer.said()) else { return };
        let (modality, text, part) = (answer.modality, answer.text().to_owned(), answer.part());
        match modality {
            Modality::Audio => {
                if answer.samples > 0 {
                    let event_id = self.new_event_id();
                    self.effects.push(Effect::SpeechEnd { event_id, response, name: name.clone() });
                }
                self.send(ServerEvent::AudioDone(name.clone()));
                self.send(ServerEvent::TranscriptDone(TranscriptDone { name: name.clone(), transcript: text }));
            }
            Modality::Text => self.send(ServerEvent::TextDone(TextDone { name: name.clone(), text })),
        }
        self.send(ServerEvent::ContentPartDone(ContentPart { name, part }));
        self.end_output(response, index, status);
    }

    /// Ends the function calls that are not complete yet on the wire.
    fn end_calls(&mut self, response: ResponseId, status: ItemStatus) {
        let Some(answer) = self.answers.iter().find(|answer| answer.response == response) else { return };
        let open = answer.outputs.iter().enumerate().filter(|(_, output)| output.status == ItemStatus::InProgress);
        let calls: Vec<_> = open
            .filter_map(|(index, output)| match &output.body {
                Body::Call { name, arguments, .. } => {
                    let (name, arguments) = (name.clone(), arguments.clone());
                    answer.call_name(index).map(|call| (index, ArgumentsDone { call, name, arguments }))
                }
                Body::Said(_) => None,
            })
            .collect();
        for (index, done) in calls {
            self.send(ServerEvent::ArgumentsDone(done));
            self.end_output(response, index, status);
        }
    }

    /// Ends one item of the answer on the wire.
    fn end_output(&mut self, response: ResponseId, index: usize, status: ItemStatus) {
        let rate = self.setup.model.output_rate;
        let Some(answer) = self.answers.iter_mut().find(|answer| answer.response == response) else { return };
        let Some(output) = answer.outputs.get_mut(index) else { return };
        output.status = status;
        let (id, said) = (output.id.clone(), matches!(output.body, Body::Said(_)));
        let (response_id, made_ms) = (answer.id.clone(), answer.made_ms(rate));
        let Some(item) = answer.outputs.get(index).map(|output| answer.output_item(output)) else { return };
        // A client may have deleted the item in between.
        self.history.change(&id, |entry| {
            entry.item = item.clone();
            entry.audio_ms = if said { made_ms } else { 0 };
        });
        self.send(ServerEvent::OutputItemDone(OutputItem { response_id, output_index: index as u32, item }));
        if let Some(placed) = self.history.placed(&id) {
            self.send(ServerEvent::ItemDone(placed));
        }
    }
}
