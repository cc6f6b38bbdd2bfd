//! Parsing of a completion request. Stock clients send many fields: unsupported but harmless ones are ignored with a
//! warning, and only the others are errors.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_engine_api::{AnswerForm, Command, InsertAt, MessageContent, ModelInfo, Respond, Role, Sampling};
use repartee_media::sound_file;
use repartee_protocol::fields::optional_integer;
use repartee_protocol::json::read_body;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::demands;
use super::functions;
use super::messages::{Call, CalledFunction, ContentPart, Message, content_parts};
use crate::long_work::WorkPermit;

/// Maximum duration of the audio of one request, all messages together.
const MAX_AUDIO: Duration = Duration::from_secs(600);
/// Duration of one submitted slice, in seconds.
const SLICE_S: usize = 1;
/// Maximum number of warnings of one request.
const MAX_WARNINGS: usize = 32;

#[derive(Debug, Deserialize)]
struct Request {
    #[serde(default)]
    model: Option<String>,
    messages: Vec<Message>,
    #[serde(default)]
    modalities: Option<Vec<Modality>>,
    #[serde(default)]
    audio: Option<AudioOptions>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    temperature: Option<f32>,
    #[serde(default)]
    top_p: Option<f32>,
    #[serde(default, deserialize_with = "optional_integer")]
    max_tokens: Option<u32>,
    #[serde(default, deserialize_with = "optional_integer")]
    max_completion_tokens: Option<u32>,
    #[serde(default, deserialize_with = "optional_integer")]
    seed: Option<i64>,
    #[serde(default, deserialize_with = "optional_integer")]
    n: Option<u32>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    response_format: Option<Value>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Modality {
    Text,
    Audio,
}

#[derive(Debug, Deserialize)]
struct AudioOptions {
    #[serde(default)]
    voice: Option<Value>,
    #[serde(default)]
    format: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// Audio format of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletionFormat {
    /// Complete wav file at the model's output rate.
    Wav,
    /// 16-bit little-endian samples at 24 kHz.
    Pcm16,
}

/// Parsed request: commands for the engine and options of the response.
#[derive(Debug)]
pub(super) struct CompletionPlan {
    /// Commands for the engine, in order.
    pub commands: Vec<Command>,
    /// Format of the audio; `None` for text only.
    pub audio: Option<CompletionFormat>,
    /// Duration of the audio.
    pub sound: Duration,
    /// True to stream the response.
    pub stream: bool,
    /// True if the answer has one call of a function at most.
    pub one_call: bool,
    /// True if a stream ends with the usage.
    pub include_usage: bool,
    /// Differences between the request and the response.
    pub warnings: Vec<String>,
}

fn refuse<T>(param: impl Into<String>, message: impl Into<String>) -> Result<T, ErrorBody> {
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param))
}

impl CompletionPlan {
    /// Parses a request and decodes all of its audio, in pieces. The result of abandoned work is of no use.
    pub fn read(body: &[u8], info: &ModelInfo, permit: &mut WorkPermit) -> Result<Self, ErrorBody> {
        let request: Request = read_body(body)?;
        let mut plan = Self {
            commands: Vec::new(),
            audio: None,
            sound: Duration::ZERO,
            stream: request.stream.unwrap_or(false),
            include_usage: request.stream_options.as_ref().is_some_and(|options| options.include_usage == Some(true)),
            one_call: request.parallel_tool_calls == Some(false),
            warnings: Vec::new(),
        };
        if let Some(model) = request.model.as_ref().filter(|model| **model != info.name && model.len() <= 64) {
            plan.warn(format!("model: `{model}` is served as `{}`", info.name));
        }
        for (field, value) in &request.rest {
            if !value.is_null() && field.len() <= 64 {
                plan.warn(format!("{field} is not known here and was ignored"));
            }
        }
        if request.n.is_some_and(|n| n != 1) {
            return refuse("n", "n has to be 1: the server gives one answer");
        }
        let tools =
            functions::offered(request.tools.as_deref().unwrap_or_default(), request.tool_choice.as_ref(), info)?;
        if tools.is_dropped {
            plan.warn("tools dropped: this model calls no functions".to_owned());
        }
        let form = match tools.form {
            AnswerForm::Free => demands::form(request.response_format.as_ref(), info)?,
            forced => forced,
        };
        plan.audio = audio_format(&request, plan.stream, info.audio_output)?;
        let sampling = sampling(&request)?;
        let voice = plan.voice(request.audio.as_ref(), info)?;
        let items = plan.add_messages(request.messages, info, permit)?;
        plan.commands.push(Command::Respond(Respond {
            voice,
            audio: plan.audio.is_some(),
            form,
            tools: (!tools.functions.is_empty()).then_some(tools.functions),
            max_tokens: request.max_completion_tokens.or(request.max_tokens),
            sampling,
            seed: request.seed.unwrap_or(0).cast_unsigned(),
            ..Respond::new(1, items + 1)
        }));
        Ok(plan)
    }

    fn warn(&mut self, sentence: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(sentence);
        }
    }

    fn voice(&mut self, wanted: Option<&AudioOptions>, info: &ModelInfo) -> Result<Option<String>, ErrorBody> {
        let Some(voice) = wanted.and_then(|wanted| wanted.voice.as_ref()) else { return Ok(None) };
        let Some(name) = voice.as_str().or_else(|| voice.get("id")?.as_str()) else {
            return refuse("audio.voice", "a voice is a name, or an object with its `id`");
        };
        if info.voices.iter().any(|voice| voice == name) {
            return Ok(Some(name.to_owned()));
        }
        if name.len() <= 64 {
            self.warn(format!("audio.voice: `{name}` is served as `{}`", info.default_voice));
        }
        Ok(None)
    }

    /// Adds an item at the end of the conversation.
    fn insert(&mut self, item: &mut u64, content: MessageContent) {
        *item += 1;
        self.commands.push(Command::Insert { item: *item, place: InsertAt::End, content });
    }

    /// Adds the conversation as commands; returns the number of items.
    fn add_messages(
        &mut self,
        messages: Vec<Message>,
        info: &ModelInfo,
        permit: &mut WorkPermit,
    ) -> Result<u64, ErrorBody> {
        if !messages.iter().any(|message| matches!(message, Message::User { .. })) {
            return refuse("messages", "there is nothing to answer: send a user message");
        }
        // What no prompt has room for is not decoded, nor encoded.
        let most = info.hearing.longest.map_or(MAX_AUDIO, |longest| MAX_AUDIO.min(longest));
        let (mut item, mut left) = (0, most);
        let mut instructions: Vec<String> = Vec::new();
        let mut called: Vec<String> = Vec::new();
        for (index, message) in messages.into_iter().enumerate() {
            let at = format!("messages[{index}].content");
            let (role, content) = match message {
                Message::System { content } => (Role::System, content),
                Message::User { content } => (Role::User, content),
                Message::Tool { call_id, content } => {
                    if !called.contains(&call_id) {
                        let field = format!("messages[{index}].tool_call_id");
                        return refuse(field, "no message of the assistant before it has a call of this id");
                    }
                    let mut output = String::new();
                    for part in content_parts(content, &at)? {
                        let ContentPart::Text(text) = part else { return refuse(at, "a result is text") };
                        output.push_str(&text);
                    }
                    self.insert(&mut item, MessageContent::ToolResult(output));
                    continue;
                }
                Message::Assistant { content, audio, calls } => {
                    if audio.is_some_and(|audio| !audio.is_null()) {
                        self.warn(format!("messages[{index}].audio: earlier audio is not kept, only text is used"));
                    }
                    // Calls stand behind the text of their message.
                    for part in content.map_or(Ok(Vec::new()), |content| content_parts(content, &at))? {
                        let ContentPart::Text(text) = part else {
                            return refuse(at, "only user messages may hold audio");
                        };
                        self.insert(&mut item, MessageContent::Text { role: Role::Assistant, text });
                    }
                    for Call { id, function: CalledFunction { name, arguments } } in calls {
                        called.push(id);
                        self.insert(&mut item, MessageContent::ToolCall { name, arguments });
                    }
                    continue;
                }
            };
            for piece in content_parts(content, &at)? {
                match piece {
                    ContentPart::Text(text) if role == Role::System && item == 0 => instructions.push(text),
                    ContentPart::Text(text) => {
                        item += 1;
                        self.commands.push(Command::text(item, role, text));
                    }
                    ContentPart::Audio { .. } if role != Role::User => {
                        return refuse(at, "only user messages may hold audio");
                    }
                    ContentPart::Audio { data, at } => {
                        let samples = decode(&data, &at, (info.input_rate, left), permit)?;
                        left =
                            left.saturating_sub(Duration::from_secs(samples.len() as u64 / u64::from(info.input_rate)));
                        item += 1;
                        let slices = samples.chunks(info.input_rate as usize * SLICE_S);
                        self.commands.extend(slices.map(|slice| Command::Append(slice.to_vec())));
                        self.commands.push(Command::Commit { item });
                    }
                }
            }
        }
        // A spoken answer has defaults; a text may be of any kind.
        if instructions.is_empty() && self.audio.is_some() && !info.instructions.is_empty() {
            instructions.push(info.instructions.clone());
        }
        if !instructions.is_empty() {
            self.commands.insert(0, Command::SetInstructions(instructions.join("\n")));
        }
        self.sound = most.saturating_sub(left);
        Ok(item)
    }
}

/// Decodes a sound file of at most `longest` to samples at `rate`.
fn decode(
    data: &str,
    at: &str,
    (rate, longest): (u32, Duration),
    permit: &mut WorkPermit,
) -> Result<Vec<f32>, ErrorBody> {
    let wrong = |message: String| ErrorBody::invalid(ErrorKind::InvalidAudio, message).with_param(at);
    let bytes = STANDARD.decode(data).map_err(|error| wrong(format!("this is not base64: {error}")))?;
    let pause = || permit.pause().is_ok();
    sound_file::read_in_pieces(&bytes, rate, longest, pause).map_err(|error| wrong(error.to_string()))
}

fn audio_format(request: &Request, stream: bool, audio_output: bool) -> Result<Option<CompletionFormat>, ErrorBody> {
    let spoken = request.modalities.as_ref().is_some_and(|wanted| wanted.contains(&Modality::Audio));
    if !spoken {
        return Ok(None);
    }
    if !audio_output {
        return refuse("modalities", "this model answers with text alone: ask for `text`");
    }
    let format = request.audio.as_ref().and_then(|audio| audio.format.as_deref());
    match (format, stream) {
        (Some("pcm16"), _) | (None, true) => Ok(Some(CompletionFormat::Pcm16)),
        (Some("wav"), false) | (None, false) => Ok(Some(CompletionFormat::Wav)),
        (Some("wav"), true) => refuse("audio.format", "a stream carries pcm16: a wav file begins with its length"),
        (Some(_), _) => refuse("audio.format", "output audio is wav or pcm16"),
    }
}

fn sampling(request: &Request) -> Result<Option<Sampling>, ErrorBody> {
    let (temperature, top_p) = (request.temperature, request.top_p);
    if temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
        return refuse("temperature", "a temperature is 0 to 2");
    }
    if top_p.is_some_and(|top_p| !(0.0..=1.0).contains(&top_p)) {
        return refuse("top_p", "top_p is 0 to 1");
    }
    if temperature.is_none() && top_p.is_none() {
        return Ok(None);
    }
    Ok(Some(Sampling {
        temperature: temperature.unwrap_or(1.0),
        top_k: 0,
        top_p: top_p.unwrap_or(1.0),
        repetition_penalty: 1.0,
    }))
}
