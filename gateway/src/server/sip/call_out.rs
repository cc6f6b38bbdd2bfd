//! `POST /v1/realtime/calls/out`: the server calls a number at the trunk. OpenAI publishes no such request for realtime
//! sessions; that of Live sessions names the trunk and its credentials in each request, which here are settings.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse as _, Response};
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::initial_session;
use repartee_sip::DialError;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::control::{invalid, read, service};
use super::phone_call::{PhoneSide, local_sound, run};
use crate::admission::CALL_RETRY;
use crate::server::AppState;
use crate::server::api_error::ApiError;
use crate::server::call_registry::CallOwner;
use crate::server::caller::Caller;
use crate::telemetry::log;
use crate::transport::sip::NAME;

#[derive(Debug, Deserialize)]
struct OutRequest {
    /// Number to call.
    destination: String,
    /// Session of the call; the default one without it.
    session: Option<Value>,
}

/// Calls a number, and responds once it is answered. A client that closes its request before that cancels the call.
pub(in crate::server) async fn call_out(
    State(app): State<Arc<AppState>>,
    mut caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    service(&app, &caller)?;
    let config = &app.config.sip;
    let Some(trunk) = config.trunk else {
        return Err(ApiError::not_found("this server makes no calls: set sip.trunk (docs/telephone.md)"));
    };
    if caller.client.key.is_none() {
        let message = "calls out cost money: give the server an API key, and send it";
        let error = ErrorBody::invalid(ErrorKind::KeyInsufficient, message);
        return Err(ApiError::new(StatusCode::FORBIDDEN, error));
    }
    let OutRequest { destination, session } = read(&app, &caller, request).await?;
    if !config.destinations.iter().any(|beginning| destination.starts_with(beginning.as_str())) {
        return Err(invalid("destination", "sip.destinations names no beginning of this number"));
    }
    let id = app.ids.call().map_err(|error| ApiError::internal(&error.to_string()))?;
    if let Some(session) = &session {
        // Checked here and not at the call, because the author of the configuration reads this response.
        initial_session(&id, &app.info(), session).map_err(ApiError::bad_request)?;
    }
    caller.session = session.map(Arc::new);
    let (answered, outcome) = oneshot::channel();
    let span = log::call_span(&id, NAME);
    // A task of its own, so that a call that nobody waits for any more is cancelled in order.
    app.spawn_call(dial(app.clone(), caller, (id.clone(), destination), trunk.address.ip(), answered).instrument(span));
    outcome.await.unwrap_or_else(|_| Err(ApiError::internal("the task of a call has ended")))?;
    let location = format!("/v1/realtime/calls/{id}");
    let body = Json(json!({"id": id, "object": "realtime.call"}));
    Ok((StatusCode::CREATED, [(LOCATION, location)], body).into_response())
}

/// Calls a number and serves the call to its end. `answered` tells of the answer, or why there is none; without its other
/// end the call is cancelled.
async fn dial(
    app: Arc<AppState>,
    caller: Caller,
    (id, number): (String, String),
    trunk: IpAddr,
    mut answered: oneshot::Sender<Result<(), ApiError>>,
) {
    let Some(sip) = app.sip.clone() else { return };
    // The engine's session is taken before it rings, so that nobody is called for nothing.
    let begun = async {
        let (session, guard) = app.admit_call(&caller)?;
        let (socket, sound) = local_sound(&sip).map_err(|(error, _)| error)?;
        let (key, outcome) = sip.call(number, sound).await.map_err(|error| refused(&app, error))?;
        Ok((session, guard, socket, key, outcome))
    };
    let (session, guard, socket, key, outcome) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return drop(answered.send(Err(error))),
    };
    let answer = tokio::select! {
        outcome = outcome => outcome.unwrap_or(Err(503)),
        () = answered.closed() => return sip.hang_up(key).await,
        () = app.stopped() => {
            sip.hang_up(key).await;
            return drop(answered.send(Err(ApiError::internal("the server stops"))));
        }
    };
    let calls_out = &app.metrics.requests.calls_out;
    match answer {
        Ok((_, line)) => {
            calls_out.with_label_values(&["answered"]).inc();
            // What came while it rang was a tone or an announcement.
            socket.drain();
            sip.named.run(&id, key);
            // Whoever is called speaks first.
            let side = PhoneSide { id: id.clone(), address: trunk, owner: CallOwner::of(&caller), greeting: None };
            let begun = move || answered.send(Ok(())).is_ok();
            if let Err(error) = run(app.clone(), (socket, line), side, caller, session, begun).await {
                tracing::error!(?error, "a call out could not begin");
            }
            sip.hang_up(key).await;
            sip.named.remove(&id);
        }
        Err(status) => {
            calls_out.with_label_values(&[result(status)]).inc();
            tracing::info!(status, "a call out was not answered");
            let _ = answered.send(Err(not_answered(status)));
        }
    }
    drop(guard);
}

/// Error of a call that did not begin.
fn refused(app: &AppState, error: DialError) -> ApiError {
    let message = error.to_string();
    match error {
        DialError::Number => invalid("destination", &message),
        DialError::NoTrunk => ApiError::not_found(&message),
        DialError::Full(_) => {
            app.metrics.requests.refused.with_label_values(&["full"]).inc();
            let error = ErrorBody::invalid(ErrorKind::CallLimit, message).with_param("sip.trunk_calls");
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, error).retry_after(CALL_RETRY)
        }
    }
}

/// Value of the metrics' label `result` for a status of SIP.
fn result(status: u16) -> &'static str {
    match status {
        486 | 600 => "busy",
        408 | 480 => "unanswered",
        _ => "failed",
    }
}

/// Error of a call that was not answered. 422, because client libraries repeat what 408, 409, 429 and 5xx refuse, and a
/// telephone that rings again by itself helps nobody.
fn not_answered(status: u16) -> ApiError {
    let reason = match result(status) {
        "busy" => "the number is busy",
        "unanswered" => "nobody answers",
        _ => "the call could not be set up",
    };
    let message = format!("{reason}: status {status} of SIP");
    let error = ErrorBody::invalid(ErrorKind::CallNotAnswered, message).with_param("destination");
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error)
}
