//! Requested responses: in-band ones wait for the one before them, out-of-band ones have slots of their own.

use std::collections::VecDeque;
use std::time::Instant;

use repartee_engine_api::{
    AnswerForm, EngineUsage, Event, FinishReason, InsertAt, ItemId, MessageContent, Respond, ResponseId, ResponseInput,
    SessionError,
};

use super::limits::{MAX_BACKGROUND, MAX_OUT_OF_BAND, MAX_WAITING};
use super::messages::{check_length, system, text_message};
use super::out_of_band::OutOfBandResponse;
use super::pending_response::{InputPart, PendingResponse};
use super::streamed_text::StreamedText;
use super::{ModelContext, Session};
use crate::audio_input::WindowTarget;
use crate::elements::{Message, MessageKind};

/// Slots reserved for out-of-band responses that are not in the background.
const RESERVED_SLOTS: usize = 1;

impl Session {
    /// Requests a response. An in-band one gets its item in the history at once, so that later items follow it.
    pub(super) fn respond(&mut self, request: Respond, model: &mut ModelContext<'_>) -> Result<(), SessionError> {
        self.request(request, None, model)
    }

    /// Requests a response, or with `transcript_of` the transcript of this item.
    pub(super) fn request(
        &mut self,
        mut request: Respond,
        transcript_of: Option<ItemId>,
        model: &mut ModelContext<'_>,
    ) -> Result<(), SessionError> {
        if model.stages.is_empty() {
            return Err(SessionError::NoResponses);
        }
        if let Some(voice) = request.voice.as_ref().filter(|voice| !model.voices.contains(voice)) {
            return Err(SessionError::UnknownVoice { voice: voice.clone(), known: model.voices.join(", ") });
        }
        if self.is_live(request.response) {
            let allowed = "an id that no unfinished response has";
            return Err(SessionError::bad("response", request.response, allowed));
        }
        if request.audio && !model.audio_output {
            return Err(SessionError::NoAudioOutput);
        }
        if request.streamed && (!model.audio_output || model.template.streamed(&[]).is_none()) {
            return Err(SessionError::bad("streamed", true, "false: this model takes no text that streams in"));
        }
        if self.pending_responses.len() >= MAX_WAITING {
            return Err(SessionError::TooManyResponses { limit: MAX_WAITING });
        }
        let system = match (&request.instructions, &request.tools) {
            (None, None) => self.system.clone(),
            (instructions, tools) => {
                let instructions = instructions.as_ref().unwrap_or(&self.instructions);
                system(instructions, tools.as_deref().unwrap_or(&self.tools), model)?
            }
        };
        let tools = request.tools.as_ref().map_or_else(|| self.tools.clone(), |tools| tools[..].into());
        if request.audio && matches!(request.form, AnswerForm::JsonObject | AnswerForm::JsonSchema(_)) {
            return Err(SessionError::BadForm("JSON is not spoken: ask for a text response".to_owned()));
        }
        let form = match request.streamed {
            true => None,
            false => model.forms.request(&request.form, &tools, model.template)?,
        };
        let (out_of_band, background) = (request.out_of_band, request.background);
        if background && !out_of_band {
            return Err(SessionError::bad("background", true, "false, unless it is out-of-band"));
        }
        if out_of_band {
            let (limit, kept) = if background { (MAX_BACKGROUND, RESERVED_SLOTS) } else { (MAX_OUT_OF_BAND, 0) };
            if self.out_of_band.iter().filter(|other| other.is_background() == background).count() >= limit {
                return Err(SessionError::TooManyResponses { limit });
            }
            if model.free_slots.len() <= kept {
                return Err(SessionError::OutOfMemory);
            }
        } else {
            self.history.insert(request.item, InsertAt::End, Message::text(MessageKind::Assistant, Vec::new()))?;
        }
        let input = match request.input.take().map(|parts| self.own_input(parts, model)).transpose() {
            Ok(input) => input,
            Err(error) => {
                if !out_of_band {
                    self.history.remove(request.item);
                }
                return Err(error);
            }
        };
        let streamed = request.streamed.then(|| StreamedText::new(model.tokenizer, model.now));
        let pending =
            PendingResponse { request, transcript_of, system, tools, input, streamed, form, accepted: model.now };
        self.changed = true;
        if !out_of_band {
            self.pending_responses.push_back(pending);
        } else if let Some(slot) = model.free_slots.pop() {
            self.add_out_of_band(slot, pending);
        }
        Ok(())
    }

    fn own_input(
        &mut self,
        parts: Vec<ResponseInput>,
        model: &ModelContext<'_>,
    ) -> Result<Vec<InputPart>, SessionError> {
        let mut audio_parts = Vec::new();
        let mut own = Vec::with_capacity(parts.len());
        for part in parts {
            own.push(match part {
                ResponseInput::Item(item) if self.history.contains(item) => InputPart::Item(item),
                ResponseInput::Item(item) => return Err(SessionError::UnknownItem(item)),
                ResponseInput::Content(MessageContent::Audio(samples)) => {
                    check_length(&samples, model)?;
                    self.input_audios += 1;
                    audio_parts.push((self.input_audios, samples));
                    InputPart::Own(Some(self.input_audios), Message::audio(Vec::new()))
                }
                ResponseInput::Content(content) => InputPart::Own(None, text_message(content, model)?),
            });
        }
        // Last, so that a refused input leaves nothing to encode.
        for (audio, samples) in audio_parts {
            self.add_sound(WindowTarget::Input(audio), samples, model)?;
        }
        Ok(own)
    }

    /// Message of the audio input with number `audio`, of a pending response.
    pub(super) fn input_message(&mut self, audio: u64) -> Option<&mut Message> {
        let out_of_band = self.out_of_band.iter_mut().filter_map(|other| other.waiting.as_mut());
        let mut parts =
            self.pending_responses.iter_mut().chain(out_of_band).filter_map(|pending| pending.input.as_mut()).flatten();
        parts.find_map(|part| match part {
            InputPart::Own(Some(number), message) if *number == audio => Some(message),
            InputPart::Own(..) | InputPart::Item(_) => None,
        })
    }

    /// Cancels a response. Returns its slot if the stages must abort it.
    pub(super) fn cancel(&mut self, response: ResponseId, model: &mut ModelContext<'_>) -> Option<usize> {
        if self.speculation.as_ref().is_some_and(|speculation| speculation.response == response) {
            // A cancelled speculation leaves no item.
            return self.abort_speculation();
        }
        if self.active.as_ref().is_some_and(|active| active.request.response == response) {
            return Some(self.slot);
        }
        if let Some(found) = self.out_of_band.iter().find(|other| other.response() == Some(response)) {
            if found.active.is_some() {
                return Some(found.slot);
            }
            model.free_slots.push(found.slot);
            if let Some(at) = self.out_of_band.iter().position(|other| other.response() == Some(response)) {
                let gone = self.out_of_band.remove(at);
                gone.waiting.iter().for_each(|pending| self.drop_inputs(pending));
            }
            self.emit(Event::SegmentFinished {
                response,
                reason: FinishReason::Cancelled,
                usage: EngineUsage::default(),
            });
        }
        self.withdraw(|request| request.response == response);
        self.cancel_followed(|followed| followed.response == response);
        None
    }

    /// Drops a response's own audio that no recogniser has heard yet.
    fn drop_inputs(&mut self, pending: &PendingResponse) {
        for part in pending.input.iter().flatten() {
            if let InputPart::Own(Some(audio), _) = part {
                self.recognitions.remove(WindowTarget::Input(*audio));
            }
        }
    }

    /// Cancels pending in-band responses: removes them and their items, and reports them as cancelled.
    pub(super) fn withdraw(&mut self, which: impl Fn(&Respond) -> bool) {
        let (gone, stay): (VecDeque<_>, VecDeque<_>) =
            self.pending_responses.drain(..).partition(|pending| which(&pending.request));
        self.pending_responses = stay;
        for pending in gone {
            self.drop_inputs(&pending);
            let Respond { response, item, .. } = pending.request;
            self.history.remove(item);
            self.changed = true;
            self.emit(Event::SegmentFinished {
                response,
                reason: FinishReason::Cancelled,
                usage: EngineUsage::default(),
            });
        }
    }

    pub(super) fn is_live(&self, response: ResponseId) -> bool {
        self.active.as_ref().is_some_and(|active| active.request.response == response)
            || self.pending_responses.iter().any(|pending| pending.request.response == response)
            || self.out_of_band.iter().any(|other| other.response() == Some(response))
            || self.followed.iter().any(|followed| followed.response == response)
    }

    /// True if an item is a response that is not complete.
    pub(super) fn is_unfinished(&self, item: ItemId) -> bool {
        self.active.as_ref().is_some_and(|active| active.request.item == item)
            || self.pending_responses.iter().any(|pending| pending.request.item == item)
    }

    /// Request time of the oldest pending response that can be next, background ones excluded.
    pub fn waiting_since(&self) -> Option<Instant> {
        let out_of_band = self.out_of_band.iter().filter_map(|other| other.waiting.as_ref());
        let next = self.pending_responses.front().filter(|_| self.active.is_none());
        let waited_for = |pending: &&PendingResponse| !pending.request.background;
        next.into_iter().chain(out_of_band).filter(waited_for).map(|pending| pending.accepted).min()
    }

    /// Slots whose next response can begin: its audio input is encoded and the response before it is complete.
    pub fn startable(&self) -> Vec<usize> {
        let encoded = !self.unencoded().any(|target| match target {
            WindowTarget::Open => self.speculation.is_some(),
            WindowTarget::Item(_) => true,
            WindowTarget::Input(_) => false,
        });
        let mut slots = Vec::new();
        // Responses after a speculation wait for its commit or abort.
        let decided = |pending: &PendingResponse| {
            self.speculation.as_ref().is_none_or(|speculation| speculation.response == pending.request.response)
        };
        if let Some(pending) = self.pending_responses.front()
            && self.active.is_none()
            && encoded
            && decided(pending)
            && self.has_input(pending)
            && pending.has_form()
        {
            slots.push(self.slot);
        }
        let ready = |pending: &PendingResponse| encoded && self.has_input(pending) && pending.has_form();
        let out_of_band = self.out_of_band.iter().filter(|other| other.waiting.as_ref().is_some_and(ready));
        slots.extend(out_of_band.map(|other| other.slot));
        slots
    }

    /// Error of the form of the next response in `slot`, which was read.
    pub fn form_error(&self, slot: usize) -> Option<SessionError> {
        let pending = match slot == self.slot {
            true => self.pending_responses.front(),
            false => self.out_of_band.iter().find(|other| other.slot == slot)?.waiting.as_ref(),
        };
        pending?.form.as_ref()?.get()?.as_ref().err().cloned()
    }

    fn has_input(&self, pending: &PendingResponse) -> bool {
        let mut audio = pending.input.iter().flatten().filter_map(|part| match part {
            InputPart::Own(audio, _) => *audio,
            InputPart::Item(_) => None,
        });
        audio.all(|audio| self.unencoded().all(|target| target != WindowTarget::Input(audio)))
    }

    /// Slots of the session's out-of-band responses.
    pub fn out_of_band_slots(&self) -> Vec<usize> {
        self.out_of_band.iter().map(|response| response.slot).collect()
    }

    /// Adds a requested response in `slot`.
    pub(super) fn add_out_of_band(&mut self, slot: usize, pending: PendingResponse) {
        self.out_of_band.push(OutOfBandResponse { slot, waiting: Some(pending), active: None });
    }
}
