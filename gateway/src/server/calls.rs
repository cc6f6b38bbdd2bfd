//! Calls over WebRTC: `POST /v1/realtime/calls`, `POST /v1/realtime/calls/{id}/hangup`, and sideband clients at
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
use super::api_error::ApiError;
use super::auth_middleware::Caller;
use super::offer::{MEDIA_TYPE, read_offer};
use crate::call;
use crate::transport::sideband::{AttachError, Sideband, Sidebands};
use crate::transport::webrtc::{AnswerError, TransportSettings, WebRtcTransport, answer};

/// Ids of ended calls that are kept, so that hanging up twice is no error.
const MAX_ENDED: usize = 4_096;
/// How long a sideband's closing message may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Running WebRTC calls, and the ids of ended ones.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    running: HashMap<String, ActiveCall>,
    ended: HashSet<String>,
    /// The ended ids, oldest first.
    order: VecDeque<String>,
}

#[derive(Debug)]
struct ActiveCall {
    hang_up: Arc<Notify>,
    sidebands: Sidebands,
}

impl Calls {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        // A panic cannot leave the lists half changed in a way that matters.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, id: String) {
        let mut registry = self.registry();
        registry.running.remove(&id);
        if registry.order.len() == MAX_ENDED
            && let Some(oldest) = registry.order.pop_front()
        {
            registry.ended.remove(&oldest);
        }
        if registry.ended.insert(id.clone()) {
            registry.order.push_back(id);
        }
    }
}

/// Removes a call from the registry when dropped.
struct Registration {
    app: Arc<App>,
    id: String,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.app.calls.ended(std::mem::take(&mut self.id));
    }
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    mut caller: Caller,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let offer = read_offer(&headers, body).await?;
    let (session, guard) = app.admit(&caller)?;
    if let Some(patch) = offer.session {
        caller.session = Some(Arc::new(with_patch(caller.session.as_deref(), &patch)));
    }
    let setup = app.setup(Delivery::Paced, &caller)?;
    if let Some(patch) = &setup.configuration {
        initial_session(&setup.session_id, &setup.model, patch)
            .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, error))?;
    }
    let (answer, call) = answer(&offer.sdp, &app.udp_mux).await.map_err(|error| match error {
        AnswerError::Internal(message) => ApiError::internal(&message),
        error => ApiError::new(
            StatusCode::BAD_REQUEST,
            ErrorBody::invalid(ErrorKind::InvalidOffer, error.to_string()).at("sdp"),
        ),
    })?;
    let settings = TransportSettings {
        input_rate: setup.model.input_rate,
        output_rate: setup.model.output_rate,
        stalled_after: app.config.stalled_after,
        receiver_buffer: app.udp_mux.settings().receiver_buffer,
    };
    let freed = call.freed();
    let transport = WebRtcTransport::new(call, settings, app.metrics.clone())
        .map_err(|error| ApiError::internal(&error.to_string()))?;
    let id = app.ids.call().map_err(|error| ApiError::internal(&error.to_string()))?;
    let location = format!("/v1/realtime/calls/{id}");
    let hang_up = Arc::new(Notify::new());
    let running = ActiveCall { hang_up: hang_up.clone(), sidebands: transport.sidebands() };
    app.calls.registry().running.insert(id.clone(), running);
    let registration = Registration { app: app.clone(), id };
    tokio::spawn(async move {
        let (drain, stopped) = (app.draining(), app.stopped());
        let stop = async {
            tokio::select! {
                () = stopped => {}
                () = hang_up.notified() => {}
            }
        };
        let ended = call::run(transport, session, setup, app.metrics.clone(), drain, stop).await;
        tracing::debug!(?ended, "a call ended");
        drop(registration);
        // The last events may still be in flight.
        freed.await;
        drop(guard);
    });
    Ok((StatusCode::CREATED, [(CONTENT_TYPE, MEDIA_TYPE), (LOCATION, &location)], answer).into_response())
}

/// `POST /v1/realtime/calls/{id}/hangup`: no error for a call that has ended already.
pub(super) async fn hang_up(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    let registry = app.calls.registry();
    if let Some(running) = registry.running.get(&id) {
        running.hang_up.notify_one();
    } else if !registry.ended.contains(&id) {
        return Err(unknown_call());
    }
    Ok(StatusCode::OK)
}

/// The key's session configuration with the call's own patch over it.
fn with_patch(bound: Option<&Value>, patch: &Value) -> Value {
    let mut whole = bound.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    merge(&mut whole, patch);
    whole
}

/// Attaches a sideband client to a running call.
pub(super) fn attach(app: &App, id: &str) -> Result<Sideband, ApiError> {
    let sidebands = app.calls.registry().running.get(id).map(|running| running.sidebands.clone());
    sidebands.ok_or_else(unknown_call)?.attach().map_err(|error| match error {
        AttachError::Ended => unknown_call(),
        AttachError::Full => {
            let body = ErrorBody::invalid(ErrorKind::SessionLimit, error.to_string()).at("call_id");
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, body)
        }
    })
}

/// Carries events between a client's socket and a call, until either ends.
pub(super) async fn relay(socket: WebSocket, sideband: Sideband, app: Arc<App>) {
    let Sideband { mut events, commands } = sideband;
    let (mut sink, mut incoming) = socket.split();
    let stalled_after = app.config.stalled_after;
    let to_client = async {
        while let Some(event) = events.recv().await {
            match timeout(stalled_after, sink.send(Message::text(&*event))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
        }
        Some(())
    };
    let to_call = async {
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
        ended = to_client => ended,
        () = to_call => None,
    };
    if ended.is_some() {
        send_close(sink, commands.is_closed()).await;
    }
}

async fn send_close(mut sink: SplitSink<WebSocket, Message>, call_is_over: bool) {
    let (code, reason) = if call_is_over { (1000, "the call is over") } else { (1013, "events were not read in time") };
    let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    // A client that reads nothing gets no closing message.
    let _ = timeout(CLOSE_TIMEOUT, sink.send(close)).await;
}

fn unknown_call() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        ErrorBody::invalid(ErrorKind::CallUnknown, "there is no such call").at("call_id"),
    )
}
