//! Parsing of a request for a transcript or a translation: the fields of a form.

use std::collections::BTreeMap;

use bytes::Bytes;
use repartee_engine_api::ModelInfo;
use repartee_protocol::{ErrorBody, ErrorKind};

use super::super::form::Field;
use super::languages;

/// Maximum size of any field but the file, in bytes.
pub(super) const MAX_FIELD: usize = 16 << 10;
/// Maximum length of a name that is repeated to the client, in bytes.
const LONGEST_NAME: usize = 64;
/// The size of a file is bounded with the whole form.
const FILE: Field = ("file", usize::MAX);

/// Fields of a transcription. `include[]` and `chunking_strategy` are known so that errors can name them.
const TRANSCRIPTION: [Field; 10] = [
    FILE,
    ("model", MAX_FIELD),
    ("language", MAX_FIELD),
    ("prompt", MAX_FIELD),
    ("response_format", MAX_FIELD),
    ("temperature", MAX_FIELD),
    ("stream", MAX_FIELD),
    ("timestamp_granularities[]", MAX_FIELD),
    ("include[]", MAX_FIELD),
    ("chunking_strategy", MAX_FIELD),
];
/// Fields of a translation.
const TRANSLATION: [Field; 5] =
    [FILE, ("model", MAX_FIELD), ("prompt", MAX_FIELD), ("response_format", MAX_FIELD), ("temperature", MAX_FIELD)];

/// Task of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TranscriptTask {
    /// Transcript.
    Transcribe,
    /// English translation.
    Translate,
}

impl TranscriptTask {
    /// Fields of its form.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Self::Transcribe => &TRANSCRIPTION,
            Self::Translate => &TRANSLATION,
        }
    }

    /// Refuses a task that the model cannot do.
    pub fn check(self, info: &ModelInfo) -> Result<(), ErrorBody> {
        let name = &info.name;
        let (kind, message) = if !info.transcribes {
            let message = format!(
                "`{name}` does not transcribe: serve a recogniser with --hear, or set `engine.transcribes` for a model that can"
            );
            (ErrorKind::TranscriptionUnavailable, message)
        } else if self == Self::Translate && !info.hearing.translates {
            let message = format!(
                "`{name}` does not translate: serve a Whisper of several languages with --hear, or set \
                 `engine.translates` for a model that can"
            );
            (ErrorKind::TranslationUnavailable, message)
        } else {
            return Ok(());
        };
        Err(ErrorBody::invalid(kind, message).with_param("model"))
    }
}

/// Format of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TranscriptFormat {
    /// Object with the text.
    Json,
    /// The text alone.
    Text,
    /// SubRip subtitles.
    Srt,
    /// Object with times.
    VerboseJson,
    /// WebVTT subtitles.
    Vtt,
}

/// Parsed request.
#[derive(Debug)]
pub(super) struct TranscriptionPlan {
    /// The sound file.
    pub file: Bytes,
    pub task: TranscriptTask,
    /// Code of the language; `None` if it is to be found.
    pub language: Option<String>,
    /// Hints, such as the spelling of names; may be empty.
    pub prompt: String,
    pub format: TranscriptFormat,
    /// True for the segments of a verbose answer.
    pub segments: bool,
    /// True for the words of a verbose answer.
    pub words: bool,
    /// True to stream the answer.
    pub stream: bool,
    /// Differences between the request and the answer.
    pub warnings: Vec<String>,
}

fn refuse<T>(param: &str, message: impl Into<String>) -> Result<T, ErrorBody> {
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param))
}

/// Fields of a form by name.
struct Fields<'a>(&'a BTreeMap<String, Bytes>);

impl Fields<'_> {
    /// Text of a field; `None` if it is missing or empty.
    fn text(&self, name: &str) -> Result<Option<String>, ErrorBody> {
        let Some(bytes) = self.0.get(name).filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => refuse(name, "this field is not text"),
        }
    }
}

impl TranscriptionPlan {
    /// Parses a form.
    pub fn read(form: &BTreeMap<String, Bytes>, info: &ModelInfo, task: TranscriptTask) -> Result<Self, ErrorBody> {
        let fields = Fields(form);
        let Some(file) = form.get("file") else {
            let message = "the form has no `file`";
            return Err(ErrorBody::invalid(ErrorKind::MissingField, message).with_param("file"));
        };
        let format = format(fields.text("response_format")?.as_deref())?;
        let stream = stream(fields.text("stream")?.as_deref(), format)?;
        temperature(fields.text("temperature")?.as_deref())?;
        if fields.text("include[]")?.is_some() {
            return refuse("include[]", "log probabilities of tokens are not given: leave `include[]` out");
        }
        if fields.text("chunking_strategy")?.is_some_and(|strategy| strategy != "auto") {
            return refuse("chunking_strategy", "sound is always cut at its pauses: send `auto`, or leave it out");
        }
        let (segments, words) = granularities(fields.text("timestamp_granularities[]")?.as_deref(), format, info)?;
        let model = fields.text("model")?.filter(|model| *model != info.name && model.len() <= LONGEST_NAME);
        Ok(Self {
            file: file.clone(),
            task,
            language: fields.text("language")?.map(|language| language_code(&language, info)).transpose()?,
            prompt: fields.text("prompt")?.unwrap_or_default(),
            format,
            segments,
            words,
            stream,
            warnings: model.map(|model| format!("model: `{model}` is served as `{}`", info.name)).into_iter().collect(),
        })
    }
}

fn format(name: Option<&str>) -> Result<TranscriptFormat, ErrorBody> {
    match name {
        None | Some("json") => Ok(TranscriptFormat::Json),
        Some("text") => Ok(TranscriptFormat::Text),
        Some("srt") => Ok(TranscriptFormat::Srt),
        Some("verbose_json") => Ok(TranscriptFormat::VerboseJson),
        Some("vtt") => Ok(TranscriptFormat::Vtt),
        Some(name) => {
            let allowed = "`json`, `text`, `srt`, `verbose_json` or `vtt`";
            refuse("response_format", format!("`{name:.16}` is not served: set response_format to {allowed}"))
        }
    }
}

fn stream(value: Option<&str>, format: TranscriptFormat) -> Result<bool, ErrorBody> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("false") => Ok(false),
        Some("true") if format == TranscriptFormat::Json => Ok(true),
        Some("true") => refuse("response_format", "a stream carries `json`: leave `response_format` out"),
        Some(_) => refuse("stream", "this is `true` or `false`"),
    }
}

fn temperature(value: Option<&str>) -> Result<(), ErrorBody> {
    match value.map(str::parse::<f32>) {
        None => Ok(()),
        Some(Ok(0.0)) => Ok(()),
        Some(Ok(temperature)) if (0.0..=1.0).contains(&temperature) => refuse(
            "temperature",
            "a text is decoded at temperature 0, and higher where it is doubtful: send 0, or leave it out",
        ),
        Some(_) => refuse("temperature", "a temperature is a number from 0 to 1"),
    }
}

/// True for segments, and for words.
fn granularities(list: Option<&str>, format: TranscriptFormat, info: &ModelInfo) -> Result<(bool, bool), ErrorBody> {
    const FIELD: &str = "timestamp_granularities[]";
    let Some(list) = list else { return Ok((true, false)) };
    let (mut segments, mut words) = (false, false);
    for name in list.lines() {
        match name {
            "segment" => segments = true,
            "word" => words = true,
            _ => return refuse(FIELD, "a granularity is `word` or `segment`"),
        }
    }
    if format != TranscriptFormat::VerboseJson {
        return refuse(FIELD, "times are in the format `verbose_json`: set `response_format` to it");
    }
    if words && !info.hearing.word_times {
        return refuse(FIELD, format!("`{}` does not know the times of words: ask for `segment`", info.name));
    }
    Ok((segments, words))
}

fn language_code(language: &str, info: &ModelInfo) -> Result<String, ErrorBody> {
    let lower = language.trim().to_ascii_lowercase();
    let code = lower.split(['-', '_']).next().unwrap_or_default();
    let code = languages::code_of(&lower).unwrap_or(code);
    let is_code = (2..=3).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_lowercase());
    if !is_code {
        return refuse("language", "a language is a code of two letters, such as `en`");
    }
    let known = &info.hearing.languages;
    if !known.is_empty() && !known.iter().any(|known| known == code) {
        return refuse("language", format!("`{}` does not know the language `{code}`: leave it out", info.name));
    }
    Ok(code.to_owned())
}

#[cfg(test)]
mod tests {
    use repartee_engine_api::{HearingInfo, SpeechEngine as _};
    use repartee_testkit::scripted::{Script, ScriptedEngine};

    use super::*;

    fn info(hearing: HearingInfo) -> ModelInfo {
        ModelInfo { transcribes: true, hearing, ..ScriptedEngine::new(Script::default()).info().clone() }
    }

    fn read(fields: &[(&str, &str)], info: &ModelInfo) -> Result<TranscriptionPlan, ErrorBody> {
        let file = [("file", "sound")];
        let form =
            file.iter().chain(fields).map(|(name, value)| ((*name).to_owned(), Bytes::from((*value).to_owned())));
        TranscriptionPlan::read(&form.collect(), info, TranscriptTask::Transcribe)
    }

    #[test]
    fn fields_that_cannot_be_served_are_named() {
        let info = info(HearingInfo { languages: vec!["en".into(), "de".into()], ..HearingInfo::default() });
        for fields in [
            &[("response_format", "diarized_json")][..],
            &[("stream", "yes")],
            &[("temperature", "0.5")],
            &[("temperature", "warm")],
            &[("temperature", "nan")],
            &[("include[]", "logprobs")],
            &[("chunking_strategy", "{\"type\": \"server_vad\"}")],
            &[("timestamp_granularities[]", "segment")],
            &[("timestamp_granularities[]", "word"), ("response_format", "verbose_json")],
            &[("timestamp_granularities[]", "day"), ("response_format", "verbose_json")],
            &[("language", "fr")],
            &[("language", "12")],
            &[("language", "")],
        ] {
            let read = read(fields, &info);
            let param = read.as_ref().err().and_then(|error| error.param.clone());
            let expected = fields.first().filter(|(_, value)| !value.is_empty()).map(|(name, _)| *name);
            assert_eq!(param.as_deref(), expected, "{fields:?}");
        }
        assert_eq!(
            read(&[("stream", "true"), ("response_format", "srt")], &info).unwrap_err().param.unwrap(),
            "response_format"
        );
    }

    #[test]
    fn languages_are_codes_or_names() {
        let info = info(HearingInfo::default());
        for (given, code) in [("de", "de"), ("EN-us", "en"), ("German", "de"), ("yue", "yue")] {
            assert_eq!(read(&[("language", given)], &info).unwrap().language.as_deref(), Some(code));
        }
    }

    #[test]
    fn models_that_cannot_are_named() {
        let deaf = ModelInfo { transcribes: false, ..info(HearingInfo::default()) };
        let error = TranscriptTask::Transcribe.check(&deaf).unwrap_err();
        assert!(error.message.contains("`scripted`") && error.message.contains("--hear"), "{error}");
        let refused = TranscriptTask::Translate.check(&info(HearingInfo::default())).unwrap_err();
        assert_eq!(refused.code.as_deref(), Some("translation_not_available"));
        let able = info(HearingInfo { translates: true, ..HearingInfo::default() });
        assert_eq!(TranscriptTask::Translate.check(&able), Ok(()));
    }
}
