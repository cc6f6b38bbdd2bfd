//! `response.create` and `response.cancel`: validates requests; starts, queues and stops responses.

use std::time::Instant;

use repartee_engine_api::{AnswerForm, Command, EngineUsage, FinishReason, Respond, ResponseId, ResponseInput, Tool};
use repartee_media::tempo::Tempo;
use repartee_protocol::beta::renew_response;
use repartee_protocol::extension::EventExtension;
use repartee_protocol::merge::differences;
use repartee_protocol::rate_limits::RateLimitsUpdated;
use repartee_protocol::response::{ResponseCreate, ResponseCreateParams, ResponseEvent, ResponseOutput, StatusReason};
use repartee_protocol::session::{AudioFormat, MaxTokens, Modality};
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};
use serde_json::{Map, Value, json};

use super::config::MAX_INSTRUCTIONS;
use super::encodable::check_text;
use super::given_text::GivenText;
use super::paced_voice::PacedVoice;
use super::repeated_calls::RepeatedCall;
use super::response::{ActiveResponse, QueuedResponse, usage};
use super::{Delivery, Effect, RealtimeSession, tools};

/// Maximum size of a response's metadata, in bytes.
const MAX_METADATA: usize = 16 << 10;
/// Maximum number of active and queued out-of-band responses: the engine runs as many in parallel.
const MAX_OUT_OF_BAND: usize = 2;

/// Maximum number of queued responses, cancelled ones included.
const MAX_QUEUED: usize = 16;

/// Request fields that are supported, or have their own error or warning.
const SERVED: [&str; 9] = [
    "instructions",
    "max_output_tokens",
    "conversation",
    "input",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "metadata",
    "repartee",
];

/// Validated request for a response.
#[derive(Debug)]
pub(super) struct ResponseRequest {
    voice: String,
    format: AudioFormat,
    modality: Modality,
    max_tokens: MaxTokens,
    parallel_calls: bool,
    instructions: Option<String>,
    tools: Option<Vec<Tool>>,
    /// Form that `tool_choice` holds the answer to.
    form: AnswerForm,
    input: Option<Vec<ResponseInput>>,
    metadata: Option<Map<String, Value>>,
    /// True if the response adds no item to the conversation.
    out_of_band: bool,
    /// True if the response must not overlap with another exclusive one.
    exclusive: bool,
    /// True if the response speaks given text.
    reads: bool,
    /// Start of the caller's wait.
    since: Instant,
    /// Warnings about settings that are served differently.
    warnings: Vec<String>,
}

fn metadata_bytes(metadata: &Map<String, Value>) -> usize {
    metadata.iter().map(|(key, value)| key.len() + value.to_string().len()).sum()
}

pub(super) fn refuse<T>(param: &str, message: impl Into<String>) -> Result<T, ErrorBody> {
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(format!("response.{param}")))
}

impl RealtimeSession {
    pub(super) fn create_response(&mut self, mut create: ResponseCreate, now: Instant) -> Result<(), ErrorBody> {
        let renamed = create.response.as_mut().map(renew_response).unwrap_or_default();
        let mut request = self.validate(create.overrides()?, now)?;
        request.warnings.extend(renamed);
        if let Some(asked) = create.response {
            request.warnings.extend(self.unserved(asked, &request));
        }
        if !request.warnings.is_empty() {
            self.effects.push(Effect::Unsupported("a setting of response.create"));
        }
        if request.out_of_band {
            let active = self.responses.iter().filter(|response| !response.in_conversation()).count();
            if active + self.queued.iter().filter(|waiting| !waiting.in_conversation()).count() >= MAX_OUT_OF_BAND {
                let message = format!("at most {MAX_OUT_OF_BAND} out-of-band responses run at once: wait for one");
                return Err(ErrorBody::invalid(ErrorKind::ActiveResponse, message));
            }
        } else if self.has_active_response() {
            let id = self.active_response().map_or("", |response| &response.id);
            let message = format!(
                "Conversation already has an active response in progress: {id}. Wait until the response is \
                 finished before creating a new one."
            );
            return Err(ErrorBody::invalid(ErrorKind::ActiveResponse, message));
        } else if self.queued.len() >= MAX_QUEUED {
            let message = "too many cancelled responses wait for the active one to stop: try again when it has";
            return Err(ErrorBody::invalid(ErrorKind::ActiveResponse, message));
        }
        self.start_or_queue(request);
        Ok(())
    }

    /// Returns the active response of the conversation; `None` while it stops, because another can then be queued.
    fn active_response(&self) -> Option<&ActiveResponse> {
        self.responses.iter().find(|response| response.in_conversation() && response.stopping.is_none())
    }

    /// True if the conversation has an active or queued response; then `response.create` is rejected.
    pub(super) fn has_active_response(&self) -> bool {
        self.active_response().is_some() || self.has_queued_response()
    }

    /// True if a response of the conversation is queued.
    pub(super) fn has_queued_response(&self) -> bool {
        self.queued.iter().any(|waiting| waiting.in_conversation() && waiting.response.stopping.is_none())
    }

    /// Creates the request for a response to a turn, from the session configuration.
    pub(super) fn default_request(&self, since: Instant) -> ResponseRequest {
        ResponseRequest {
            voice: self.config.audio.output.voice.clone(),
            format: self.config.audio.output.format,
            modality: self.session_modality(),
            max_tokens: self.config.max_output_tokens,
            parallel_calls: self.config.parallel_tool_calls.unwrap_or(true),
            instructions: None,
            tools: None,
            form: tools::form(&self.config.tool_choice),
            input: None,
            metadata: None,
            out_of_band: false,
            exclusive: true,
            reads: false,
            since,
            warnings: Vec::new(),
        }
    }

    fn session_modality(&self) -> Modality {
        self.config.output_modalities.first().copied().unwrap_or(Modality::Audio)
    }

    fn validate(&mut self, overrides: ResponseCreateParams, since: Instant) -> Result<ResponseRequest, ErrorBody> {
        let out_of_band = match overrides.conversation.as_deref() {
            None | Some("auto") => false,
            Some("none") => true,
            Some(_) => return refuse("conversation", "a conversation is `auto` or `none`"),
        };
        if overrides.instructions.as_ref().is_some_and(|instructions| instructions.len() > MAX_INSTRUCTIONS) {
            return refuse("instructions", "these instructions are too long");
        }
        if let Some(instructions) = &overrides.instructions {
            check_text(instructions, &self.setup.model, || "response.instructions".into())?;
        }
        if overrides.metadata.as_ref().is_some_and(|metadata| metadata_bytes(metadata) > MAX_METADATA) {
            return refuse("metadata", "the metadata of a response holds at most 16 KiB");
        }
        if let Some(limit) = overrides.max_output_tokens {
            super::config::check_max_tokens(limit, "response.max_output_tokens")?;
        }
        if let Some(choice) = &overrides.tool_choice {
            let tools = overrides.tools.as_ref().unwrap_or(&self.config.tools);
            tools::check_choice(choice, tools, &self.setup.model, "response.tool_choice")?;
        }
        let reads = overrides.repartee.as_ref().is_some_and(|asked| asked.reads);
        if reads && !self.setup.model.given_text {
            return refuse("repartee.reads", format!("`{}` does not support given text", self.setup.model.name));
        }
        let mut warnings = Vec::new();
        let mut input = overrides.input.as_deref().map(|items| self.request_input(items, &mut warnings)).transpose()?;
        let mut tools = self.request_tools(&overrides)?;
        let mut form = tools::form(overrides.tool_choice.as_ref().unwrap_or(&self.config.tool_choice));
        // A request with tools or an input of its own knows what it asks for.
        if !out_of_band
            && input.is_none()
            && tools.is_none()
            && !self.engine_tools.is_empty()
            && let Some(repeated) = RepeatedCall::find(self.history.entries(), &self.engine_tools)
        {
            let name = repeated.name;
            warnings.push(format!(
                "tools: `{name}` was called twice with equal arguments: this response calls no function"
            ));
            (input, tools, form) = (Some(repeated.input), Some(Vec::new()), AnswerForm::Free);
        }
        let voice = self.request_voice(&overrides);
        let output = overrides.audio.and_then(|audio| audio.output).unwrap_or_default();
        let mut format = output.format.unwrap_or(self.config.audio.output.format);
        super::config::check_rate(format, "response.audio.output.format.rate")?;
        if out_of_band && format == AudioFormat::Opus {
            // Binary messages carry no response id.
            format = AudioFormat::default();
        }
        // Both modalities together mean audio, which includes a transcript.
        let modality = match overrides.output_modalities.as_deref() {
            Some(request) if request.contains(&Modality::Audio) && self.setup.model.audio_output => Modality::Audio,
            Some([_, ..]) => Modality::Text,
            _ => self.session_modality(),
        };
        if reads && modality == Modality::Text {
            return refuse("output_modalities", "a response with given text needs audio output");
        }
        Ok(ResponseRequest {
            voice,
            format,
            modality,
            max_tokens: overrides.max_output_tokens.unwrap_or(self.config.max_output_tokens),
            parallel_calls: overrides.parallel_tool_calls.or(self.config.parallel_tool_calls).unwrap_or(true),
            instructions: overrides.instructions,
            tools,
            form,
            input,
            metadata: overrides.metadata,
            out_of_band,
            // A WebRTC call has one audio track.
            exclusive: !out_of_band || (self.setup.delivery == Delivery::Paced && modality == Modality::Audio),
            reads,
            since,
            warnings,
        })
    }

    /// Returns a warning for each field of `asked` that is served differently.
    fn unserved(&self, mut asked: Value, request: &ResponseRequest) -> Vec<String> {
        let tools = asked.get("tools").and_then(Value::as_array);
        let left_out = tools.is_some_and(|tools| tools.iter().any(|tool| !tools::is_function(tool)));
        let mut warnings = Vec::new();
        if super::config::drops_tools(&asked, &self.setup.model) {
            warnings.push(tools::DROPPED.to_owned());
        } else if left_out {
            warnings.push("response.tools is served differently".to_owned());
        }
        let Some(fields) = asked.as_object_mut() else { return warnings };
        fields.retain(|field, _| !SERVED.contains(&field.as_str()));
        // A voice may be an object with its `id`.
        if let Some(voice) = asked.pointer_mut("/audio/output/voice")
            && let Some(id) = voice.get("id").cloned()
        {
            *voice = id;
        }
        let output = json!({"voice": request.voice, "format": request.format});
        let effective = json!({"output_modalities": [request.modality], "audio": {"output": output}, "prompt": null,
            "reasoning": null});
        warnings.extend(differences(&asked, &effective, "response"));
        warnings
    }

    /// Returns the requested voice if the model has it, else the session's voice.
    fn request_voice(&self, overrides: &ResponseCreateParams) -> String {
        let requested = overrides.audio.as_ref().and_then(|audio| audio.output.as_ref()?.voice.as_ref());
        let requested = requested.and_then(|voice| voice.as_str().or_else(|| voice.get("id")?.as_str()));
        requested
            .filter(|requested| self.setup.model.voices.iter().any(|voice| voice == requested))
            .unwrap_or(&self.config.audio.output.voice)
            .to_owned()
    }

    /// Returns the tools of a request; `None` to use the session's tools.
    fn request_tools(&self, overrides: &ResponseCreateParams) -> Result<Option<Vec<Tool>>, ErrorBody> {
        if overrides.tools.is_none() && overrides.tool_choice.is_none() {
            return Ok(None);
        }
        let functions = match &overrides.tools {
            Some(tools) => tools::functions(tools, "response.tools")?,
            None => tools::functions(&self.config.tools, "session.tools")?,
        };
        let chosen = tools::allowed(functions, overrides.tool_choice.as_ref().unwrap_or(&self.config.tool_choice));
        // Also `None` if the model does not support tools, or if neither the request nor the session has any.
        let told = self.setup.model.tools && (!chosen.is_empty() || !self.engine_tools.is_empty());
        Ok(told.then_some(chosen))
    }

    /// Starts a response, or queues it behind the active one.
    pub(super) fn start_or_queue(&mut self, request: ResponseRequest) {
        let since = request.since;
        let (mut response, respond) = self.build_response(request);
        let busy = !self.queued.is_empty() || self.responses.iter().any(|response| response.exclusive);
        if !response.exclusive || !busy {
            self.command(Command::Respond(respond));
            self.add_response(response, since);
            return;
        }
        if !response.in_conversation() {
            // The client needs the id to cancel it.
            self.announce_response(&mut response);
        }
        self.queued.push_back(QueuedResponse { response, respond, text: Vec::new(), since });
    }

    /// Starts queued responses until an exclusive one is active.
    pub(super) fn start_queued(&mut self) {
        while !self.responses.iter().any(|response| response.exclusive)
            && let Some(QueuedResponse { mut response, respond, text, since }) = self.queued.pop_front()
        {
            if response.stopping.is_some() {
                self.announce_response(&mut response);
                self.end_unstarted(&response);
                continue;
            }
            self.command(Command::Respond(respond));
            text.into_iter().for_each(|command| self.command(command));
            if response.in_conversation() {
                self.add_response(response, since);
            } else {
                self.responses.push(response);
            }
        }
    }

    /// Adds a response that was sent to the engine, and announces it to the client.
    pub(super) fn add_response(&mut self, mut response: ActiveResponse, since: Instant) {
        response.previous_item_id = self.history.last_id().unwrap_or("root").to_owned();
        if response.in_conversation() {
            self.effects.push(Effect::ResponseRequested { response: response.engine_id, since });
        }
        self.announce_response(&mut response);
        self.responses.push(response);
    }

    /// Sends `response.created` and `rate_limits.updated`.
    fn announce_response(&mut self, response: &mut ActiveResponse) {
        self.last_response = Some(response.id.clone());
        let repartee = EventExtension { warnings: std::mem::take(&mut response.warnings) };
        self.send(ServerEvent::ResponseCreated(ResponseEvent { response: response.to_wire(None), repartee }));
        self.send(ServerEvent::RateLimitsUpdated(RateLimitsUpdated::default()));
    }

    /// Creates a response and the engine command for it.
    pub(super) fn build_response(&mut self, request: ResponseRequest) -> (ActiveResponse, Respond) {
        let engine_id = self.number();
        let item = self.number();
        let paced = PacedVoice::find(&request.voice, self.config.audio.output.speed, &self.setup.model.voices);
        let response = ActiveResponse {
            engine_id,
            id: format!("resp_{}_{engine_id}", self.setup.stem),
            item,
            conversation_id: (!request.out_of_band).then(|| format!("conv_{}", self.setup.stem)),
            previous_item_id: String::new(),
            exclusive: request.exclusive,
            modality: request.modality,
            max_tokens: request.max_tokens,
            output: ResponseOutput { format: request.format, voice: request.voice.clone() },
            metadata: request.metadata,
            warnings: request.warnings,
            parallel_calls: request.parallel_calls,
            outputs: Vec::new(),
            samples: 0,
            speed: paced.tempo,
            tempo: Tempo::new(self.setup.model.output_rate, paced.tempo),
            stopping: None,
            stopped_at_call: false,
            truncate_at: None,
            truncations: Vec::new(),
            cancelled: false,
            deleted: false,
            given_text: request.reads.then(|| GivenText::new(request.since)),
        };
        self.had_given_text |= request.reads;
        let respond = Respond {
            // A model without voices has no default one.
            voice: Some(paced.voice).filter(|voice| !voice.is_empty()),
            audio: request.modality == Modality::Audio,
            input: request.input,
            out_of_band: request.out_of_band,
            instructions: request.instructions,
            // A response with given text calls no functions.
            tools: if request.reads && self.setup.model.tools { Some(Vec::new()) } else { request.tools },
            form: if request.reads { AnswerForm::Free } else { request.form },
            streamed: request.reads,
            max_tokens: request.max_tokens.count(),
            seed: self.setup.seed,
            ..Respond::new(engine_id, item)
        };
        (response, respond)
    }

    /// Serves `response.cancel`. Its outcome is the `response.done` of the response, so each response ends for one
    /// `response.cancel` alone.
    pub(super) fn cancel_response(&mut self, id: Option<&str>) -> Result<(), ErrorBody> {
        let meant = |response: &ActiveResponse| id.map_or(response.in_conversation(), |id| id == response.id);
        let of = |response: &&mut ActiveResponse| meant(response) && !response.cancelled;
        if let Some(active) = self.responses.iter_mut().filter(|response| response.stopping.is_none()).find(of) {
            active.cancelled = true;
            let engine_id = active.engine_id;
            self.stop_response(engine_id, StatusReason::ClientCancelled);
            return Ok(());
        }
        let waits = |waiting: &QueuedResponse| meant(&waiting.response) && waiting.response.stopping.is_none();
        if let Some(index) = self.queued.iter().position(waits) {
            self.stop_queued(index, StatusReason::ClientCancelled);
            return Ok(());
        }
        // A truncation, a deletion or the caller's voice has stopped it already.
        if let Some(stopping) = self.responses.iter_mut().find(of) {
            stopping.cancelled = true;
            return Ok(());
        }
        let message = "Cancellation failed: no active response found";
        Err(ErrorBody::invalid(ErrorKind::CancelNotActive, message))
    }

    /// Stops the queued responses of the conversation.
    pub(super) fn drop_queued(&mut self, reason: StatusReason) {
        let waits = |waiting: &QueuedResponse| waiting.in_conversation() && waiting.response.stopping.is_none();
        while let Some(index) = self.queued.iter().position(waits) {
            self.stop_queued(index, reason);
        }
    }

    /// Stops a queued response. One that was announced ends now; another one begins and ends on the wire in its turn, so that
    /// whoever requested it gets both, and no response is announced while another one is active.
    fn stop_queued(&mut self, index: usize, reason: StatusReason) {
        let Some(waiting) = self.queued.get_mut(index) else { return };
        waiting.response.stopping = Some(reason);
        if !waiting.in_conversation()
            && let Some(waiting) = self.queued.remove(index)
        {
            self.end_unstarted(&waiting.response);
        }
    }

    /// Ends a response that the engine has not begun.
    fn end_unstarted(&mut self, response: &ActiveResponse) {
        let details = response.status_details(FinishReason::Cancelled);
        let status = details.kind;
        let response = response.to_wire(Some((details, usage(&EngineUsage::default()))));
        self.send(ServerEvent::ResponseDone(ResponseEvent { response, repartee: EventExtension::default() }));
        self.effects.push(Effect::CountResponse(status));
    }

    /// Cancels a response, unless it is already stopping. Nothing more of it is sent; it ends when the engine confirms.
    pub(super) fn stop_response(&mut self, engine_id: ResponseId, reason: StatusReason) {
        let Some(response) = self.responses.iter_mut().find(|response| response.engine_id == engine_id) else { return };
        if response.stopping.is_none() {
            response.stopping = Some(reason);
            self.command(Command::Cancel { response: engine_id });
        }
    }
}
