//! `session.*` events and the session configuration.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::fields::{integer, name_of, optional_integer, within};
use super::literal::literal;
use super::noise_reduction::NoiseReduction;
use super::transcription::Delay;
use super::truncation::Truncation;

/// Type of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// Conversation with the model.
    #[default]
    Realtime,
    /// Transcription of the caller's turns, without responses.
    Transcription,
}

literal!(
    /// The `object` field of a session.
    SessionObject = "realtime.session"
);

/// Payload of `session.update`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionUpdate {
    /// Changes, applied by [`super::merge`]. Kept as sent, because absent and `null` differ.
    pub session: Value,
}

/// Payload of `session.created` and `session.updated`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// Complete effective configuration.
    pub session: Session,
}

/// Complete effective configuration. A transcription session serializes as
/// [`TranscriptionSession`](super::transcription_session::TranscriptionSession), without the fields about responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, remote = "Self")]
pub struct Session {
    /// Type of the session.
    #[serde(rename = "type")]
    pub kind: SessionKind,
    /// Object type: `realtime.session`; a transcription session serializes a different one.
    #[serde(skip_deserializing)]
    pub object: SessionObject,
    /// Id of the session, `sess_...`.
    pub id: String,
    /// Latest end of the session in Unix seconds; absent for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Name of the loaded model.
    pub model: String,
    /// Output modality: `["audio"]` (audio with its transcript) or `["text"]`.
    pub output_modalities: Vec<Modality>,
    /// System message; empty for none.
    pub instructions: String,
    /// Function tools as sent. Tools of other types are left out.
    pub tools: Vec<Value>,
    /// Tool choice: `auto` or `none`.
    pub tool_choice: Value,
    /// True if a response may contain more than one function call; absent for the default, true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Maximum number of text tokens of a response.
    pub max_output_tokens: MaxTokens,
    /// Not supported; always `null`.
    pub tracing: Option<Value>,
    /// Not supported; always `null`.
    pub prompt: Option<Value>,
    /// Not supported; always `null`.
    pub reasoning: Option<Value>,
    /// Policy for a conversation that exceeds the context.
    pub truncation: Truncation,
    /// Not supported; always `null`.
    pub include: Option<Vec<String>>,
    /// Input and output audio settings.
    pub audio: Audio,
    /// Repartee's extension of the configuration.
    #[serde(skip_serializing_if = "SessionExtension::is_empty")]
    pub repartee: SessionExtension,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            kind: SessionKind::Realtime,
            object: SessionObject::Value,
            id: String::new(),
            expires_at: None,
            model: String::new(),
            output_modalities: vec![Modality::Audio],
            instructions: String::new(),
            tools: Vec::new(),
            tool_choice: Value::from("auto"),
            parallel_tool_calls: None,
            max_output_tokens: MaxTokens::default(),
            tracing: None,
            prompt: None,
            reasoning: None,
            truncation: Truncation::default(),
            include: None,
            audio: Audio::default(),
            repartee: SessionExtension::default(),
        }
    }
}

/// Repartee's extension of the session configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionExtension {
    /// Warnings about settings of the last update that are served differently.
    pub warnings: Vec<String>,
    /// True to start a response speculatively when the caller pauses; it is aborted if the caller continues.
    pub speculative_start: bool,
    /// Length in ms of the slices to answer during a turn, as in streaming translation; `None` for whole turns.
    #[serde(deserialize_with = "optional_integer", skip_serializing_if = "Option::is_none")]
    pub slice_ms: Option<u32>,
    /// True to send each decision about the caller's sound as `repartee.decision`.
    pub decisions: bool,
}

impl Default for SessionExtension {
    fn default() -> Self {
        Self { warnings: Vec::new(), speculative_start: true, slice_ms: None, decisions: false }
    }
}

impl SessionExtension {
    /// True if all values are defaults; then the extension is not serialized, and stock clients do not see it.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Output modality of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Modality {
    /// Audio with its transcript.
    Audio,
    /// Text without audio.
    Text,
}

impl<'de> Deserialize<'de> for MaxTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) if text == "inf" => Ok(Self::Unlimited(Infinite::Value)),
            number @ Value::Number(_) => integer(number).map(Self::Count).map_err(Error::custom),
            _ => Err(Error::custom("an integer or `inf` is expected")),
        }
    }
}

/// Number of tokens, or `"inf"` for the model's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum MaxTokens {
    /// Maximum number of tokens.
    Count(u32),
    /// No limit except the model's.
    Unlimited(Infinite),
}

literal!(
    /// The literal `"inf"`.
    Infinite = "inf"
);

impl Default for MaxTokens {
    fn default() -> Self {
        Self::Unlimited(Infinite::Value)
    }
}

impl MaxTokens {
    /// Returns the maximum; `None` if unlimited.
    pub fn count(self) -> Option<u32> {
        match self {
            Self::Count(count) => Some(count),
            Self::Unlimited(_) => None,
        }
    }
}

/// Input and output audio settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Audio {
    /// Settings of the caller's audio.
    pub input: AudioInput,
    /// Settings of the model's audio.
    pub output: AudioOutput,
}

/// Settings of the caller's audio.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AudioInput {
    /// Audio format of `input_audio_buffer.append`.
    pub format: AudioFormat,
    /// Noise reduction; `null` for none.
    pub noise_reduction: Option<NoiseReduction>,
    /// Transcription settings; `null` disables transcription.
    pub transcription: Option<Transcription>,
    /// Turn detection; `null` for push-to-talk.
    pub turn_detection: Option<TurnDetection>,
}

/// Transcription settings of the caller's turns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transcription {
    /// Name of the model; always the loaded one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Language of the caller, as a hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Additional prompt for the transcript, such as expected names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Certainty that growing transcripts wait for; absent for a model whose transcripts don't grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
}

/// Settings of the model's audio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AudioOutput {
    /// Audio format of `response.output_audio.delta`.
    pub format: AudioFormat,
    /// Name of the voice.
    #[serde(deserialize_with = "voice_name")]
    pub voice: String,
    /// Speed of speech, from 0.5 to 2, without a change of pitch.
    pub speed: f64,
}

impl Default for AudioOutput {
    fn default() -> Self {
        Self { format: AudioFormat::default(), voice: String::new(), speed: 1.0 }
    }
}

/// Voice as a string, or as an object with its `id`.
fn voice_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    struct VoiceId {
        id: String,
    }
    match Value::deserialize(deserializer)? {
        Value::String(name) => Ok(name),
        voice @ Value::Object(_) => within(voice).map(|VoiceId { id }| id),
        _ => Err(Error::custom("a voice is a name, or an object with its `id`")),
    }
}

impl<'de> Deserialize<'de> for AudioFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Rate {
            #[serde(default, deserialize_with = "optional_integer")]
            rate: Option<u32>,
        }
        let format = Value::deserialize(deserializer)?;
        Ok(match name_of::<D::Error>(&format, "type", &["audio/pcm", "audio/pcmu", "audio/pcma", "audio/opus"])? {
            "audio/pcmu" => Self::Pcmu,
            "audio/pcma" => Self::Pcma,
            "audio/opus" => Self::Opus,
            _ => within::<_, D::Error>(format)
                .map(|Rate { rate }| Self::Pcm { rate: rate.unwrap_or(standard_rate()) })?,
        })
    }
}

/// Audio encoding on a websocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub enum AudioFormat {
    /// Signed 16-bit little-endian PCM, mono.
    #[serde(rename = "audio/pcm")]
    Pcm {
        /// Sample rate in Hz: 24000; other rates from 8000 to 48000 are an extension.
        rate: u32,
    },
    /// G.711 mu-law at 8 kHz.
    #[serde(rename = "audio/pcmu")]
    Pcmu,
    /// G.711 A-law at 8 kHz.
    #[serde(rename = "audio/pcma")]
    Pcma,
    /// Opus, an extension: each binary message is one packet, in either direction. Clients must send silence too.
    #[serde(rename = "audio/opus")]
    Opus,
}

impl Default for AudioFormat {
    fn default() -> Self {
        Self::Pcm { rate: standard_rate() }
    }
}

impl AudioFormat {
    /// Returns the sample rate in Hz; 48000 for Opus.
    pub fn rate(self) -> u32 {
        match self {
            Self::Pcm { rate } => rate,
            Self::Pcmu | Self::Pcma => 8_000,
            // The RTP clock rate; each side may run its codec at another rate.
            Self::Opus => 48_000,
        }
    }
}

/// Default sample rate of `audio/pcm`, in Hz.
fn standard_rate() -> u32 {
    24_000
}

impl<'de> Deserialize<'de> for TurnDetection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let detection = Value::deserialize(deserializer)?;
        match name_of::<D::Error>(&detection, "type", &["server_vad", "semantic_vad"])? {
            "semantic_vad" => within(detection).map(Self::SemanticVad),
            _ => within(detection).map(Self::ServerVad),
        }
    }
}

/// Type and parameters of turn detection.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnDetection {
    /// Voice activity detection with fixed-silence endpointing.
    ServerVad(ServerVad),
    /// Voice activity detection with endpointing by eagerness and, if configured, a turn-detection model.
    SemanticVad(SemanticVad),
}

impl TurnDetection {
    /// True if the end of a turn starts a response.
    pub fn creates_response(&self) -> bool {
        match self {
            Self::ServerVad(vad) => vad.create_response,
            Self::SemanticVad(vad) => vad.create_response,
        }
    }

    /// True if the start of a turn cancels the response.
    pub fn interrupts_response(&self) -> bool {
        match self {
            Self::ServerVad(vad) => vad.interrupt_response,
            Self::SemanticVad(vad) => vad.interrupt_response,
        }
    }
}

/// Parameters of `server_vad`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerVad {
    /// Minimum voice probability of speech, 0 to 1.
    pub threshold: f64,
    /// Audio before the first speech that belongs to the turn, in ms.
    #[serde(deserialize_with = "integer")]
    pub prefix_padding_ms: u32,
    /// Silence that ends a turn, in ms.
    #[serde(deserialize_with = "integer")]
    pub silence_duration_ms: u32,
    /// Silence after the end of a response that triggers another one, 5000 to 30000 ms; `null` disables it.
    #[serde(deserialize_with = "optional_integer")]
    pub idle_timeout_ms: Option<u32>,
    /// True if the end of a turn starts a response.
    pub create_response: bool,
    /// True if the start of a turn cancels the response.
    pub interrupt_response: bool,
}

impl Default for ServerVad {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            prefix_padding_ms: 300,
            silence_duration_ms: 500,
            idle_timeout_ms: None,
            create_response: true,
            interrupt_response: true,
        }
    }
}

/// Parameters of `semantic_vad`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SemanticVad {
    /// Eagerness of endpointing.
    pub eagerness: Eagerness,
    /// True if the end of a turn starts a response.
    pub create_response: bool,
    /// True if the start of a turn cancels the response.
    pub interrupt_response: bool,
}

impl Default for SemanticVad {
    fn default() -> Self {
        Self { eagerness: Eagerness::Auto, create_response: true, interrupt_response: true }
    }
}

/// Eagerness of endpointing: a higher value ends turns after less silence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eagerness {
    /// Long silence; leaves the caller time to think.
    Low,
    /// Same as `auto`.
    Medium,
    /// Short silence; answers quickly.
    High,
    /// Same as `medium`.
    #[default]
    Auto,
}
