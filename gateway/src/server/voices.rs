//! `/v1/audio/voices` and `/v1/audio/voice_consents`: voices enrolled from recordings, in the formats of the OpenAI
//! API.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, Request, State};
#[cfg(feature = "cluster")]
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::AppState;
use super::api_error::ApiError;
use super::caller::Caller;
use super::extract::UrlName;
use super::form::{self, Field};
use super::uploads::HeldBody;
use super::warnings::warn;
use crate::voices::{Consent, EnrolledVoice, MAX_NAME_CHARS, Voice, VoiceError, VoiceStore};

/// Maximum size of a recording in bytes, as in the OpenAI API.
pub(super) const MAX_RECORDING: usize = 10 << 20;
/// Field of a voice with its recording.
const RECORDING: &str = "audio_sample";
/// Maximum size of any other field, in bytes.
const MAX_FIELD: usize = 16 << 10;
/// Maximum size of a form, in bytes.
pub(super) const MAX_BODY: usize = MAX_RECORDING + 4 * MAX_FIELD;
/// Maximum size of a request to rename a consent, in bytes: 16 for each character, because JSON may escape it.
pub(super) const MAX_RENAME: usize = 16 * MAX_NAME_CHARS;
/// Allowed numbers of consents on a page, as in the OpenAI API.
const PAGE: RangeInclusive<usize> = 1..=100;
const DEFAULT_PAGE: usize = 20;

/// Fields of a consent.
pub(super) const CONSENT: [Field; 3] = [("name", MAX_FIELD), ("language", MAX_FIELD), ("recording", MAX_RECORDING)];
/// Fields of a voice. `text`, the transcript of the recording, is an extension. `prompt`, `model` and `script_hint` are
/// known so that errors can name them.
pub(super) const VOICE: [Field; 8] = [
    ("name", MAX_FIELD),
    ("consent", MAX_FIELD),
    (RECORDING, MAX_RECORDING),
    ("text", MAX_FIELD),
    ("type", MAX_FIELD),
    ("prompt", MAX_FIELD),
    ("model", MAX_FIELD),
    ("script_hint", MAX_FIELD),
];

#[derive(Debug, Deserialize)]
pub(super) struct PageQuery {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rename {
    name: String,
}

#[derive(Debug, Serialize)]
struct WireVoice<'a> {
    id: &'a str,
    object: &'static str,
    name: &'a str,
    /// `audio_sample` for an enrolled voice; the extension `model` for one of the model's own.
    #[serde(rename = "type")]
    kind: &'static str,
    created_at: u64,
}

fn consent_on_wire(consent: &Consent) -> Value {
    let mut wire = json!(consent);
    wire["object"] = "audio.voice_consent".into();
    wire
}

fn voice_on_wire(voice: &Voice) -> Value {
    let (id, name, created_at) = (&voice.id, &voice.name, voice.created_at);
    json!(WireVoice { id, object: "audio.voice", name, kind: "audio_sample", created_at })
}

/// Lists the model's voices, the default one first, then the enrolled ones.
pub(super) async fn list(State(app): State<Arc<AppState>>) -> Json<Value> {
    let own = app.engine.info().voices.iter();
    let own = own
        .map(|name| json!(WireVoice { id: name, object: "audio.voice", name, kind: "model", created_at: app.started }));
    let made = app.voices.voices();
    let data: Vec<Value> = own.chain(made.iter().map(voice_on_wire)).collect();
    Json(json!({"object": "list", "data": data}))
}

pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    app.check_rate(&caller)?;
    if form::media_type(request.headers()) == "application/json" {
        return Err(prompted());
    }
    let voice = with_form(&app, &caller, request, &VOICE, |store, form| {
        if form.text("type")?.is_some_and(|kind| kind != "audio_sample") || form.has("prompt") {
            return Err(prompted());
        }
        let name = form.needed_text("name")?;
        let consent = form.needed_text("consent")?;
        let text = form.text("text")?.unwrap_or_default();
        store.add_voice(&name, &consent, form.needed(RECORDING)?, &text).map_err(refused)
    });
    let EnrolledVoice { voice, warning } = voice.await?;
    let mut reply = Json(voice_on_wire(&voice)).into_response();
    warn(reply.headers_mut(), &warning.unwrap_or_default());
    Ok(reply)
}

/// Consent in the form of a new voice; `None` if there is none, or the form cannot be read.
#[cfg(feature = "cluster")]
pub(super) fn consent_in(headers: &HeaderMap, body: Bytes) -> Option<String> {
    Form(form::read(headers, body, &VOICE, ErrorKind::InvalidValue).ok()?).text("consent").ok().flatten()
}

pub(super) async fn delete(State(app): State<Arc<AppState>>, UrlName(id): UrlName) -> Result<Json<Value>, ApiError> {
    let deleted = json!({"id": &id, "object": "audio.voice.deleted", "deleted": true});
    with_store(&app, move |store| store.delete_voice(&id)).await?;
    Ok(Json(deleted))
}

pub(super) async fn create_consent(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    app.check_rate(&caller)?;
    let consent = with_form(&app, &caller, request, &CONSENT, |store, form| {
        let (name, language) = (form.needed_text("name")?, form.needed_text("language")?);
        store.add_consent(&name, &language, form.needed("recording")?).map_err(refused)
    });
    Ok(Json(consent_on_wire(&consent.await?)))
}

pub(super) async fn consents(
    State(app): State<Arc<AppState>>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(PageQuery { after, limit }) = query.map_err(|error| invalid("limit", &error.body_text()))?;
    let limit = limit.unwrap_or(DEFAULT_PAGE);
    if !PAGE.contains(&limit) {
        return Err(invalid("limit", &format!("a page has {} to {} consents", PAGE.start(), PAGE.end())));
    }
    let all = app.voices.consents();
    let begin = match after {
        None => 0,
        Some(after) => {
            let at = all.iter().position(|consent| consent.id == after);
            at.ok_or_else(|| refused(VoiceError::UnknownConsent(after)))? + 1
        }
    };
    let page: Vec<Value> = all.iter().skip(begin).take(limit).map(consent_on_wire).collect();
    let id = |at: Option<&Value>| at.map(|consent| consent["id"].clone());
    Ok(Json(json!({
        "object": "list",
        "first_id": id(page.first()),
        "last_id": id(page.last()),
        "has_more": all.len() > begin + page.len(),
        "data": page,
    })))
}

pub(super) async fn consent(State(app): State<Arc<AppState>>, UrlName(id): UrlName) -> Result<Json<Value>, ApiError> {
    app.voices.consent(&id).map(|consent| Json(consent_on_wire(&consent))).map_err(refused)
}

pub(super) async fn rename_consent(
    State(app): State<Arc<AppState>>,
    UrlName(id): UrlName,
    rename: Result<Json<Rename>, JsonRejection>,
) -> Result<Json<Value>, ApiError> {
    let Json(Rename { name }) = rename.map_err(|error| invalid("name", &error.body_text()))?;
    let consent = with_store(&app, move |store| store.rename_consent(&id, &name)).await?;
    Ok(Json(consent_on_wire(&consent)))
}

pub(super) async fn delete_consent(
    State(app): State<Arc<AppState>>,
    UrlName(id): UrlName,
) -> Result<Json<Value>, ApiError> {
    let deleted = json!({"id": &id, "object": "audio.voice_consent", "deleted": true});
    with_store(&app, move |store| store.delete_consent(&id)).await?;
    Ok(Json(deleted))
}

/// Fields of a form by name.
struct Form(BTreeMap<String, Bytes>);

impl Form {
    fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    fn needed(&self, field: &'static str) -> Result<&[u8], ApiError> {
        self.0.get(field).map(|bytes| &bytes[..]).ok_or_else(|| missing(field))
    }

    fn text(&self, field: &'static str) -> Result<Option<String>, ApiError> {
        let text = self.0.get(field).map(|bytes| String::from_utf8(bytes.to_vec()));
        text.transpose().map_err(|_| invalid(field, "this field is not text"))
    }

    fn needed_text(&self, field: &'static str) -> Result<String, ApiError> {
        self.text(field)?.ok_or_else(|| missing(field))
    }
}

/// Reads a form within the upload limits and passes it to `work` on a blocking thread.
async fn with_form<T: Send + 'static>(
    app: &Arc<AppState>,
    caller: &Caller,
    request: Request,
    fields: &'static [Field],
    work: impl FnOnce(&VoiceStore, &Form) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let (parts, body) = request.into_parts();
    form::check_type(&parts.headers)?;
    let HeldBody { bytes, charge } = app.read_body(caller, body, MAX_BODY).await?;
    let read = move |bytes| form::read(&parts.headers, bytes, fields, ErrorKind::InvalidValue);
    let form = Form(app.parse_body(caller, bytes, read).await??);
    let app = app.clone();
    // The store enrols one voice at a time, which may take the model seconds.
    let done = tokio::task::spawn_blocking(move || {
        let done = work(&app.voices, &form);
        drop((form, charge));
        done
    });
    done.await.map_err(|error| ApiError::internal(&error.to_string()))?
}

/// Calls the store on a blocking thread, because it writes files.
async fn with_store<T: Send + 'static>(
    app: &Arc<AppState>,
    work: impl FnOnce(&VoiceStore) -> Result<T, VoiceError> + Send + 'static,
) -> Result<T, ApiError> {
    let app = app.clone();
    let done = tokio::task::spawn_blocking(move || work(&app.voices)).await;
    done.map_err(|error| ApiError::internal(&error.to_string()))?.map_err(refused)
}

/// Answer to an error of the store; `recording` is the field with a voice's recording.
pub(super) fn refused_for(recording: &'static str, error: VoiceError) -> ApiError {
    match error {
        VoiceError::Field { field, problem } => invalid(field, &problem),
        VoiceError::UnknownConsent(_) | VoiceError::UnknownVoice(_) => ApiError::not_found(&error.to_string()),
        VoiceError::Full { .. } => {
            let field = if recording == RECORDING { "name" } else { recording };
            invalid(field, &error.to_string())
        }
        VoiceError::Enrol(error) => invalid(recording, &error.to_string()),
        VoiceError::Io(reason) if is_full(&reason) => {
            tracing::error!(%reason, "a voice cannot be saved: make space where voices.folder is");
            let message = "the server has no space to save this: nothing was kept, try again later";
            ApiError::new(StatusCode::INSUFFICIENT_STORAGE, ErrorBody::server(ErrorKind::StorageFull, message))
        }
        VoiceError::Random(_) | VoiceError::Io(_) => ApiError::internal(&error.to_string()),
    }
}

/// True if a write failed because nothing more fits.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn refused(error: VoiceError) -> ApiError {
    refused_for(RECORDING, error)
}

fn invalid(field: &'static str, problem: &str) -> ApiError {
    ApiError::bad_request(ErrorBody::invalid(ErrorKind::InvalidValue, problem).with_param(field))
}

fn missing(field: &'static str) -> ApiError {
    let message = format!("the form has no `{field}`");
    ApiError::bad_request(ErrorBody::invalid(ErrorKind::MissingField, message).with_param(field))
}

fn prompted() -> ApiError {
    let message = "this server enrols voices from recordings: send `audio_sample`, `consent` and `name` as \
                   multipart/form-data; to describe a voice in words, use `instructions` with a model that designs voices";
    invalid("type", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_by_name() {
        for (reason, status, code) in [
            (io::ErrorKind::StorageFull, 507, "storage_full"),
            (io::ErrorKind::QuotaExceeded, 507, "storage_full"),
            (io::ErrorKind::PermissionDenied, 500, "internal_error"),
        ] {
            let error = refused(VoiceError::Io(io::Error::from(reason)));
            assert_eq!(error.code(), code, "{reason}");
            assert_eq!(error.into_response().status(), status, "{reason}");
        }
    }
}
