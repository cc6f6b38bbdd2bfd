//! `POST /v1/chat/completions`: one question in one upload, with audio in and out. It is the baseline of a realtime
//! call.
//!
//! - `request`: parsing a request, with errors and warnings for unsupported fields
//! - `completion`: the response body, whole or as a stream

mod completion;
mod request;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Request, State};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use repartee_engine_api::Event;
use repartee_protocol::error::ErrorEvent;

use super::AppState;
use super::api_error::ApiError;
use super::caller::Caller;
use super::generation::Generation;
use super::uploads::UploadError;
use completion::{ChunkBuilder, CompletionBuilder, Metadata, WriteError};
use request::CompletionPlan;

/// Maximum size of a request, in bytes: some minutes of audio.
pub(super) const MAX_BODY: usize = 20 << 20;
/// Maximum bytes of requests in memory.
pub(super) const MAX_UPLOADED: usize = 8 * MAX_BODY;
/// Maximum bytes of requests in memory from one address.
pub(super) const MAX_UPLOADED_BY_ONE: usize = 2 * MAX_BODY;

pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    // A full server refuses before it reads the body.
    app.check_capacity()?;
    let mut upload = app.uploads.begin(caller.client.address);
    let body = upload.read(request.into_body(), MAX_BODY).await.map_err(|error| match error {
        UploadError::NoRoom(error) => app.full(&error.to_string()),
        UploadError::Refused(error) => error,
    })?;
    let decoder = app.uploads.decoder().await;
    let info = app.info();
    // Decoding minutes of audio takes long, so it runs on a blocking thread.
    let plan = tokio::task::spawn_blocking(move || {
        let plan = CompletionPlan::read(&body, &info);
        drop((body, upload, decoder));
        plan
    });
    let plan = plan.await.map_err(|error| ApiError::internal(&error.to_string()))?.map_err(ApiError::bad_request)?;
    let (session, guard) = app.admit(&caller)?;
    let metadata = metadata(&app, &plan)?;
    let mut generation = Generation::new(&app, &metadata.id, session, guard, plan.commands);
    let rate = app.engine.info().output_rate;
    if plan.stream {
        let chunks = ChunkBuilder::new(metadata, rate, plan.audio.is_some(), plan.include_usage)
            .map_err(|error| ApiError::internal(&error.to_string()))?;
        return Ok(streamed(generation, chunks));
    }
    let mut completion = CompletionBuilder::new(metadata, rate, plan.audio);
    loop {
        match generation.next().await? {
            Event::SegmentFinished { reason, usage, .. } => {
                let done = completion.finish(reason, &usage).map_err(|error| ApiError::internal(&error.to_string()))?;
                return Ok(Json(done).into_response());
            }
            event => completion.add(event),
        }
    }
}

/// Creates id, time, model and warnings of a completion.
fn metadata(app: &AppState, plan: &CompletionPlan) -> Result<Metadata, ApiError> {
    let id = app.ids.completion().map_err(|error| ApiError::internal(&error.to_string()))?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Metadata { id, created, model: app.engine.info().name.clone(), warnings: plan.warnings.clone() })
}

/// Streams the response as server-sent events. Nothing is generated ahead of the reader, and a reader who disconnects
/// frees the session.
fn streamed(generation: Generation, chunks: ChunkBuilder) -> Response {
    let pieces = stream::unfold((generation, chunks, false), |(mut generation, mut chunks, done)| async move {
        if done {
            return None;
        }
        let event = generation.next().await;
        let finished = matches!(event, Ok(Event::SegmentFinished { .. }));
        let built = match event {
            Ok(Event::SegmentFinished { reason, usage, .. }) => chunks.finish(reason, &usage).map_err(internal),
            Ok(event) => chunks.add(event).map_err(internal),
            Err(refusal) => Err(refusal),
        };
        let done = finished || built.is_err();
        let mut events: Vec<_> = match built {
            Ok(built) => built.into_iter().map(|chunk| sse::Event::default().json_data(chunk)).collect(),
            Err(error) => vec![sse::Event::default().json_data(ErrorEvent { error: error.into_error() })],
        };
        if finished {
            events.push(Ok(sse::Event::default().data("[DONE]")));
        }
        // The session is held until the reader has taken the last event.
        Some((events, (generation, chunks, done)))
    });
    Sse::new(pieces.flat_map(stream::iter)).into_response()
}

fn internal(error: WriteError) -> ApiError {
    ApiError::internal(&error.to_string())
}
