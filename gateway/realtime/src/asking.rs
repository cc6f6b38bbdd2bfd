//! Asking for answers: what a client may ask for, and when it is begun.

use std::time::Instant;

use repartee_engine_api::{Command, Input as EngineInput, Respond, Tool};
use repartee_protocol::item::Item;
use repartee_protocol::response::{InputItem, Overrides, Reason, ResponseOutput, State};
use repartee_protocol::session::{AudioFormat, MaxTokens, Modality};
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};
use serde_json::{Map, Value};

use super::answer::Answer;
use super::config::MAX_INSTRUCTIONS;
use super::{Core, Delivery, Effect, tools};

/// The most that a response's metadata may hold, in bytes.
const MAX_METADATA: usize = 16 << 10;
/// The most items of an answer's own input.
const MAX_INPUT: usize = 1_024;
/// Answers outside of the conversation that may be made or wait at a time: as many as the engine makes beside the others.
const MAX_OUT_OF_BAND: usize = 2;

/// An answer that was asked for, checked and not begun.
#[derive(Debug)]
pub(super) struct Asked {
    voice: String,
    format: AudioFormat,
    modality: Modality,
    max_tokens: MaxTokens,
    instructions: Option<String>,
    tools: Option<Vec<Tool>>,
    input: Option<Vec<EngineInput>>,
    metadata: Option<Map<String, Value>>,
    /// It leaves nothing behind in the conversation.
    out_of_band: bool,
    /// No other answer can be spoken beside it.
    exclusive: bool,
    /// Since when the caller waits.
    since: Instant,
}

fn written_length(metadata: &Map<String, Value>) -> usize {
    metadata.iter().map(|(key, value)| key.len() + value.to_string().len()).sum()
}

fn refuse<T>(param: &str, message: impl Into<String>) -> Result<T, ErrorBody> {
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).at(format!("response.{param}")))
}

impl Core {
    pub(super) fn create_response(&mut self, overrides: Overrides, now: Instant) -> Result<(), ErrorBody> {
        let asked = self.check(overrides, now)?;
        if asked.out_of_band {
            let beside = self.answers.iter().filter(|answer| !answer.is_remembered()).count();
            if beside + self.waiting.iter().filter(|asked| asked.out_of_band).count() >= MAX_OUT_OF_BAND {
                let message = format!("{MAX_OUT_OF_BAND} out-of-band responses are being made: wait for one");
                return Err(ErrorBody::invalid(ErrorKind::ActiveResponse, message));
            }
        } else {
            // One that is being stopped makes room in a moment; one answer can wait for it.
            let active = self.answers.iter().find(|answer| answer.is_remembered() && answer.stopping.is_none());
            if active.is_some() || self.waiting.iter().any(|asked| !asked.out_of_band) {
                let id = active.map_or("", |answer| &answer.id);
                let message = format!(
                    "Conversation already has an active response in progress: {id}. Wait until the response is \
                     finished before creating a new one."
                );
                return Err(ErrorBody::invalid(ErrorKind::ActiveResponse, message));
            }
        }
        self.respond_when_free(asked);
        Ok(())
    }

    /// The answer to a turn, as the session is configured.
    pub(super) fn usual_answer(&self, since: Instant) -> Asked {
        Asked {
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

    fn check(&self, overrides: Overrides, since: Instant) -> Result<Asked, ErrorBody> {
        let out_of_band = match overrides.conversation.as_deref() {
            None | Some("auto") => false,
            Some("none") => true,
            Some(_) => return refuse("conversation", "a conversation is `auto` or `none`"),
        };
        if overrides.instructions.as_ref().is_some_and(|instructions| instructions.len() > MAX_INSTRUCTIONS) {
            return refuse("instructions", "these instructions are too long");
        }
        if overrides.metadata.as_ref().is_some_and(|metadata| written_length(metadata) > MAX_METADATA) {
            return refuse("metadata", "the metadata of a response holds at most 16 KiB");
        }
        let input = overrides.input.as_deref().map(|items| self.own_input(items)).transpose()?;
        let tools = self.own_tools(&overrides)?;
        let voice = self.voice(&overrides);
        let output = overrides.audio.and_then(|audio| audio.output).unwrap_or_default();
        let mut format = output.format.unwrap_or(self.config.audio.output.format);
        super::config::check_rate(format, "response.audio.output.format.rate")?;
        if out_of_band && format == AudioFormat::Opus {
            // Binary messages do not say whose they are.
            format = AudioFormat::default();
        }
        // Both together mean sound, which has its transcript anyway.
        let modality = match overrides.output_modalities.as_deref() {
            Some(asked) if asked.contains(&Modality::Audio) => Modality::Audio,
            Some([_, ..]) => Modality::Text,
            _ => self.session_modality(),
        };
        Ok(Asked {
            voice,
            format,
            modality,
            max_tokens: overrides.max_output_tokens.unwrap_or(self.config.max_output_tokens),
            instructions: overrides.instructions,
            tools,
            input,
            metadata: overrides.metadata,
            out_of_band,
            // A call over WebRTC has one voice.
            exclusive: !out_of_band || (self.setup.delivery == Delivery::Paced && modality == Modality::Audio),
            since,
        })
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

    /// An answer's own tools; `None` for those of the session.
    fn own_tools(&self, overrides: &Overrides) -> Result<Option<Vec<Tool>>, ErrorBody> {
        if overrides.tools.is_none() && overrides.tool_choice.is_none() {
            return Ok(None);
        }
        let functions = match &overrides.tools {
            Some(tools) => tools::functions(tools, "response.tools")?,
            None => tools::functions(&self.config.tools, "session.tools")?,
        };
        let chosen = tools::chosen(functions, overrides.tool_choice.as_ref().unwrap_or(&self.config.tool_choice));
        // A model that cannot call is not to be told so, nor a session without tools that there are none.
        let told = !self.toolless && (!chosen.is_empty() || !self.offered.is_empty());
        Ok(told.then_some(chosen))
    }

    fn own_input(&self, items: &[InputItem]) -> Result<Vec<EngineInput>, ErrorBody> {
        if items.len() > MAX_INPUT {
            return refuse("input", format!("an answer's input has at most {MAX_INPUT} items"));
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
            let contents = self.contents(&item, &at)?;
            inputs.extend(contents.into_iter().map(EngineInput::Content));
        }
        Ok(inputs)
    }

    /// Begins an answer now, or once the one being made has ended.
    pub(super) fn respond_when_free(&mut self, asked: Asked) {
        if asked.exclusive && (!self.waiting.is_empty() || self.answers.iter().any(|answer| answer.exclusive)) {
            self.waiting.push_back(asked);
        } else {
            self.respond(asked);
        }
    }

    /// Begins the answers that can be begun.
    pub(super) fn respond_to_waiting(&mut self) {
        while !self.answers.iter().any(|answer| answer.exclusive)
            && let Some(asked) = self.waiting.pop_front()
        {
            self.respond(asked);
        }
    }

    fn respond(&mut self, asked: Asked) {
        let since = asked.since;
        let (answer, respond) = self.compose(asked);
        self.command(Command::Respond(respond));
        self.begin(answer, since);
    }

    /// Tells the client of an answer that the engine was told of.
    pub(super) fn begin(&mut self, mut answer: Answer, since: Instant) {
        answer.follows = self.history.last_id().unwrap_or("root").to_owned();
        if answer.is_remembered() {
            self.effects.push(Effect::Asked { response: answer.response, since });
        }
        let created = answer.wire(None);
        self.answers.push(answer);
        self.send(ServerEvent::ResponseCreated(State { response: created }));
    }

    /// An answer and what the engine has to know of it.
    pub(super) fn compose(&mut self, asked: Asked) -> (Answer, Respond) {
        let response = self.number();
        let item = self.number();
        let answer = Answer {
            response,
            id: format!("resp_{}_{response}", self.setup.stem),
            item,
            conversation_id: (!asked.out_of_band).then(|| format!("conv_{}", self.setup.stem)),
            follows: String::new(),
            exclusive: asked.exclusive,
            modality: asked.modality,
            max_tokens: asked.max_tokens,
            output: ResponseOutput { format: asked.format, voice: asked.voice.clone() },
            metadata: asked.metadata,
            outputs: Vec::new(),
            samples: 0,
            stopping: None,
            truncate_at: None,
            truncate_asked: None,
            deleted: false,
        };
        let respond = Respond {
            voice: Some(asked.voice),
            audio: asked.modality == Modality::Audio,
            input: asked.input,
            out_of_band: asked.out_of_band,
            instructions: asked.instructions,
            tools: asked.tools,
            max_tokens: asked.max_tokens.count(),
            seed: self.setup.seed,
            ..Respond::new(response, item)
        };
        (answer, respond)
    }

    pub(super) fn cancel_response(&mut self, id: Option<&str>) -> Result<(), ErrorBody> {
        let active = self
            .answers
            .iter()
            .find(|answer| answer.stopping.is_none() && id.map_or(answer.is_remembered(), |id| id == answer.id));
        let active = active.map(|answer| answer.response);
        // An answer that still waits is taken back without a trace: the client has not heard of it.
        let waited = self.waiting.len();
        if id.is_none() {
            self.waiting.retain(|asked| asked.out_of_band);
        }
        if active.is_none() && waited == self.waiting.len() {
            let message = "Cancellation failed: no active response found";
            return Err(ErrorBody::invalid(ErrorKind::CancelNotActive, message));
        }
        if let Some(response) = active {
            self.stop_answer(response, Reason::ClientCancelled);
        }
        Ok(())
    }

    /// Stops an answer being made, if it is not being stopped already. Nothing more of it is sent; it ends once the
    /// engine has stopped.
    pub(super) fn stop_answer(&mut self, response: u64, reason: Reason) {
        let Some(answer) = self.answers.iter_mut().find(|answer| answer.response == response) else { return };
        if answer.stopping.is_none() {
            answer.stopping = Some(reason);
            self.command(Command::Cancel { response });
        }
    }
}

impl Asked {
    /// Whether it is an answer of the conversation.
    pub fn is_of_the_conversation(&self) -> bool {
        !self.out_of_band
    }
}
