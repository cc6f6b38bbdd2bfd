//! `POST /v1/audio/speech`: speech synthesis of a given text, by a model that supports it.
//!
//! The text is a field of a JSON object as in the OpenAI API, or streams in as a plain-text body while its audio
//! streams out.
//!
//! - `request`: parsing a request
//! - `reference`: fields of a recording whose voice reads
//! - `text_body`: a text that streams in
//! - `synthesis`: responses of the engine, one for each piece
//! - `audio`: encoding the body

mod audio;
mod reference;
mod request;
mod synthesis;
mod text_body;

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, TRAILER};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use repartee_engine_api::ModelInfo;
use repartee_protocol::ErrorBody;
use repartee_protocol::error::ErrorEvent;
use serde_json::json;

use super::AppState;
use super::api_error::ApiError;
use super::caller::Caller;
#[cfg(feature = "cluster")]
use super::cluster;
use super::extract::bad_query;
use super::form::media_type;
use super::generation::Generation;
use super::timed_body::BodyDeadline;
use super::uploads::HeldBody;
use super::voices::{MAX_RECORDING, refused_for};
use super::warnings::{WARNINGS, warn};
use crate::byte_budget::ByteCharge;
use crate::read_text::ReadText;
use crate::voices::PassingVoice;
use audio::AudioWriter;
use reference::Reference;
use request::SpeechPlan;
use synthesis::{SpeechSynthesis, internal};
use text_body::TextBody;

/// Maximum size of a request, in bytes: the longest text with every character escaped, and a recording in base64.
const MAX_BODY: usize = 14 << 20;
const _: () = assert!((64 << 10) + MAX_RECORDING.div_ceil(3) * 4 <= MAX_BODY, "a recording fits");
/// Media type of a body that is the text itself.
const PLAIN_TEXT: &str = "text/plain";

pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    app.check_capacity(caller.client.key)?;
    let (mut plan, text, body, charge) = parse(&app, &caller, request).await?;
    let (session, guard) = app.admit(&caller)?;
    // A voice is enrolled for those alone who have a place: it may take the model seconds.
    let voice = match (plan.reference.take(), charge) {
        (Some(reference), Some(charge)) => Some(pass_voice(&app, &caller, reference, charge).await?),
        _ => None,
    };
    if let Some(voice) = &voice {
        plan.voice = Some(voice.id().to_owned());
        plan.warnings.extend(voice.warning().map(str::to_owned));
    }
    let random = |error: getrandom::Error| ApiError::internal(&error.to_string());
    let (mut seed, mut serial) = ([0; 8], [0; 4]);
    getrandom::fill(&mut seed).map_err(random)?;
    getrandom::fill(&mut serial).map_err(random)?;
    let rate = app.engine.info().output_rate;
    let writer = AudioWriter::new(plan.format, rate, u32::from_le_bytes(serial)).map_err(internal)?;
    let content_type = writer.content_type();
    let warnings = plan.warnings.join("; ");
    let events = plan.events;
    let id = app.ids.speech().map_err(random)?;
    let generation = Generation::new(&app, &id, session, guard, Vec::new());
    let read = ReadText::new(app.engine.info(), app.config.engine.spoken_text.options());
    let mut speech =
        SpeechSynthesis::new(generation, (plan, voice), (&text, body, read), (writer, rate), u64::from_le_bytes(seed));
    // An error before the first audio gets its own HTTP status.
    let first = speech.next().await?;
    let mut response = if events { as_events(speech, first) } else { as_audio(speech, first, content_type) };
    warn(response.headers_mut(), &warnings);
    Ok(response)
}

/// Reads the JSON body of a request as [`create`] does; returns the text.
pub(super) fn read_text_of(body: &[u8], info: &ModelInfo) -> Result<String, ErrorBody> {
    SpeechPlan::read(body, info).map(|(_, text)| text)
}

/// Parses the request: the plan, the text or else the body that streams it, and the bytes that a recording holds.
async fn parse(
    app: &Arc<AppState>,
    caller: &Caller,
    request: Request,
) -> Result<(SpeechPlan, String, Option<TextBody>, Option<ByteCharge>), ApiError> {
    if media_type(request.headers()) != PLAIN_TEXT {
        let HeldBody { bytes, charge } = app.read_body(caller, request.into_body(), MAX_BODY).await?;
        #[cfg(feature = "cluster")]
        cluster::voices::find_named(app, caller, &bytes).await;
        let info = app.info();
        let parsed = app.parse_body(caller, bytes, move |bytes| SpeechPlan::read(&bytes, &info)).await?;
        let (plan, text) = parsed.map_err(ApiError::bad_request)?;
        let charge = plan.reference.is_some().then_some(charge);
        return Ok((plan, text, None, charge));
    }
    let fields = Query::try_from_uri(request.uri()).map_err(|rejection| bad_query(&rejection))?;
    #[cfg(feature = "cluster")]
    cluster::voices::find_named(app, caller, &Bytes::from(request.uri().to_string())).await;
    let plan = SpeechPlan::of_query(fields.0, &app.info()).map_err(ApiError::bad_request)?;
    if let Some(slow) = request.extensions().get::<BodyDeadline>() {
        slow.lift();
    }
    let text = TextBody::new(request.into_body(), app.call_limits().max_duration);
    Ok((plan, String::new(), Some(text), None))
}

/// Enrols the voice of a request's recording on a blocking thread, which may take the model seconds.
async fn pass_voice(
    app: &Arc<AppState>,
    caller: &Caller,
    reference: Reference,
    charge: ByteCharge,
) -> Result<PassingVoice, ApiError> {
    app.check_rate(caller)?;
    let app = Arc::clone(app);
    let enrol = move || {
        let Reference { recording, text, consent } = &reference;
        let fields = [reference::AUDIO, reference::TEXT];
        let voice = app.voices.pass_voice(consent, (recording, text), fields);
        drop((reference, charge));
        voice.map_err(|error| refused_for(reference::AUDIO, error))
    };
    tokio::task::spawn_blocking(enrol).await.map_err(|error| ApiError::internal(&error.to_string()))?
}

/// Streams the audio itself. An error cuts the body off, which a client notices; a text that was not spoken to its end is
/// a warning in the trailer.
fn as_audio(speech: SpeechSynthesis, first: Option<Bytes>, content_type: &'static str) -> Response {
    let pieces = stream::try_unfold(Some((speech, Some(first))), |state| async move {
        let Some((mut speech, first)) = state else { return Ok(None) };
        let next = match first {
            Some(first) => first,
            None => speech.next().await.map_err(|error| io::Error::other(error.into_error().message))?,
        };
        let frame = match next {
            Some(bytes) => Some((Frame::data(bytes), Some((speech, None)))),
            None => trailer(&speech).map(|trailer| (Frame::trailers(trailer), None)),
        };
        Ok::<_, io::Error>(frame)
    });
    let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-cache"), (TRAILER, "repartee-warnings")];
    (headers, Body::new(StreamBody::new(pieces))).into_response()
}

/// Trailer of a complete body, if there is a warning.
fn trailer(speech: &SpeechSynthesis) -> Option<HeaderMap> {
    let warning = HeaderValue::from_str(&speech.cut_warning()?).ok()?;
    Some(HeaderMap::from_iter([(WARNINGS, warning)]))
}

/// Streams the audio as server-sent events of the OpenAI API.
fn as_events(speech: SpeechSynthesis, first: Option<Bytes>) -> Response {
    let events = stream::unfold(Some((speech, Some(first))), |state| async move {
        let (mut speech, first) = state?;
        let next = match first {
            Some(first) => Ok(first),
            None => speech.next().await,
        };
        let (event, ended) = match next {
            Ok(Some(bytes)) => (json!({"type": "speech.audio.delta", "audio": STANDARD.encode(bytes)}), false),
            Ok(None) => {
                let mut done = json!({"type": "speech.audio.done", "usage": speech.usage()});
                if let Some(warning) = speech.cut_warning() {
                    done["repartee"] = json!({"warnings": [warning]});
                }
                (done, true)
            }
            Err(error) => (json!(ErrorEvent { error: error.into_error() }), true),
        };
        Some((sse::Event::default().json_data(event), (!ended).then_some((speech, None))))
    });
    Sse::new(events).into_response()
}
