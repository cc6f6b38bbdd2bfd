//! `POST /v1/chat/completions`: one question in one upload, with sound in and out. What a realtime call is compared with.
//!
//! - `request`: what is asked, and what of it cannot be served
//! - `answering`: the engine's side: commands in, events out
//! - `reply`: what is answered, whole or as a stream

mod answering;
mod reply;
mod request;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use repartee_engine_api::{Event, SessionError};
use repartee_protocol::error::ErrorEvent;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::engine_error;

use super::App;
use super::app::Place;
use super::gate::Caller;
use super::reply::Refusal;
use answering::Answering;
use reply::{Chunk, Completion, Deltas, Label};
use request::Plan;

/// The largest request, in bytes: some minutes of sound.
pub(super) const MAX_BODY: usize = 20 << 20;
/// Requests that may be read and decoded at once.
pub(super) const MAX_UPLOADS: usize = 8;

pub(super) async fn create(State(app): State<Arc<App>>, caller: Caller, request: Request) -> Result<Response, Refusal> {
    // A full server does no work, and what waits in memory is bounded before anything is read.
    app.has_room()?;
    let upload = app.uploads.clone().try_acquire_owned().map_err(|_| app.full("too many uploads at once"))?;
    let body = Bytes::from_request(request, &()).await.map_err(|rejection| {
        Refusal::new(rejection.status(), ErrorBody::invalid(ErrorKind::TooLarge, rejection.body_text()))
    })?;
    let info = app.engine.info().clone();
    // Minutes of sound take a while to decode.
    let plan = tokio::task::spawn_blocking(move || {
        let plan = Plan::read(&body, &info);
        drop((body, upload));
        plan
    });
    let plan = plan.await.map_err(|error| Refusal::internal(&error.to_string()))?.map_err(Refusal::bad_request)?;
    let (session, place) = app.admit(&caller)?;
    let label = label(&app, &plan)?;
    let answering = Answering::new(session, plan.commands);
    let mut answer = Answer { answering, stop: Box::pin(app.stopped()), _place: place };
    let rate = app.engine.info().output_rate;
    if plan.stream {
        let deltas = Deltas::new(label, rate, plan.sound.is_some(), plan.include_usage)
            .map_err(|error| Refusal::internal(&error.to_string()))?;
        return Ok(streamed(answer, deltas));
    }
    let mut completion = Completion::new(label, rate, plan.sound);
    loop {
        match answer.next().await? {
            Event::SegmentFinished { reason, usage, .. } => {
                let done = completion.finish(reason, &usage).map_err(|error| Refusal::internal(&error.to_string()))?;
                return Ok(Json(done).into_response());
            }
            event => completion.add(event),
        }
    }
}

/// Names of the answer.
fn label(app: &App, plan: &Plan) -> Result<Label, Refusal> {
    let id = app.ids.completion().map_err(|error| Refusal::internal(&error.to_string()))?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Label { id, created, model: app.engine.info().name.clone(), warnings: plan.warnings.clone() })
}

/// An answer while it is made. Dropping it frees the session.
struct Answer {
    answering: Answering,
    /// The server goes down and has waited long enough.
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: Place,
}

impl Answer {
    /// What comes next, or why nothing does.
    async fn next(&mut self) -> Result<Event, Refusal> {
        let event = tokio::select! {
            event = self.answering.next() => event,
            () = &mut self.stop => {
                let error = ErrorBody::server(ErrorKind::ShuttingDown, "the server is going down");
                return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error));
            }
        };
        match event {
            Some(Event::Failed { error, .. }) => Err(failed(&error)),
            Some(event) => Ok(event),
            None => Err(Refusal::internal("the engine has ended a session")),
        }
    }
}

fn failed(error: &SessionError) -> Refusal {
    let body = engine_error(error);
    let ours = body.code.as_deref() == Some(ErrorKind::Internal.code());
    Refusal::new(if ours { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::BAD_REQUEST }, body)
}

/// The answer as server-sent events. Nothing is made ahead of the reader, and a reader who goes away frees everything.
fn streamed(answer: Answer, deltas: Deltas) -> Response {
    struct State {
        answer: Answer,
        deltas: Deltas,
        over: bool,
    }
    let state = State { answer, deltas, over: false };
    let events = stream::unfold(state, |mut state| async move {
        if state.over {
            return None;
        }
        let mut text = String::new();
        match state.answer.next().await {
            Ok(Event::SegmentFinished { reason, usage, .. }) => {
                match state.deltas.finish(reason, &usage) {
                    Ok(chunks) => chunks.iter().for_each(|chunk| send(chunk, &mut text)),
                    Err(error) => send_error(Refusal::internal(&error.to_string()), &mut text),
                }
                text.push_str("data: [DONE]\n\n");
                state.over = true;
            }
            Ok(event) => match state.deltas.add(event) {
                Ok(chunks) => chunks.iter().for_each(|chunk| send(chunk, &mut text)),
                Err(error) => {
                    send_error(Refusal::internal(&error.to_string()), &mut text);
                    state.over = true;
                }
            },
            Err(refusal) => {
                send_error(refusal, &mut text);
                state.over = true;
            }
        }
        Some((Ok::<_, Infallible>(Bytes::from(text)), state))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(events)).into_response()
}

fn send(chunk: &Chunk, text: &mut String) {
    match serde_json::to_string(chunk) {
        Ok(json) => text.push_str(&format!("data: {json}\n\n")),
        Err(error) => tracing::error!(%error, "a chunk could not be written"),
    }
}

fn send_error(refusal: Refusal, text: &mut String) {
    if let Ok(json) = serde_json::to_string(&ErrorEvent { error: refusal.into_error() }) {
        text.push_str(&format!("data: {json}\n\n"));
    }
}
