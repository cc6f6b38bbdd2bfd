//! Calls over WebRTC: `POST /v1/realtime/calls`, `POST /v1/realtime/calls/{id}/hangup`, and more clients of a call at
//! `GET /v1/realtime?call_id={id}`.
//!
//! The offer goes in and the answer comes out as SDP; everything else happens over the connection.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt as _, StreamExt as _};
use repartee_protocol::merge::merge;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::{Delivery, initial_session};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::App;
use super::gate::Caller;
use super::offer::{MEDIA_TYPE, read_offer};
use super::reply::Refusal;
use crate::call;
use crate::transport::sideband::{AttachError, Sideband, Sidebands};
use crate::transport::webrtc::{AnswerError, LineSettings, WebRtcLine, answer};

/// Ended calls that are remembered, so that hanging up twice is no error.
const REMEMBERED: usize = 4_096;
/// How long a sideband's farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// The calls that run, and those that did.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    running: HashMap<String, Running>,
    ended: HashSet<String>,
    /// The same ones in the order of their ends.
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Running {
    hang_up: Arc<Notify>,
    sidebands: Sidebands,
}

impl Calls {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        // Insertions and removals leave nothing that matters half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, id: String) {
        let mut lists = self.lists();
        lists.running.remove(&id);
        if lists.order.len() == REMEMBERED
            && let Some(oldest) = lists.order.pop_front()
        {
            lists.ended.remove(&oldest);
        }
        if lists.ended.insert(id.clone()) {
            lists.order.push_back(id);
        }
    }
}

/// Takes a call off the list when it ends, however that happens.
struct Listed {
    app: Arc<App>,
    id: String,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.app.calls.ended(std::mem::take(&mut self.id));
    }
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    mut caller: Caller,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let offer = read_offer(&headers, body).await?;
    let (session, place) = app.admit(&caller)?;
    if let Some(patch) = offer.session {
        caller.session = Some(Arc::new(with_patch(caller.session.as_deref(), &patch)));
    }
    let setup = app.setup(Delivery::Paced, &caller)?;
    if let Some(patch) = &setup.configuration {
        initial_session(&setup.session_id, &setup.model, patch)
            .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))?;
    }
    let (answer, call) = answer(&offer.sdp, &app.port).await.map_err(|error| match error {
        AnswerError::Internal(message) => Refusal::internal(&message),
        error => Refusal::new(
            StatusCode::BAD_REQUEST,
            ErrorBody::invalid(ErrorKind::InvalidOffer, error.to_string()).at("sdp"),
        ),
    })?;
    let settings = LineSettings {
        hears: setup.model.input_rate,
        speaks: setup.model.output_rate,
        stalled_after: app.config.stalled_after,
        receiver_buffer: app.port.settings().receiver_buffer,
    };
    let freed = call.freed();
    let line =
        WebRtcLine::new(call, settings, app.metrics.clone()).map_err(|error| Refusal::internal(&error.to_string()))?;
    let id = app.ids.call().map_err(|error| Refusal::internal(&error.to_string()))?;
    let location = format!("/v1/realtime/calls/{id}");
    let hang_up = Arc::new(Notify::new());
    let running = Running { hang_up: hang_up.clone(), sidebands: line.sidebands() };
    app.calls.lists().running.insert(id.clone(), running);
    let listed = Listed { app: app.clone(), id };
    tokio::spawn(async move {
        let (drain, stopped) = (app.draining(), app.stopped());
        let stop = async {
            tokio::select! {
                () = stopped => {}
                () = hang_up.notified() => {}
            }
        };
        let ended = call::run(line, session, setup, app.metrics.clone(), drain, stop).await;
        tracing::debug!(?ended, "a call ended");
        drop(listed);
        // The last events are still on their way.
        freed.await;
        drop(place);
    });
    Ok((StatusCode::CREATED, [(CONTENT_TYPE, MEDIA_TYPE), (LOCATION, &location)], answer).into_response())
}

/// Hangs up. A call that is over already has been hung up, too.
pub(super) async fn hang_up(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    let lists = app.calls.lists();
    if let Some(running) = lists.running.get(&id) {
        running.hang_up.notify_one();
    } else if !lists.ended.contains(&id) {
        return Err(unknown_call());
    }
    Ok(StatusCode::OK)
}

/// What a key stands for, changed by what the call itself asks for.
fn with_patch(bound: Option<&Value>, patch: &Value) -> Value {
    let mut whole = bound.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    merge(&mut whole, patch);
    whole
}

/// A place among the clients of a running call.
pub(super) fn attach(app: &App, id: &str) -> Result<Sideband, Refusal> {
    let sidebands = app.calls.lists().running.get(id).map(|running| running.sidebands.clone());
    sidebands.ok_or_else(unknown_call)?.attach().map_err(|error| match error {
        AttachError::Ended => unknown_call(),
        AttachError::Full => {
            let body = ErrorBody::invalid(ErrorKind::SessionLimit, error.to_string()).at("call_id");
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, body)
        }
    })
}

/// Carries events between a client's socket and a call, until either ends.
pub(super) async fn relay(socket: WebSocket, sideband: Sideband, app: Arc<App>) {
    let Sideband { mut events, commands } = sideband;
    let (mut sink, mut incoming) = socket.split();
    let stalled_after = app.config.stalled_after;
    let downwards = async {
        while let Some(event) = events.recv().await {
            match timeout(stalled_after, sink.send(Message::text(&*event))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
        }
        Some(())
    };
    let upwards = async {
        while let Some(Ok(message)) = incoming.next().await {
            match message {
                Message::Text(text) => {
                    // The call is over; the other half says so.
                    if commands.send(text.as_str().to_owned()).await.is_err() {
                        return std::future::pending().await;
                    }
                }
                Message::Close(_) => return,
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    };
    let ended = tokio::select! {
        ended = downwards => ended,
        () = upwards => None,
    };
    if ended.is_some() {
        farewell(sink, commands.is_closed()).await;
    }
}

async fn farewell(mut sink: SplitSink<WebSocket, Message>, call_is_over: bool) {
    let (code, reason) = if call_is_over { (1000, "the call is over") } else { (1013, "events were not read in time") };
    let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    // Whoever takes nothing hears no farewell.
    let _ = timeout(FAREWELL, sink.send(close)).await;
}

fn unknown_call() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        ErrorBody::invalid(ErrorKind::CallUnknown, "there is no such call").at("call_id"),
    )
}
