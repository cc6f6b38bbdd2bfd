//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`: what is said in a sound file, in the formats of the OpenAI
//! API.
//!
//! The file is decoded piece by piece, cut at its pauses, while the model hears it: an hour takes no more memory than the
//! upload. Each piece is an audio item of one engine session.
//!
//! - `request`: parsing a request, and models that cannot
//! - `decoded_sound`: the sound of the file, piece by piece
//! - `transcript`: the transcript that grows
//! - `segments`: segments and words
//! - `formats`: bodies of answers
//! - `languages`: names of languages

mod decoded_sound;
mod formats;
mod languages;
mod request;
mod segments;
mod transcript;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use repartee_engine_api::ModelInfo;
use repartee_protocol::ErrorKind;
use repartee_protocol::error::ErrorEvent;
use serde_json::json;

use super::AppState;
use super::api_error::ApiError;
use super::caller::Caller;
use super::form;
use super::generation::Generation;
use super::uploads::HeldBody;
use super::warnings::warn;
use decoded_sound::{DecodedSound, SoundLimits};
use formats::{json_body, srt, token_usage, verbose_body, vtt};
use request::{MAX_FIELD, TranscriptFormat, TranscriptTask, TranscriptionPlan};
use segments::seconds;
use transcript::{TranscriptDelta, Transcription};

/// Longest piece of sound, in seconds: a window of Whisper has 30.
const PIECE_S: u32 = 28;
/// Longest piece if it becomes a segment, because the times of words are unknown.
const SEGMENT_S: u32 = 12;
/// Bytes of a form beside its file.
const FIELDS: usize = 8 * MAX_FIELD;

/// Transcribes a file.
pub(super) async fn transcribe(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    create(&app, &caller, request, TranscriptTask::Transcribe).await
}

/// Translates a file into English.
pub(super) async fn translate(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    create(&app, &caller, request, TranscriptTask::Translate).await
}

async fn create(
    app: &Arc<AppState>,
    caller: &Caller,
    request: Request,
    task: TranscriptTask,
) -> Result<Response, ApiError> {
    // A full server refuses before it reads the body, and so does a model that cannot.
    app.check_capacity(caller.client.key)?;
    let info = app.info();
    task.check(&info).map_err(ApiError::bad_request)?;
    let (parts, body) = request.into_parts();
    form::check_type(&parts.headers)?;
    let limits = &app.config.limits;
    let HeldBody { bytes, charge } = app.read_body(caller, body, most_bytes(limits.file_bytes)).await?;
    let known = info.clone();
    let read = move |bytes| {
        let form = form::read(&parts.headers, bytes, task.fields(), ErrorKind::InvalidValue)?;
        TranscriptionPlan::read(&form, &known, task).map_err(ApiError::bad_request)
    };
    let plan = app.parse_body(caller, bytes, read).await??;
    app.check_sound(caller)?;
    let (session, guard) = app.admit(caller)?;
    let id = app.ids.transcript().map_err(|error| ApiError::internal(&error.to_string()))?;
    let generation = Generation::new(app, &id, session, guard, Vec::new());
    let sound = SoundLimits { rate: info.input_rate, longest: longest(limits.file), piece_s: piece_s(&plan, &info) };
    let decoded = DecodedSound::begin(app.long_work.of(caller.client), plan.file.clone(), charge, sound);
    let plan = TranscriptionPlan { file: Bytes::new(), ..plan };
    let (warnings, streams) = (plan.warnings.join("; "), plan.stream);
    let account = app.budgets.account(caller.client.key);
    let transcription = Transcription::new(generation, (decoded, &info), plan, account, app.metrics.clone());
    let mut response = if streams { streamed(transcription).await? } else { whole(transcription).await? };
    warn(response.headers_mut(), &warnings);
    Ok(response)
}

/// Bytes of a form whose file has at most `file` bytes; 0 for no limit of its own.
fn most_bytes(file: u64) -> usize {
    match usize::try_from(file) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(file) => file.saturating_add(FIELDS),
    }
}

/// Longest sound by its setting; zero for no limit.
fn longest(setting: Duration) -> Duration {
    if setting.is_zero() { Duration::MAX } else { setting }
}

/// Longest piece of sound for a request.
fn piece_s(plan: &TranscriptionPlan, info: &ModelInfo) -> u32 {
    let times = !matches!(plan.format, TranscriptFormat::Json | TranscriptFormat::Text);
    if times && !info.hearing.word_times { SEGMENT_S } else { PIECE_S }
}

/// Answers with the whole transcript.
async fn whole(mut transcription: Transcription) -> Result<Response, ApiError> {
    while transcription.next().await?.is_some() {}
    let (plan, transcript) = transcription.result();
    let text = |body: String| ([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from(body)).into_response();
    Ok(match plan.format {
        TranscriptFormat::Json => Json(json_body(plan, transcript)).into_response(),
        TranscriptFormat::VerboseJson => Json(verbose_body(plan, transcript)).into_response(),
        TranscriptFormat::Text => text(format!("{}\n", transcript.text)),
        TranscriptFormat::Srt => text(srt(&transcript.segments)),
        TranscriptFormat::Vtt => text(vtt(&transcript.segments)),
    })
}

/// Streams the transcript as server-sent events of the OpenAI API. An error before the first part has its own HTTP status.
async fn streamed(mut transcription: Transcription) -> Result<Response, ApiError> {
    let first = transcription.next().await?;
    let events = stream::unfold(Some((transcription, Some(first))), |state| async move {
        let (mut transcription, first) = state?;
        let next = match first {
            Some(first) => Ok(first),
            None => transcription.next().await,
        };
        let (event, ended) = match next {
            Ok(Some(TranscriptDelta { text, heard })) => {
                let progress = json!({"heard_s": seconds(heard)});
                (json!({"type": "transcript.text.delta", "delta": text, "repartee": progress}), false)
            }
            Ok(None) => (done(&transcription), true),
            Err(error) => (json!(ErrorEvent { error: error.into_error() }), true),
        };
        Some((sse::Event::default().json_data(event), (!ended).then_some((transcription, None))))
    });
    Ok(Sse::new(events).into_response())
}

/// Last event of a stream.
fn done(transcription: &Transcription) -> serde_json::Value {
    let (_, transcript) = transcription.result();
    let languages: Vec<_> = transcript.language.iter().map(|code| json!({"code": code})).collect();
    let mut done = json!({
        "type": "transcript.text.done",
        "text": transcript.text,
        "languages": languages,
        "repartee": {"duration_s": seconds(transcript.duration)},
    });
    if let Some(usage) = token_usage(transcript) {
        done["usage"] = usage;
    }
    done
}
