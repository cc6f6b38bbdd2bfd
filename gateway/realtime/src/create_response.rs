//! `response.create` and `response.cancel`: validates requests, starts or queues responses, and stops them.

use std::time::Instant;

use repartee_engine_api::{Command, Input as EngineInput, Respond, ResponseId, Tool};
use repartee_protocol::item::Item;
use repartee_protocol::response::{InputItem, Overrides, Reason, ResponseOutput, State};
use repartee_protocol::session::{AudioFormat, MaxTokens, Modality};
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};
use serde_json::{Map, Value};

use super::config::MAX_INSTRUCTIONS;
use super::response::Response;
use super::{Core, Delivery, Effect, tools};

/// The longest metadata of a response, in bytes.
const MAX_METADATA: usize = 16 << 10;
/// Most items of a request's own input.
const MAX_INPUT: usize = 1_024;
/// Most out-of-band responses that may be active or queued: as many as the engine runs in parallel.
const MAX_OUT_OF_BAND: usize = 2;

/// A validated request for a response.
#[derive(Debug)]
pub(super) struct ResponseRequest {
    voice: String,
    format: AudioFormat,
    modality: Modality,
    max_tokens: MaxTokens,
    instructions: Option<String>,
    tools: Option<Vec<Tool>>,
    input: Option<Vec<EngineInput>>,
    metadata: Option<Map<String, Value>>,
    /// Adds no item to the conversation.
    pub out_of_band: bool,
    /// Whether it must not overlap with another exclusive response.
    exclusive: bool,
    /// When the caller began to wait.
    since: Instant,
}

fn metadata_bytes(metadata: &Map<String, Value>) -> usize {
    metadata.iter().map(|(key, value)| key.len() + value.to_string().len()).sum()
}

fn refuse<T>(param: &str, message: impl Into<String>) -> Result<T, ErrorBody> {
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).at(format!("response.{param}")))
}

impl Core {
    pub(super) fn create_response(&mut self, overrides: Overrides, now: Instant) -> Result<(), ErrorBody> {
        let request = self.validate(overrides, now)?;
        if request.out_of_band {
            let active = self.responses.iter().filter(|response| !response.in_conversation()).count();
            if active + self.queued.iter().filter(|request| request.out_of_band).count() >= MAX_OUT_OF_BAND {
                let message = format!("{MAX_OUT_OF_BAND} out-of-band responses are being made: wait for one");
                return Err(ErrorBody::invalid(ErrorKind::ActiveResponse, message));
            }
        } else {
            // One response can be queued behind one that is being stopped.
            let active =
                self.responses.iter().find(|response| response.in_conversation() && response.stopping.is_none());
            if active.is_some() || self.queued.iter().any(|request| !request.out_of_band) {
                let id = active.map_or("", |response| &response.id);
                let message = format!(
                    "Conversation already has an active response in progress: {id}. Wait until the response is \
                     finished before creating a new one."
                );
                return Err(ErrorBody::invalid(ErrorKind::ActiveResponse, message));
            }
        }
        self.start_or_queue(request);
        Ok(())
    }

    /// The request for a response to a turn, as the session is configured.
    pub(super) fn default_request(&self, since: Instant) -> ResponseRequest {
        ResponseRequest {
            voice: self.config.audio.output.voice.clone(),
            format: self.config.audio.output.format,
            modality: self.session_modality(),
            max_tokens: self.config.max_output_tokens,
            instructions: None,
            tools: None,
            input: None,
            metadata: None,
            out_of_band: false,
            exclusive: true,
            since,
        }
    }

    fn session_modality(&self) -> Modality {
        self.config.output_modalities.first().copied().unwrap_or(Modality::Audio)
    }

    fn validate(&self, overrides: Overrides, since: Instant) -> Result<ResponseRequest, ErrorBody> {
        let out_of_band = match overrides.conversation.as_deref() {
            None | Some("auto") => false,
            Some("none") => true,
            Some(_) => return refuse("conversation", "a conversation is `auto` or `none`"),
        };
        if overrides.instructions.as_ref().is_some_and(|instructions| instructions.len() > MAX_INSTRUCTIONS) {
            return refuse("instructions", "these instructions are too long");
        }
        if overrides.metadata.as_ref().is_some_and(|metadata| metadata_bytes(metadata) > MAX_METADATA) {
            return refuse("metadata", "the metadata of a response holds at most 16 KiB");
        }
        let input = overrides.input.as_deref().map(|items| self.request_input(items)).transpose()?;
        let tools = self.request_tools(&overrides)?;
        let voice = self.request_voice(&overrides);
        let output = overrides.audio.and_then(|audio| audio.output).unwrap_or_default();
        let mut format = output.format.unwrap_or(self.config.audio.output.format);
        super::config::check_rate(format, "response.audio.output.format.rate")?;
        if out_of_band && format == AudioFormat::Opus {
            // Binary messages carry no response id.
            format = AudioFormat::default();
        }
        // Both together mean audio, which has its transcript anyway.
        let modality = match overrides.output_modalities.as_deref() {
            Some(request) if request.contains(&Modality::Audio) => Modality::Audio,
            Some([_, ..]) => Modality::Text,
            _ => self.session_modality(),
        };
        Ok(ResponseRequest {
            voice,
            format,
            modality,
            max_tokens: overrides.max_output_tokens.unwrap_or(self.config.max_output_tokens),
            instructions: overrides.instructions,
            tools,
            input,
            metadata: overrides.metadata,
            out_of_band,
            // A WebRTC call has one audio track.
            exclusive: !out_of_band || (self.setup.delivery == Delivery::Paced && modality == Modality::Audio),
            since,
        })
    }

    /// The voice that a request names, if the model has it, else the session's.
    fn request_voice(&self, overrides: &Overrides) -> String {
        let requested = overrides.audio.as_ref().and_then(|audio| audio.output.as_ref()?.voice.as_ref());
        let requested = requested.and_then(|voice| voice.as_str().or_else(|| voice.get("id")?.as_str()));
        requested
            .filter(|requested| self.setup.model.voices.iter().any(|voice| voice == requested))
            .unwrap_or(&self.config.audio.output.voice)
            .to_owned()
    }

    /// A request's own tools; `None` for those of the session.
    fn request_tools(&self, overrides: &Overrides) -> Result<Option<Vec<Tool>>, ErrorBody> {
        if overrides.tools.is_none() && overrides.tool_choice.is_none() {
            return Ok(None);
        }
        let functions = match &overrides.tools {
            Some(tools) => tools::functions(tools, "response.tools")?,
            None => tools::functions(&self.config.tools, "session.tools")?,
        };
        let chosen = tools::chosen(functions, overrides.tool_choice.as_ref().unwrap_or(&self.config.tool_choice));
        // `None` also for a model without tools, and where neither the request nor the session has any.
        let told = self.setup.model.tools && (!chosen.is_empty() || !self.engine_tools.is_empty());
        Ok(told.then_some(chosen))
    }

    fn request_input(&self, items: &[InputItem]) -> Result<Vec<EngineInput>, ErrorBody> {
        if items.len() > MAX_INPUT {
            return refuse("input", format!("a response's input has at most {MAX_INPUT} items"));
        }
        let mut inputs = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let at = format!("response.input[{index}]");
            let item = match item {
                InputItem::ItemReference { id } => {
                    let Some(entry) = self.history.find(id) else {
                        return refuse(&format!("input[{index}].id"), "there is no item with this id");
                    };
                    inputs.extend(entry.engine.iter().copied().map(EngineInput::Item));
                    continue;
                }
                InputItem::Message(message) => Item::Message(message.clone()),
                InputItem::FunctionCall(call) => Item::FunctionCall(call.clone()),
                InputItem::FunctionCallOutput(output) => Item::FunctionCallOutput(output.clone()),
            };
            let contents = self.engine_content(&item, &at)?;
            inputs.extend(contents.into_iter().map(EngineInput::Content));
        }
        Ok(inputs)
    }

    /// Starts a response now, or queues it behind the active one.
    pub(super) fn start_or_queue(&mut self, request: ResponseRequest) {
        if request.exclusive && (!self.queued.is_empty() || self.responses.iter().any(|response| response.exclusive)) {
            self.queued.push_back(request);
        } else {
            self.start(request);
        }
    }

    /// Starts queued responses until one of them is exclusive.
    pub(super) fn start_queued(&mut self) {
        while !self.responses.iter().any(|response| response.exclusive)
            && let Some(request) = self.queued.pop_front()
        {
            self.start(request);
        }
    }

    fn start(&mut self, request: ResponseRequest) {
        let since = request.since;
        let (response, respond) = self.build_response(request);
        self.command(Command::Respond(respond));
        self.add_response(response, since);
    }

    /// Adds a response that the engine has started, and tells the client.
    pub(super) fn add_response(&mut self, mut response: Response, since: Instant) {
        response.previous_item_id = self.history.last_id().unwrap_or("root").to_owned();
        if response.in_conversation() {
            self.effects.push(Effect::ResponseRequested { response: response.engine_id, since });
        }
        let created = response.to_wire(None);
        self.responses.push(response);
        self.send(ServerEvent::ResponseCreated(State { response: created }));
    }

    /// A response, and the engine command's parameters for it.
    pub(super) fn build_response(&mut self, request: ResponseRequest) -> (Response, Respond) {
        let engine_id = self.number();
        let item = self.number();
        let response = Response {
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
            outputs: Vec::new(),
            samples: 0,
            stopping: None,
            truncate_at: None,
            truncate_requested: None,
            deleted: false,
        };
        let respond = Respond {
            voice: Some(request.voice),
            audio: request.modality == Modality::Audio,
            input: request.input,
            out_of_band: request.out_of_band,
            instructions: request.instructions,
            tools: request.tools,
            max_tokens: request.max_tokens.count(),
            seed: self.setup.seed,
            ..Respond::new(engine_id, item)
        };
        (response, respond)
    }

    pub(super) fn cancel_response(&mut self, id: Option<&str>) -> Result<(), ErrorBody> {
        let active = self.responses.iter().find(|response| {
            response.stopping.is_none() && id.map_or(response.in_conversation(), |id| id == response.id)
        });
        let active = active.map(|response| response.engine_id);
        // The client has not been told of a queued response: it is dropped without an event.
        let queued = self.queued.len();
        if id.is_none() {
            self.queued.retain(|request| request.out_of_band);
        }
        if active.is_none() && queued == self.queued.len() {
            let message = "Cancellation failed: no active response found";
            return Err(ErrorBody::invalid(ErrorKind::CancelNotActive, message));
        }
        if let Some(response) = active {
            self.stop_response(response, Reason::ClientCancelled);
        }
        Ok(())
    }

    /// Stops a response, unless it is being stopped already. Nothing more of it is sent; it ends once the engine confirms.
    pub(super) fn stop_response(&mut self, engine_id: ResponseId, reason: Reason) {
        let Some(response) = self.responses.iter_mut().find(|response| response.engine_id == engine_id) else { return };
        if response.stopping.is_none() {
            response.stopping = Some(reason);
            self.command(Command::Cancel { response: engine_id });
        }
    }
}
