//! Parsing of a speech request: a JSON object with the text, or the fields of a query whose text streams in as the
//! body.

use std::ops::RangeInclusive;

use repartee_engine_api::ModelInfo;
use repartee_protocol::json::read_body;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::PacedVoice;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::reference::{self, Reference, ReferenceFields, refuse};
use crate::ids;

/// Maximum length of a text in characters, as in the OpenAI API.
const MAX_CHARACTERS: usize = 4_096;
/// Maximum length of a name that is repeated to the client, in bytes.
const LONGEST_NAME: usize = 64;
/// Valid speeds of the OpenAI API.
const SPEEDS: RangeInclusive<f64> = 0.25..=4.0;

#[derive(Debug, Default, Deserialize)]
struct Request {
    input: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    voice: Option<Value>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    response_format: Option<String>,
    #[serde(default)]
    speed: Option<f64>,
    #[serde(default)]
    stream_format: Option<String>,
    #[serde(flatten)]
    reference: ReferenceFields,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Audio format of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpeechFormat {
    /// Wav file at the model's output rate; its header has no length.
    Wav,
    /// MP3 at 24 kHz.
    Mp3,
    /// FLAC at 24 kHz.
    Flac,
    /// 16-bit little-endian samples at 24 kHz.
    Pcm,
    /// Opus packets in Ogg.
    Opus,
}

/// Parsed options of a request.
#[derive(Debug, PartialEq)]
pub(super) struct SpeechPlan {
    /// Voice of the model; `None` for the default one.
    pub voice: Option<String>,
    /// Change of the voice's speed.
    pub tempo: f64,
    /// Instructions for the model; may be empty.
    pub instructions: String,
    /// True if the model reads a message of the caller, as the instructions ask, instead of text that streams in.
    pub is_message: bool,
    /// Format of the response's audio.
    pub format: SpeechFormat,
    /// True if the response is server-sent events.
    pub events: bool,
    /// Recording in whose voice the text is read.
    pub reference: Option<Reference>,
    /// Differences between the request and the response.
    pub warnings: Vec<String>,
}

impl SpeechPlan {
    /// Parses a JSON request; returns its options and its text.
    pub fn read(body: &[u8], info: &ModelInfo) -> Result<(Self, String), ErrorBody> {
        let mut request: Request = read_body(body)?;
        let reference = std::mem::take(&mut request.reference);
        let plan = Self::of(&request, reference.is_sent(), info)?;
        let characters = request.input.chars().count();
        if characters > MAX_CHARACTERS {
            return refuse(
                "input",
                format!("the input has {characters} characters, at most {MAX_CHARACTERS} are read at once"),
            );
        }
        if !request.input.chars().any(char::is_alphanumeric) {
            return Err(nothing_to_read());
        }
        Ok((Self { reference: reference.read()?, ..plan }, request.input))
    }

    /// Parses the fields of a query, whose text is the body.
    pub fn of_query(fields: Vec<(String, String)>, info: &ModelInfo) -> Result<Self, ErrorBody> {
        let mut request = Request::default();
        for (name, value) in fields {
            match name.as_str() {
                reference::AUDIO | reference::TEXT | "consent" => {
                    return refuse(&name, "a recording is a field of a JSON object, not of a query");
                }
                "input" => return refuse("input", "the body is the text: leave `input` out of the query"),
                "model" => request.model = Some(value),
                "voice" => request.voice = Some(Value::String(value)),
                "instructions" => request.instructions = Some(value),
                "response_format" => request.response_format = Some(value),
                "speed" => match value.parse() {
                    Ok(speed) => request.speed = Some(speed),
                    Err(_) => return refuse("speed", "a speed is a number"),
                },
                "stream_format" => request.stream_format = Some(value),
                _ => {
                    request.rest.insert(name, Value::String(value));
                }
            }
        }
        Self::of(&request, false, info)
    }

    /// Plan of a request; `recorded` if it brings a voice of its own.
    fn of(request: &Request, recorded: bool, info: &ModelInfo) -> Result<Self, ErrorBody> {
        if !info.given_text && info.reads_messages.is_none() {
            return refuse(
                "model",
                format!("`{}` cannot read a given text aloud: use /v1/chat/completions", info.name),
            );
        }
        let asked = request.voice.as_ref().filter(|_| !recorded);
        let named = voice(asked, info)?;
        let mut warnings = warnings(request, (asked, named.as_deref()), info);
        let speed = request.speed.unwrap_or(1.0);
        if !SPEEDS.contains(&speed) {
            return refuse("speed", "a speed is 0.25 to 4.0");
        }
        let (voice, tempo) = if speed == 1.0 || recorded {
            (named, speed)
        } else {
            let paced = PacedVoice::find(named.as_deref().unwrap_or(&info.default_voice), speed, &info.voices);
            if (paced.speed() - speed).abs() > 1e-6 {
                warnings.push(format!("speed: {speed} is served as {}", paced.speed()));
            }
            (Some(paced.voice), paced.tempo)
        };
        let own = request.instructions.as_deref().unwrap_or_default();
        Ok(Self {
            voice,
            tempo,
            instructions: info.reads_messages.map_or_else(|| own.to_owned(), |reading| reading.with(own)),
            is_message: info.reads_messages.is_some(),
            format: format(request.response_format.as_deref())?,
            events: match request.stream_format.as_deref() {
                None | Some("audio") => false,
                Some("sse") => true,
                Some(_) => return refuse("stream_format", "a stream is `audio` or `sse`"),
            },
            reference: None,
            warnings,
        })
    }
}

/// Error of a text without a letter or digit.
pub(super) fn nothing_to_read() -> ErrorBody {
    ErrorBody::invalid(ErrorKind::InvalidValue, "the input holds no text to read").with_param("input")
}

fn format(name: Option<&str>) -> Result<SpeechFormat, ErrorBody> {
    match name {
        // MP3 is the default of the OpenAI API.
        None | Some("mp3") => Ok(SpeechFormat::Mp3),
        Some("wav") => Ok(SpeechFormat::Wav),
        Some("flac") => Ok(SpeechFormat::Flac),
        Some("pcm") => Ok(SpeechFormat::Pcm),
        Some("opus") => Ok(SpeechFormat::Opus),
        Some(name) => {
            let message =
                format!("`{name:.16}` is not served: set response_format to `mp3`, `wav`, `flac`, `pcm` or `opus`");
            refuse("response_format", message)
        }
    }
}

/// Returns the requested voice of the model; `None` for the default one. An unknown name gets the default voice,
/// because stock clients have to send one. An unknown id is an error, because an id is one person's enrolled voice.
fn voice(voice: Option<&Value>, info: &ModelInfo) -> Result<Option<String>, ErrorBody> {
    let Some(voice) = voice else { return Ok(None) };
    let (name, is_id) = match (voice.as_str(), voice.get("id").and_then(Value::as_str)) {
        (Some(name), _) => (name, name.starts_with(ids::VOICE_PREFIX)),
        (None, Some(id)) => (id, true),
        (None, None) => return refuse("voice", "a voice is a name, or an object with an `id`"),
    };
    if info.voices.iter().any(|voice| voice == name) {
        return Ok(Some(name.to_owned()));
    }
    if is_id || name.is_empty() || name.len() > LONGEST_NAME {
        return refuse("voice", format!("there is no voice `{name:.64}`: GET /v1/audio/voices lists them"));
    }
    Ok(None)
}

/// Lists the differences between the request and the response. Names of OpenAI's models and voices, which stock clients
/// have to send, are replaced. `voice` is the voice that speaks in place of the one that was `asked` for.
fn warnings(request: &Request, (asked, voice): (Option<&Value>, Option<&str>), info: &ModelInfo) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(model) = request.model.as_ref().filter(|model| **model != info.name && model.len() <= LONGEST_NAME) {
        warnings.push(format!("model: `{model}` is served as `{}`", info.name));
    }
    if let Some(name) = asked.and_then(Value::as_str).filter(|_| voice.is_none()) {
        warnings.push(format!("voice: `{name}` is served as `{}`", info.default_voice));
    }
    let unknown = request.rest.keys().filter(|field| field.len() <= LONGEST_NAME).take(16);
    warnings.extend(unknown.map(|field| format!("{field} is not known here and was ignored")));
    warnings
}

#[cfg(test)]
mod tests {
    use repartee_engine_api::SpeechEngine as _;
    use repartee_testkit::scripted::{Script, ScriptedEngine};

    use super::*;

    #[test]
    fn speeds_choose_the_nearest_paced_voice() {
        let mut info = ScriptedEngine::new(Script::default()).info().clone();
        let plan = |speed: f64, info: &ModelInfo| {
            let request = serde_json::json!({"input": "Hello.", "voice": "bob", "speed": speed}).to_string();
            SpeechPlan::read(request.as_bytes(), info).map(|(plan, _)| (plan.voice, plan.tempo, plan.warnings))
        };
        assert_eq!(plan(1.5, &info).unwrap(), (Some("bob".to_owned()), 1.5, vec![]), "no voice has a speed");
        info.voices.extend(["bob/0.8", "bob/1.5", "ada/2.0", "bob/house"].map(str::to_owned));
        let found = |speed: f64| plan(speed, &info).unwrap();
        assert_eq!(found(1.5), (Some("bob/1.5".to_owned()), 1.0, vec![]));
        assert_eq!(found(1.0), (Some("bob".to_owned()), 1.0, vec![]));
        assert_eq!(found(4.0), (Some("bob/1.5".to_owned()), 2.0, vec!["speed: 4 is served as 3".to_owned()]));
        assert_eq!(found(1.1), (Some("bob".to_owned()), 1.1, vec![]));
        assert_eq!(plan(9.0, &info).unwrap_err().message, "a speed is 0.25 to 4.0");
    }
}
