//! `GET /v1/models`: the served model and its capabilities.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use repartee_engine_api::ModelInfo;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::Serialize;
use serde_json::{Value, json};

use super::AppState;
use super::api_error::ApiError;
use super::extract::UrlName;

/// Model object on the wire.
#[derive(Debug, Serialize)]
pub(super) struct Model {
    id: String,
    object: &'static str,
    /// Start of this server in seconds since 1970, because checkpoints hold no date.
    created: u64,
    owned_by: &'static str,
    /// Extension of the OpenAI API; missing for a model of another node of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    repartee: Option<ModelCapabilities>,
}

/// Capabilities of a model.
#[derive(Debug, Serialize)]
struct ModelCapabilities {
    /// Valid values of `audio.output.voice`.
    voices: Vec<String>,
    default_voice: String,
    /// Input sample rate in Hz. Audio of another rate is resampled.
    input_rate: u32,
    /// Output sample rate in Hz.
    output_rate: u32,
    /// Duration of a codec frame, which is one audio token, in ms.
    frame_ms: u64,
    /// Maximum tokens of a prompt and its response.
    context_tokens: u32,
    /// True for a model with audio input; others take text only.
    hears: bool,
    /// True if the text of a turn is known while it is spoken.
    live_transcription: bool,
    /// True if it answers; a recogniser alone only transcribes.
    answers: bool,
    /// True for a model with audio output; others answer with text only.
    audio_output: bool,
    /// True if it can call functions.
    tools: bool,
    /// Supported values of `tool_choice`; `function` is a function by its name.
    tool_choice: &'static [&'static str],
    /// Supported types of `response_format` in chat completions.
    response_format: &'static [&'static str],
    /// True if the caller's audio is transcribed.
    transcription: bool,
    /// True if it translates what it hears into English.
    translation: bool,
    /// True if the words of a transcribed file have times.
    word_times: bool,
    /// True if it reads a given text aloud.
    speech: bool,
    /// True if it does nothing else: it answers no question.
    speech_only: bool,
    /// True if it can enrol new voices from recordings.
    cloning: bool,
    /// True if it takes images.
    images: bool,
}

impl ModelCapabilities {
    fn of(info: &ModelInfo) -> Self {
        Self {
            voices: info.voices.clone(),
            default_voice: info.default_voice.clone(),
            input_rate: info.input_rate,
            output_rate: info.output_rate,
            frame_ms: u64::try_from(info.frame.as_millis()).unwrap_or(u64::MAX),
            context_tokens: info.context_tokens,
            hears: info.audio_input,
            live_transcription: info.hears_text,
            answers: info.answers,
            audio_output: info.audio_output,
            tools: info.tools,
            tool_choice: if info.answer_forms { &["auto", "none", "required", "function"] } else { &["auto", "none"] },
            response_format: if info.answer_forms { &["text", "json_object", "json_schema"] } else { &["text"] },
            transcription: info.transcribes,
            translation: info.hearing.translates,
            word_times: info.hearing.word_times,
            speech: info.given_text || info.reads_messages.is_some(),
            speech_only: info.given_text && info.reads_only,
            cloning: info.recording_rate.is_some(),
            images: false,
        }
    }
}

/// List of models on the wire.
#[derive(Debug, Serialize)]
pub(super) struct List {
    object: &'static str,
    data: Vec<Model>,
}

fn served(app: &AppState) -> Model {
    let info = app.info();
    let (id, repartee) = (info.name.clone(), Some(ModelCapabilities::of(&info)));
    Model { id, object: "model", created: app.started, owned_by: "repartee", repartee }
}

/// Returns the capabilities of the served model without its enrolled voices, for pages before they have a key.
pub(super) fn capabilities(app: &AppState) -> Value {
    json!(ModelCapabilities::of(app.engine.info()))
}

pub(super) async fn list(State(app): State<Arc<AppState>>) -> Json<List> {
    let own = served(&app);
    #[cfg(feature = "cluster")]
    let others = super::cluster::nodes::other_models(&app);
    #[cfg(not(feature = "cluster"))]
    let others = Vec::new();
    let (object, created, owned_by) = (own.object, own.created, own.owned_by);
    let others = others.into_iter().map(|id| Model { id, object, created, owned_by, repartee: None });
    Json(List { object: "list", data: std::iter::once(own).chain(others).collect() })
}

pub(super) async fn show(State(app): State<Arc<AppState>>, UrlName(id): UrlName) -> Result<Json<Model>, ApiError> {
    let model = served(&app);
    if id == model.id {
        return Ok(Json(model));
    }
    let message = format!("this server has one model, `{}`; calls that ask for another are answered by it", model.id);
    Err(ApiError::new(StatusCode::NOT_FOUND, ErrorBody::invalid(ErrorKind::UnknownModel, message).with_param("model")))
}
