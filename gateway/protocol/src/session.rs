//! `session.*`: the configuration of a conversation.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::literal;
use super::transcription_session::TranscriptionSession;

/// The `type` of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// A conversation.
    #[default]
    Realtime,
    /// The caller's turns are written down, and nothing is answered.
    Transcription,
}

literal!(
    /// The `object` of a session.
    SessionObject = "realtime.session"
);

/// `session.update`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionUpdate {
    /// The changes, applied by [`super::merge`]. Kept as sent, because absent and `null` differ.
    pub session: Value,
}

/// `session.created` and `session.updated`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// The whole configuration in effect.
    pub session: Session,
}

/// The whole configuration in effect. A transcription session is written as [`TranscriptionSession`], without the fields that
/// are about responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, remote = "Self")]
pub struct Session {
    /// What the session is for.
    #[serde(rename = "type")]
    pub kind: SessionKind,
    /// `realtime.session`; a transcription session is written with another one.
    #[serde(skip_deserializing)]
    pub object: SessionObject,
    /// The session's id, `sess_...`.
    pub id: String,
    /// When the session ends at the latest, in seconds since 1970; absent for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// The model that is served.
    pub model: String,
    /// `["audio"]` (audio with its transcript) or `["text"]`.
    pub output_modalities: Vec<Modality>,
    /// The system message; empty for none.
    pub instructions: String,
    /// Function tools, as sent. Tools of other kinds are left out.
    pub tools: Vec<Value>,
    /// `auto` or `none`.
    pub tool_choice: Value,
    /// Whether a response may hold more than one function call; absent for the default, which is yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Upper bound of a response's text tokens.
    pub max_output_tokens: MaxTokens,
    /// Not offered.
    pub tracing: Option<Value>,
    /// Not offered.
    pub prompt: Option<Value>,
    /// Not offered.
    pub reasoning: Option<Value>,
    /// `auto`: the oldest turns go when the conversation is too long for the model.
    pub truncation: Value,
    /// Not offered.
    pub include: Option<Vec<String>>,
    /// Input and output audio.
    pub audio: Audio,
    /// Repartee's extension.
    #[serde(skip_serializing_if = "SessionExtension::is_empty")]
    pub repartee: SessionExtension,
}

impl Serialize for Session {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.kind {
            SessionKind::Realtime => Self::serialize(self, serializer),
            SessionKind::Transcription => TranscriptionSession::of(self).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Session {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
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
            truncation: Value::from("auto"),
            include: None,
            audio: Audio::default(),
            repartee: SessionExtension::default(),
        }
    }
}

/// What Repartee adds to the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionExtension {
    /// What the last update asked for and is served differently.
    pub warnings: Vec<String>,
    /// Whether a response is begun speculatively as soon as the caller pauses, and aborted if the caller goes on.
    pub speculative_start: bool,
    /// Answers a turn in slices of so many ms while it goes on, as in streaming translation; none for whole turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice_ms: Option<u32>,
}

impl Default for SessionExtension {
    fn default() -> Self {
        Self { warnings: Vec::new(), speculative_start: true, slice_ms: None }
    }
}

impl SessionExtension {
    /// Defaults are left out, so that stock clients do not see the extension.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Modality {
    /// Audio with its transcript.
    Audio,
    /// Text alone.
    Text,
}

/// A number of tokens, or `"inf"` for the model's own limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MaxTokens {
    /// At most this many.
    Count(u32),
    /// The model's own limit.
    Unlimited(Infinite),
}

literal!(
    /// `"inf"`: no limit.
    Infinite = "inf"
);

impl Default for MaxTokens {
    fn default() -> Self {
        Self::Unlimited(Infinite::Value)
    }
}

impl MaxTokens {
    /// The number, if there is one.
    pub fn count(self) -> Option<u32> {
        match self {
            Self::Count(count) => Some(count),
            Self::Unlimited(_) => None,
        }
    }
}

/// Settings of input and output audio.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Audio {
    /// The caller's audio.
    pub input: AudioInput,
    /// The model's audio.
    pub output: AudioOutput,
}

/// Settings of the caller's audio.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AudioInput {
    /// Format of `input_audio_buffer.append`.
    pub format: AudioFormat,
    /// Not offered.
    pub noise_reduction: Option<Value>,
    /// Whether and how turns are transcribed; `null` for not.
    pub transcription: Option<Transcription>,
    /// Turn detection; `null` for push-to-talk.
    pub turn_detection: Option<TurnDetection>,
}

/// How turns are transcribed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transcription {
    /// The model; always the one that is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The caller's language, as a hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// What the model is told besides, such as names that may come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// Settings of the model's audio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AudioOutput {
    /// Format of `response.output_audio.delta`.
    pub format: AudioFormat,
    /// The voice.
    #[serde(deserialize_with = "voice_name")]
    pub voice: String,
    /// Always 1.
    pub speed: f64,
}

impl Default for AudioOutput {
    fn default() -> Self {
        Self { format: AudioFormat::default(), voice: String::new(), speed: 1.0 }
    }
}

/// A voice is named by a string or by an object with its `id`.
#[derive(Deserialize)]
#[serde(untagged)]
enum VoiceName {
    Name(String),
    Object { id: String },
}

fn voice_name<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    VoiceName::deserialize(deserializer).map(|voice| match voice {
        VoiceName::Name(name) | VoiceName::Object { id: name } => name,
    })
}

/// Encoding of audio on a websocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum AudioFormat {
    /// 16-bit little-endian mono.
    #[serde(rename = "audio/pcm")]
    Pcm {
        /// Samples a second: 24000; others from 8000 to 48000 are an extension.
        #[serde(default = "standard_rate")]
        rate: u32,
    },
    /// G.711 mu-law at 8 kHz.
    #[serde(rename = "audio/pcmu")]
    Pcmu,
    /// G.711 A-law at 8 kHz.
    #[serde(rename = "audio/pcma")]
    Pcma,
    /// An extension: each binary message is one Opus packet, in either direction. Silence has to be sent
    /// too.
    #[serde(rename = "audio/opus")]
    Opus,
}

impl Default for AudioFormat {
    fn default() -> Self {
        Self::Pcm { rate: standard_rate() }
    }
}

impl AudioFormat {
    /// Samples a second.
    pub fn rate(self) -> u32 {
        match self {
            Self::Pcm { rate } => rate,
            Self::Pcmu | Self::Pcma => 8_000,
            // The rate that RTP counts in; each side may run its codec at another rate.
            Self::Opus => 48_000,
        }
    }
}

/// The rate of `audio/pcm` where none is named.
fn standard_rate() -> u32 {
    24_000
}

/// Kind and parameters of turn detection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnDetection {
    /// By voice activity and a fixed silence.
    ServerVad(ServerVad),
    /// By voice activity; the endpointer decides how much silence ends a turn.
    SemanticVad(SemanticVad),
}

impl TurnDetection {
    /// Whether the end of a turn starts a response.
    pub fn creates_response(&self) -> bool {
        match self {
            Self::ServerVad(vad) => vad.create_response,
            Self::SemanticVad(vad) => vad.create_response,
        }
    }

    /// Whether the beginning of a turn cancels the response.
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
    /// Voice probability from which audio is speech, 0 to 1.
    pub threshold: f64,
    /// Audio before the first speech that still belongs to the turn.
    pub prefix_padding_ms: u32,
    /// Silence that ends a turn.
    pub silence_duration_ms: u32,
    /// Silence after a response has played that starts another one, 5000 to 30000 ms; `null` for never.
    pub idle_timeout_ms: Option<u32>,
    /// Whether the end of a turn starts a response.
    pub create_response: bool,
    /// Whether the beginning of a turn cancels the response.
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
    /// How soon to take the turn.
    pub eagerness: Eagerness,
    /// Whether the end of a turn starts a response.
    pub create_response: bool,
    /// Whether the beginning of a turn cancels the response.
    pub interrupt_response: bool,
}

impl Default for SemanticVad {
    fn default() -> Self {
        Self { eagerness: Eagerness::Auto, create_response: true, interrupt_response: true }
    }
}

/// How soon to take the turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eagerness {
    /// Leaves the caller time to think.
    Low,
    /// As `auto`.
    Medium,
    /// Answers quickly.
    High,
    /// As `medium`.
    #[default]
    Auto,
}
