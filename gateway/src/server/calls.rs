//! Calls over WebRTC: `POST /v1/realtime/calls`, and sideband clients at `GET /v1/realtime?call_id={id}`. All calls:
//! `GET /v1/realtime/calls` and `POST /v1/realtime/calls/{id}/hangup`.
//!
//! The request's body is the SDP offer and the response's body the answer; everything else happens over the connection.

use std::future::Future;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::response::{IntoResponse as _, Response};
use repartee_protocol::merge::merge;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::{Delivery, SessionSetup, initial_session};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tracing::{Instrument as _, Span};

use super::AppState;
use super::api_error::ApiError;
use super::call_registry::{ActiveCall, CallOwner, ListedCall};
use super::caller::Caller;
use super::control::AbortOnDrop;
use super::extract::{UrlName, header_warnings};
use super::offer::{self, MEDIA_TYPE, Offer, read_offer};
use super::uploads::HeldBody;
use crate::call::{self, CallEnd, Transport as _};
use crate::telemetry::log;
use crate::transport::sideband::{AttachError, Sideband};
use crate::transport::webrtc::{AnswerError, TransportSettings, WebRtcTransport, answer};

/// Registration of a running call; moves it to the ended calls when dropped.
pub(super) struct Registration {
    app: Arc<AppState>,
    id: String,
    /// Reason of the call's end, once it is known.
    end: CallEnd,
}

impl Registration {
    /// Registers a call that begins to run, under its preferred id if no running call has it.
    pub fn new(app: Arc<AppState>, preferred: Option<String>, id: String, call: ActiveCall) -> Self {
        let mut registry = app.calls.registry();
        let id = preferred.filter(|preferred| !registry.running.contains_key(preferred)).unwrap_or(id);
        registry.running.insert(id.clone(), call);
        drop(registry);
        // A call that panics never says why it ended.
        Self { app, id, end: CallEnd::Failed }
    }

    /// Id of the call.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Ends the registration of a call that ended for this reason.
    pub fn end(mut self, end: CallEnd) {
        self.end = end;
    }
}

/// Waits until the server stops or the call is hung up by request.
pub(super) fn ended_by_server(app: &AppState, hang_up: Arc<Notify>) -> impl Future<Output = CallEnd> + Send + use<> {
    let stopped = app.stopped();
    async move {
        tokio::select! {
            () = stopped => CallEnd::Shutdown,
            () = hang_up.notified() => CallEnd::HungUp,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.app.calls.ended(std::mem::take(&mut self.id), self.end);
    }
}

pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let warnings = header_warnings(&parts.headers);
    let HeldBody { bytes, charge } = app.read_body(&caller, body, offer::MAX_BODY).await?;
    let read = move |bytes| (read_offer(&parts.headers, bytes), charge);
    let (offer, charge) = app.parse_body(&caller, bytes, read).await?;
    let offer = offer?;
    let id = app.ids.call().map_err(|error| ApiError::internal(&error.to_string()))?;
    let span = log::call_span(&id, WebRtcTransport::NAME);
    let begun = app.clone().spawn_call(answer_offer(app, caller, offer, id, warnings).instrument(span));
    // A caller who hangs up before the answer begins no call.
    let _abort = AbortOnDrop(begun.abort_handle());
    let answer = begun.await.map_err(|error| ApiError::internal(&error.to_string()))?;
    drop(charge);
    answer
}

/// Admits the call with this id and answers its offer.
async fn answer_offer(
    app: Arc<AppState>,
    mut caller: Caller,
    offer: Offer,
    id: String,
    warnings: Vec<String>,
) -> Result<Response, ApiError> {
    let (session, guard) = app.admit_call(&caller)?;
    if let Some(patch) = offer.session {
        caller.session = Some(Arc::new(with_patch(caller.session.as_deref(), &patch)));
    }
    #[cfg(feature = "cluster")]
    super::cluster::voices::find_in_session(&app, caller.session.as_deref()).await;
    let setup = SessionSetup { warnings, ..app.setup(Delivery::Paced, &caller)? };
    Span::current().record("session", &*setup.session_id);
    if let Some(patch) = &setup.configuration {
        initial_session(&setup.session_id, &setup.model, patch).map_err(ApiError::bad_request)?;
    }
    let (answer, call) =
        answer(&offer.sdp, &app.udp_mux, Some(caller.client.address)).await.map_err(|error| match error {
            AnswerError::Internal(message) => ApiError::internal(&message),
            error => ApiError::new(
                StatusCode::BAD_REQUEST,
                ErrorBody::invalid(ErrorKind::InvalidOffer, error.to_string()).with_param("sdp"),
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
    let location = format!("/v1/realtime/calls/{id}");
    let hang_up = Arc::new(Notify::new());
    let owner = CallOwner::of(&caller);
    let listed = ListedCall::new(WebRtcTransport::NAME, app.key_name(&caller), caller.client.address);
    let services = app.call_services(&id, &caller, &listed);
    let running = ActiveCall { owner, hang_up: hang_up.clone(), sidebands: Some(transport.sidebands()), listed };
    let registration = Registration::new(app.clone(), None, id, running);
    log::spawn(async move {
        let stop = ended_by_server(&app, hang_up);
        registration.end(call::run(transport, session, setup, services, app.draining(), stop).await);
        // The last events may still be in flight.
        freed.await;
        drop(guard);
    });
    Ok((StatusCode::CREATED, [(CONTENT_TYPE, MEDIA_TYPE), (LOCATION, &location)], answer).into_response())
}

/// `GET /v1/realtime/calls`: the running calls, the oldest first, then those that ended, the latest first. Of a server
/// with keys only those that the caller may control.
pub(super) async fn list(State(app): State<Arc<AppState>>, caller: Caller) -> Json<Value> {
    Json(json!({"object": "list", "data": app.calls.list(|owner| owner.admits(&caller))}))
}

/// `POST /v1/realtime/calls/{id}/hangup`: ends a call. Succeeds for a call that has ended already.
pub(super) async fn hang_up(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    UrlName(id): UrlName,
) -> Result<StatusCode, ApiError> {
    let registry = app.calls.registry();
    if let Some(running) = registry.running.get(&id).filter(|running| running.owner.admits(&caller)) {
        running.hang_up.notify_one();
    } else if !registry.ended.get(&id).is_some_and(|owner| owner.admits(&caller)) {
        return Err(unknown_call());
    }
    Ok(StatusCode::OK)
}

/// Merges the call's patch into the session configuration of its key.
pub(super) fn with_patch(bound: Option<&Value>, patch: &Value) -> Value {
    let mut whole = bound.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    merge(&mut whole, patch);
    whole
}

/// Attaches a sideband client to a running call of the same owner. For other callers the call does not exist.
pub(super) fn attach(app: &AppState, caller: &Caller, id: &str) -> Result<Sideband, ApiError> {
    app.check_rate(caller)?;
    let sidebands = {
        let registry = app.calls.registry();
        let running = registry.running.get(id).filter(|running| running.owner.admits(caller));
        running.and_then(|running| running.sidebands.clone())
    };
    sidebands.ok_or_else(unknown_call)?.attach().map_err(|error| match error {
        AttachError::Ended => unknown_call(),
        AttachError::Full => {
            let body = ErrorBody::invalid(ErrorKind::SessionLimit, error.to_string()).with_param("call_id");
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, body)
        }
    })
}

fn unknown_call() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        ErrorBody::invalid(ErrorKind::CallUnknown, "there is no such call").with_param("call_id"),
    )
}
