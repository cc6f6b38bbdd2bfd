//! `POST /v1/audio/speech`: a given text, read aloud by a model that can; and `GET /v1/audio/voices`.
//!
//! - `request`: parsing, and the text by sentences
//! - `audio`: the bytes of the body
//!
//! The sentences are responses of one session. Each is requested while the one before is spoken, so that between them nobody waits.

mod audio;
mod request;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use repartee_engine_api::{Command, Event, Respond, ResponseId};
use repartee_protocol::error::ErrorEvent;
use serde::Serialize;
use serde_json::json;

use super::App;
use super::api_error::ApiError;
use super::auth_middleware::Caller;
use super::generation::Generation;
use audio::{AudioWriter, WriteError};
use request::Plan;

/// The largest request, in bytes: the longest text with every character escaped.
pub(super) const MAX_BODY: usize = 64 << 10;
/// Sentences that are requested before the one that is spoken has ended.
const AHEAD: usize = 1;
/// Says what is served differently from what was requested.
const WARNINGS: HeaderName = HeaderName::from_static("repartee-warnings");

pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    app.check_capacity()?;
    let body = body.map_err(|rejection| ApiError::unreadable(&rejection))?;
    let plan = Plan::read(&body, &app.info()).map_err(ApiError::bad_request)?;
    let (session, guard) = app.admit(&caller)?;
    let random = |error: getrandom::Error| ApiError::internal(&error.to_string());
    let (mut seed, mut serial) = ([0; 8], [0; 4]);
    getrandom::fill(&mut seed).map_err(random)?;
    getrandom::fill(&mut serial).map_err(random)?;
    let rate = app.engine.info().output_rate;
    let writer = AudioWriter::new(plan.format, rate, u32::from_le_bytes(serial)).map_err(internal)?;
    let content_type = if plan.events { "text/event-stream" } else { writer.content_type() };
    let warnings = plan.warnings.join("; ");
    let events = plan.events;
    let id = app.ids.speech().map_err(random)?;
    let generation = Generation::new(&app, &id, session, guard, Vec::new());
    let mut speech = Speech::new(generation, plan, writer, u64::from_le_bytes(seed));
    // An error before the first sound has a status of its own.
    let first = speech.next().await?;
    let mut response = if events { as_events(speech, first) } else { as_audio(speech, first) };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A name that does not fit into a header is not worth an error.
    if let Ok(warnings) = HeaderValue::from_str(&warnings)
        && !warnings.is_empty()
    {
        headers.insert(WARNINGS, warnings);
    }
    Ok(response)
}

fn internal(error: WriteError) -> ApiError {
    ApiError::internal(&error.to_string())
}

/// A text while it is read.
struct Speech {
    generation: Generation,
    /// Pieces that were not requested yet.
    pieces: VecDeque<String>,
    /// What every piece is requested with.
    respond: Respond,
    /// Requested pieces that have not ended.
    open: usize,
    /// `None` once it is finished.
    writer: Option<AudioWriter>,
    usage: Usage,
}

/// What a text took, as published.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Usage {
    /// Tokens of the text.
    input_tokens: u32,
    /// Codec frames.
    output_tokens: u32,
    total_tokens: u32,
}

impl Speech {
    fn new(generation: Generation, plan: Plan, writer: AudioWriter, seed: u64) -> Self {
        let respond = Respond {
            voice: plan.voice,
            streamed: true,
            input: Some(Vec::new()),
            instructions: Some(plan.instructions),
            tools: Some(Vec::new()),
            seed,
            ..Respond::new(0, 0)
        };
        let mut speech = Self {
            generation,
            pieces: plan.pieces.into(),
            respond,
            open: 0,
            writer: Some(writer),
            usage: Usage::default(),
        };
        (0..=AHEAD).for_each(|_| speech.request());
        speech
    }

    /// Requests the next piece, if there is one.
    fn request(&mut self) {
        let Some(text) = self.pieces.pop_front() else { return };
        self.open += 1;
        let response: ResponseId = self.respond.response;
        // A token is a byte at least.
        let max_tokens = u32::try_from(text.len() + 1).ok();
        let respond = Respond { max_tokens, ..self.respond.clone() };
        self.respond.response += 1;
        self.respond.item += 1;
        self.generation.submit([
            Command::Respond(respond),
            Command::StreamText { response, text },
            Command::EndText { response },
        ]);
    }

    /// The next bytes, or the error that ends the response; `None` once all has been read.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let Some(writer) = &mut self.writer else { return Ok(None) };
            let bytes = if self.open == 0 {
                let writer = self.writer.take();
                writer.map_or(Ok(Bytes::new()), AudioWriter::finish).map_err(internal)?
            } else {
                match self.generation.next().await? {
                    Event::Audio { samples, .. } => writer.push(&samples).map_err(internal)?,
                    Event::SegmentFinished { usage, .. } => {
                        self.usage.input_tokens += usage.output_text_tokens;
                        self.usage.output_tokens += usage.output_audio_frames;
                        self.usage.total_tokens = self.usage.input_tokens + self.usage.output_tokens;
                        self.open -= 1;
                        self.request();
                        continue;
                    }
                    _ => continue,
                }
            };
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }
}

/// The audio itself. An error ends the body before its end, which a client sees.
fn as_audio(speech: Speech, first: Option<Bytes>) -> Response {
    let pieces = stream::try_unfold((speech, Some(first)), |(mut speech, first)| async move {
        let next = match first {
            Some(first) => first,
            None => speech.next().await.map_err(|error| io::Error::other(error.into_error().message))?,
        };
        Ok::<_, io::Error>(next.map(|bytes| (bytes, (speech, None))))
    });
    Body::from_stream(pieces).into_response()
}

/// Server-sent events as published.
fn as_events(speech: Speech, first: Option<Bytes>) -> Response {
    let events = stream::unfold(Some((speech, Some(first))), |state| async move {
        let (mut speech, first) = state?;
        let next = match first {
            Some(first) => Ok(first),
            None => speech.next().await,
        };
        let (event, ended) = match next {
            Ok(Some(bytes)) => (json!({"type": "speech.audio.delta", "audio": STANDARD.encode(bytes)}), false),
            Ok(None) => (json!({"type": "speech.audio.done", "usage": speech.usage}), true),
            Err(error) => (json!(ErrorEvent { error: error.into_error() }), true),
        };
        let text = Bytes::from(format!("data: {event}\n\n"));
        Some((Ok::<_, Infallible>(text), (!ended).then_some((speech, None))))
    });
    Body::from_stream(events).into_response()
}
