//! Parsing of a speech request, and the sentences that are read one after the other.

use std::ops::RangeInclusive;

use repartee_engine_api::ModelInfo;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::Deserialize;
use serde_json::{Map, Value};
use unicode_segmentation::UnicodeSegmentation as _;

/// The longest text, in characters, as published.
const MAX_CHARACTERS: usize = 4_096;
/// The longest piece that is read in one go, in bytes. Models are trained with answers, not with chapters.
const MAX_PIECE: usize = 240;
/// Published speeds.
const SPEEDS: RangeInclusive<f64> = 0.25..=4.0;

#[derive(Debug, Deserialize)]
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
    rest: Map<String, Value>,
}

/// Format of the audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// A wav file at the model's rate. Its header does not know its length.
    Wav,
    /// 16-bit little-endian samples at 24 kHz.
    Pcm,
    /// Opus in Ogg.
    Opus,
}

/// What a request asks for.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// The text by pieces, in order; at least one.
    pub pieces: Vec<String>,
    /// One of the model's; `None` for its default.
    pub voice: Option<String>,
    /// Instructions for the model; may be empty.
    pub instructions: String,
    /// Format of the audio.
    pub format: Format,
    /// Whether the body is server-sent events.
    pub events: bool,
    /// What is served differently from what was requested.
    pub warnings: Vec<String>,
}

fn refuse<T>(param: &str, message: impl Into<String>) -> Result<T, ErrorBody> {
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).at(param))
}

impl Plan {
    /// Parses a request.
    pub fn read(body: &[u8], info: &ModelInfo) -> Result<Self, ErrorBody> {
        let reader = &mut serde_json::Deserializer::from_slice(body);
        let request: Request =
            serde_path_to_error::deserialize(reader).map_err(|error| ErrorBody::from_path(&error, ""))?;
        if !info.reads_aloud {
            return refuse(
                "model",
                format!("`{}` reads no given text aloud; ask it over /v1/chat/completions", info.name),
            );
        }
        let characters = request.input.chars().count();
        if characters > MAX_CHARACTERS {
            return refuse(
                "input",
                format!("the input has {characters} characters, at most {MAX_CHARACTERS} are read at once"),
            );
        }
        let pieces = pieces(&request.input);
        if pieces.is_empty() {
            return refuse("input", "the input holds no text to read");
        }
        match request.speed {
            Some(speed) if !SPEEDS.contains(&speed) => return refuse("speed", "a speed is 0.25 to 4.0"),
            Some(speed) if speed != 1.0 => {
                return refuse("speed", "the model speaks at its own speed: leave `speed` out, or set it to 1.0");
            }
            _ => {}
        }
        let (voice, warnings) = (voice(request.voice.as_ref(), info), warnings(&request, info));
        Ok(Self {
            pieces,
            voice,
            instructions: request.instructions.unwrap_or_default(),
            format: format(request.response_format.as_deref())?,
            events: match request.stream_format.as_deref() {
                None | Some("audio") => false,
                Some("sse") => true,
                Some(_) => return refuse("stream_format", "a stream is `audio` or `sse`"),
            },
            warnings,
        })
    }
}

fn format(name: Option<&str>) -> Result<Format, ErrorBody> {
    match name {
        Some("wav") => Ok(Format::Wav),
        Some("pcm") => Ok(Format::Pcm),
        Some("opus") => Ok(Format::Opus),
        other => {
            let name = other.unwrap_or("mp3");
            refuse("response_format", format!("`{name}` is not served: set response_format to `wav`, `pcm` or `opus`"))
        }
    }
}

fn voice_name(voice: Option<&Value>) -> Option<&str> {
    let voice = voice?;
    voice.as_str().or_else(|| voice.get("id")?.as_str())
}

fn voice(voice: Option<&Value>, info: &ModelInfo) -> Option<String> {
    voice_name(voice).filter(|name| info.voices.iter().any(|voice| voice == name)).map(str::to_owned)
}

/// What is not served as it was requested; published names of models and voices are what stock clients must send.
fn warnings(request: &Request, info: &ModelInfo) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(model) = request.model.as_ref().filter(|model| **model != info.name && model.len() <= 64) {
        warnings.push(format!("model: `{model}` is served as `{}`", info.name));
    }
    if let Some(name) = voice_name(request.voice.as_ref())
        && voice(request.voice.as_ref(), info).is_none()
        && name.len() <= 64
    {
        warnings.push(format!("voice: `{name}` is served as `{}`", info.default_voice));
    }
    let unknown = request.rest.keys().filter(|field| field.len() <= 64).take(16);
    warnings.extend(unknown.map(|field| format!("{field} is not known here and was ignored")));
    warnings
}

/// A text by sentences; a long one is cut between words.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    for sentence in text.split_sentence_bounds().flat_map(str::lines) {
        let mut piece = String::new();
        for word in sentence.split_whitespace().flat_map(|word| cut(word, MAX_PIECE)) {
            if !piece.is_empty() && piece.len() + 1 + word.len() > MAX_PIECE {
                pieces.push(std::mem::take(&mut piece));
            }
            if !piece.is_empty() {
                piece.push(' ');
            }
            piece.push_str(word);
        }
        // Marks alone say nothing.
        if piece.chars().any(char::is_alphanumeric) {
            pieces.push(piece);
        }
    }
    pieces
}

/// A word by parts of at most `most` bytes.
fn cut(word: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let end = (0..=most.min(rest.len())).rfind(|&end| rest.is_char_boundary(end)).unwrap_or(0);
        let (part, after) = rest.split_at(end);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_by_sentences() {
        assert_eq!(
            pieces("Hello there. How are you?\nFine!\n(…)\nThird line"),
            ["Hello there.", "How are you?", "Fine!", "Third line"]
        );
        assert_eq!(pieces(" ... \n -- "), Vec::<String>::new());
        assert_eq!(pieces("It costs 3.50 euros."), ["It costs 3.50 euros."]);
    }

    #[test]
    fn long_sentences_are_cut_between_words() {
        let sentence = "word ".repeat(400);
        let pieces = pieces(&sentence);
        assert!(pieces.iter().all(|piece| piece.len() <= MAX_PIECE), "{pieces:?}");
        assert_eq!(pieces.join(" "), sentence.trim());
        let endless = "ä".repeat(2_000);
        assert_eq!(super::pieces(&endless).concat(), endless);
        assert!(super::pieces(&endless).iter().all(|piece| piece.len() <= MAX_PIECE));
    }
}
