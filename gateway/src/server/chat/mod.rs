//! `POST /v1/chat/completions`: one question in one upload, with audio in and out. It is the baseline of a realtime
//! call.
//!
//! - `request`: parsing a request, with errors and warnings for unsupported fields
//! - `messages`: messages of the conversation
//! - `functions`: functions, and the choice among them
//! - `demands`: forms of an answer
//! - `completion`: the response body, whole or as a stream

mod completion;
mod demands;
mod functions;
mod messages;
mod request;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Request, State};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use repartee_engine_api::{Command, Event, MessageContent, ModelInfo};
use repartee_protocol::ErrorBody;
use repartee_protocol::error::ErrorEvent;

use super::AppState;
use super::api_error::ApiError;
use super::caller::Caller;
use super::generation::Generation;
use super::uploads::HeldBody;
use crate::long_work::WorkPermit;
use completion::{ChunkBuilder, CompletionBuilder, Metadata, WriteError};
use request::CompletionPlan;

/// Maximum size of a request, in bytes: some minutes of audio.
const MAX_BODY: usize = 20 << 20;

pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    // A full server refuses before it reads the body.
    app.check_capacity(caller.client.key)?;
    app.check_sound(&caller)?;
    let HeldBody { bytes, charge } = app.read_body(&caller, request.into_body(), MAX_BODY).await?;
    #[cfg(feature = "cluster")]
    super::cluster::voices::find_named(&app, &caller, &bytes).await;
    let info = app.info();
    // The charge goes with the bytes: the work may go on for a while after its client has gone.
    let read = move |permit: &mut WorkPermit| (CompletionPlan::read(&bytes, &info, permit), charge);
    let (plan, mut charge) = app.long_work(&caller, read).await?;
    let plan = plan.map_err(ApiError::bad_request)?;
    // From now on the decoded sound is held, in place of the body.
    charge.set(held_bytes(&plan.commands)).map_err(|error| app.no_room(error))?;
    app.take_sound(&caller, plan.sound)?;
    let (session, guard) = app.admit(&caller)?;
    let metadata = metadata(&app, &plan)?;
    plan.commands.iter().for_each(|command| app.metrics.held_answers.count(command));
    let mut generation = Generation::new(&app, &metadata.id, session, guard, plan.commands);
    generation.hold(charge);
    if plan.one_call {
        generation.keep_one_call();
    }
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

/// Bytes of text and sound that commands hold.
fn held_bytes(commands: &[Command]) -> usize {
    let content = |content: &MessageContent| match content {
        MessageContent::Text { text, .. } => text.len(),
        MessageContent::Audio(samples) => size_of_val(&samples[..]),
        MessageContent::ToolCall { name, arguments } => name.len() + arguments.len(),
        MessageContent::ToolResult(output) => output.len(),
    };
    let bytes = commands.iter().map(|command| match command {
        Command::Append(samples) => size_of_val(&samples[..]),
        Command::Insert { content: inserted, .. } => content(inserted),
        Command::SetInstructions(text) => text.len(),
        _ => 0,
    });
    bytes.sum::<usize>() + size_of_val(commands)
}

/// Reads a body as [`create`] does; returns its commands.
pub(super) fn read_commands(body: &[u8], info: &ModelInfo, permit: &mut WorkPermit) -> Result<Vec<Command>, ErrorBody> {
    CompletionPlan::read(body, info, permit).map(|plan| plan.commands)
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
