//! Body of a completion: whole ([`CompletionBuilder`]) or in chunks ([`ChunkBuilder`]).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_engine_api::{EngineUsage, Event, FinishReason};
use repartee_media::pcm;
use repartee_media::resample::{ResampleError, Resampler};
use serde::Serialize;

use super::request::CompletionFormat;

/// Sample rate of `pcm16`, in Hz.
const PCM_RATE: u32 = 24_000;

/// Id, time, model and warnings of one completion.
#[derive(Debug, Clone)]
pub(super) struct Metadata {
    pub id: String,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    pub model: String,
    /// Differences between the request and the response.
    pub warnings: Vec<String>,
}

impl Metadata {
    fn audio_id(&self) -> String {
        self.id.replacen("chatcmpl", "audio", 1)
    }

    fn extension(&self) -> Option<Extension> {
        (!self.warnings.is_empty()).then(|| Extension { warnings: self.warnings.clone() })
    }
}

/// Extension of the OpenAI API.
#[derive(Debug, Serialize)]
struct Extension {
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Usage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Debug, Serialize)]
struct PromptDetails {
    cached_tokens: u32,
    text_tokens: u32,
    audio_tokens: u32,
}

#[derive(Debug, Serialize)]
struct CompletionDetails {
    text_tokens: u32,
    audio_tokens: u32,
    reasoning_tokens: u32,
}

impl From<&EngineUsage> for Usage {
    fn from(engine: &EngineUsage) -> Self {
        let prompt_tokens = engine.input_text_tokens + engine.input_audio_tokens;
        let completion_tokens = engine.output_text_tokens + engine.output_audio_frames;
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptDetails {
                cached_tokens: engine.cached_tokens,
                text_tokens: engine.input_text_tokens,
                audio_tokens: engine.input_audio_tokens,
            },
            completion_tokens_details: CompletionDetails {
                text_tokens: engine.output_text_tokens,
                audio_tokens: engine.output_audio_frames,
                reasoning_tokens: 0,
            },
        }
    }
}

fn finish_reason(reason: FinishReason, has_calls: bool) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::Stop if has_calls => "tool_calls",
        // A completion is cancelled only if its client disconnects.
        FinishReason::Stop | FinishReason::Cancelled => "stop",
    }
}

/// Error of encoding a completion; an internal error.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Wav(#[from] repartee_media::wav::WriteError),
    #[error(transparent)]
    Resample(#[from] ResampleError),
}

/// Builds a completion that is sent whole.
#[derive(Debug)]
pub(super) struct CompletionBuilder {
    metadata: Metadata,
    rate: u32,
    format: Option<CompletionFormat>,
    text: String,
    samples: Vec<f32>,
    calls: Vec<ToolCall>,
}

/// Completion object on the wire.
#[derive(Debug, Serialize)]
pub(super) struct ChatCompletion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: [Choice; 1],
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    repartee: Option<Extension>,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: u32,
    message: Message,
    finish_reason: &'static str,
    logprobs: Option<()>,
}

#[derive(Debug, Serialize)]
struct Message {
    role: &'static str,
    /// `null` for a response with audio, which has a transcript.
    content: Option<String>,
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audio: Option<Audio>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

/// Call of a function; in a chunk the part of it that is new.
#[derive(Debug, Serialize)]
struct ToolCall {
    /// Number of the call; in chunks alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: CalledFunction,
}

#[derive(Debug, Serialize)]
struct CalledFunction {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Arguments as JSON text.
    arguments: String,
}

impl ToolCall {
    fn begun(metadata: &Metadata, call: u32, name: String) -> Self {
        let id = Some(format!("{}_{call}", metadata.id.replacen("chatcmpl", "call", 1)));
        let function = CalledFunction { name: Some(name), arguments: String::new() };
        Self { index: None, id, kind: Some("function"), function }
    }
}

#[derive(Debug, Serialize)]
struct Audio {
    id: String,
    data: String,
    transcript: String,
    /// Time of creation, because the audio is not stored.
    expires_at: u64,
}

impl CompletionBuilder {
    pub fn new(metadata: Metadata, rate: u32, format: Option<CompletionFormat>) -> Self {
        Self { metadata, rate, format, text: String::new(), samples: Vec::new(), calls: Vec::new() }
    }

    /// Adds an event of the engine.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Text { text, .. } => self.text.push_str(&text),
            Event::Audio { samples, .. } => self.samples.extend(samples),
            Event::ToolCall { call, name, .. } => self.calls.push(ToolCall::begun(&self.metadata, call, name)),
            Event::ToolArguments { arguments, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.function.arguments.push_str(&arguments);
                }
            }
            // Other events carry no content, and the caller handles the end.
            _ => {}
        }
    }

    /// Builds the completion, once the response has finished.
    pub fn finish(self, reason: FinishReason, usage: &EngineUsage) -> Result<ChatCompletion, WriteError> {
        let Self { metadata, rate, format, text, samples, calls } = self;
        let has_calls = !calls.is_empty();
        let (content, audio) = match format {
            None => (Some(text).filter(|text| !text.is_empty() || !has_calls), None),
            // A call is not spoken.
            Some(_) if has_calls && samples.is_empty() => (None, None),
            Some(format) => {
                let bytes = match format {
                    CompletionFormat::Wav => repartee_media::wav::encode(&samples, rate)?,
                    CompletionFormat::Pcm16 => {
                        let mut resampler = Resampler::new(rate, PCM_RATE)?;
                        let mut audio = resampler.push(&samples)?;
                        audio.extend(resampler.flush()?);
                        pcm::encode_i16le(&audio)
                    }
                };
                let data = STANDARD.encode(bytes);
                (None, Some(Audio { id: metadata.audio_id(), data, transcript: text, expires_at: metadata.created }))
            }
        };
        let repartee = metadata.extension();
        let message = Message { role: "assistant", content, refusal: None, audio, tool_calls: calls };
        let finish_reason = finish_reason(reason, has_calls);
        let choice = Choice { index: 0, message, finish_reason, logprobs: None };
        let Metadata { id, created, model, .. } = metadata;
        let usage = usage.into();
        Ok(ChatCompletion { id, object: "chat.completion", created, model, choices: [choice], usage, repartee })
    }
}

/// Builds the chunks of a completion that is streamed.
#[derive(Debug)]
pub(super) struct ChunkBuilder {
    metadata: Metadata,
    /// Resampler from the model's output rate to that of `pcm16`; `None` for text only.
    resampler: Option<Resampler>,
    include_usage: bool,
    /// True once the first chunk was built.
    begun: bool,
    /// True once a call was built.
    has_calls: bool,
}

/// Chunk object on the wire.
#[derive(Debug, Serialize)]
pub(super) struct ChatCompletionChunk {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<ChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repartee: Option<Extension>,
}

#[derive(Debug, Serialize)]
struct ChunkChoice {
    index: u32,
    delta: Delta,
    finish_reason: Option<&'static str>,
    logprobs: Option<()>,
}

#[derive(Debug, Default, Serialize)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audio: Option<AudioDelta>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

#[derive(Debug, Default, Serialize)]
struct AudioDelta {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transcript: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
}

impl ChunkBuilder {
    pub fn new(metadata: Metadata, rate: u32, spoken: bool, include_usage: bool) -> Result<Self, ResampleError> {
        let resampler = if spoken { Some(Resampler::new(rate, PCM_RATE)?) } else { None };
        Ok(Self { metadata, resampler, include_usage, begun: false, has_calls: false })
    }

    /// Builds the chunks for an event of the engine.
    pub fn add(&mut self, event: Event) -> Result<Vec<ChatCompletionChunk>, WriteError> {
        Ok(match event {
            Event::Text { text, .. } if self.resampler.is_some() => {
                vec![self.audio(|audio| audio.transcript = Some(text))]
            }
            Event::Text { text, .. } => vec![self.chunk(Delta { content: Some(text), ..Delta::default() })],
            Event::Audio { samples, .. } => match &mut self.resampler {
                Some(resampler) => {
                    let sound = resampler.push(&samples)?;
                    self.audio_data(&sound).into_iter().collect()
                }
                None => Vec::new(),
            },
            Event::ToolCall { call, name, .. } => {
                self.has_calls = true;
                let begun = ToolCall { index: Some(call), ..ToolCall::begun(&self.metadata, call, name) };
                vec![self.chunk(Delta { tool_calls: vec![begun], ..Delta::default() })]
            }
            Event::ToolArguments { call, arguments, .. } => {
                let function = CalledFunction { name: None, arguments };
                let more = ToolCall { index: Some(call), id: None, kind: None, function };
                vec![self.chunk(Delta { tool_calls: vec![more], ..Delta::default() })]
            }
            _ => Vec::new(),
        })
    }

    /// Builds the last chunks, once the response has finished.
    pub fn finish(
        &mut self,
        reason: FinishReason,
        usage: &EngineUsage,
    ) -> Result<Vec<ChatCompletionChunk>, WriteError> {
        let mut chunks = Vec::new();
        if let Some(resampler) = &mut self.resampler {
            let rest = resampler.flush()?;
            chunks.extend(self.audio_data(&rest));
            let expires_at = Some(self.metadata.created);
            chunks.push(self.audio(|audio| audio.expires_at = expires_at));
        }
        let mut last = self.chunk(Delta::default());
        if let Some(choice) = last.choices.first_mut() {
            choice.finish_reason = Some(finish_reason(reason, self.has_calls));
        }
        chunks.push(last);
        if self.include_usage {
            let mut chunk = self.chunk(Delta::default());
            chunk.choices.clear();
            chunk.usage = Some(usage.into());
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    fn audio_data(&mut self, samples: &[f32]) -> Option<ChatCompletionChunk> {
        let data = STANDARD.encode(pcm::encode_i16le(samples));
        (!data.is_empty()).then(|| self.audio(|audio| audio.data = Some(data)))
    }

    fn audio(&mut self, fill: impl FnOnce(&mut AudioDelta)) -> ChatCompletionChunk {
        let mut audio = AudioDelta { id: self.metadata.audio_id(), ..AudioDelta::default() };
        fill(&mut audio);
        self.chunk(Delta { audio: Some(audio), ..Delta::default() })
    }

    fn chunk(&mut self, mut delta: Delta) -> ChatCompletionChunk {
        let first = !std::mem::replace(&mut self.begun, true);
        delta.role = first.then_some("assistant");
        let Metadata { id, created, model, .. } = self.metadata.clone();
        let choices = vec![ChunkChoice { index: 0, delta, finish_reason: None, logprobs: None }];
        let repartee = if first { self.metadata.extension() } else { None };
        ChatCompletionChunk { id, object: "chat.completion.chunk", created, model, choices, usage: None, repartee }
    }
}
