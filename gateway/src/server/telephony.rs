//! `GET /v1/telephony/media-stream`: a telephone call over Twilio's Media Streams protocol.
//!
//! A script at the provider connects each call to this path (`<Connect><Stream url="wss://...">`). The provider signs its
//! request with the account's token; with `telephony.secret` set, that signature is the call's key. The parameters of
//! the script configure the session: `instructions`, `voice` and `greeting`. A sideband client attaches by the
//! provider's id of the call (`callSid`).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use repartee_engine_api::SessionHandle;
use repartee_realtime::{Delivery, SessionSetup, initial_session};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tracing::Instrument as _;

use super::api_error::ApiError;
use super::app::{AppState, CallGuard};
use super::call_registry::{ActiveCall, CallOwner, ListedCall};
use super::caller::Caller;
use super::calls::{Registration, ended_by_server, with_patch};
use super::realtime::no_websocket;
use crate::call;
use crate::telemetry::log;
use crate::transport::ping_limit::MAX_WRITE_BUFFER;
use crate::transport::telephony::stream::MAX_MESSAGE;
use crate::transport::telephony::{NAME, Started, TelephonyTransport, start};

/// Longest id of a call that is taken over from the provider.
const MAX_ID: usize = 64;

pub(super) async fn media_stream(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return Ok(no_websocket(&rejection)),
    };
    let id = app.ids.call().map_err(|error| ApiError::internal(&error.to_string()))?;
    let span = log::call_span(&id, NAME);
    // The slot is taken before the upgrade, so that a full server refuses in plain HTTP.
    let (session, guard) = span.in_scope(|| app.admit_call(&caller))?;
    let upgrade = upgrade.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    let upgrade = upgrade.max_write_buffer_size(MAX_WRITE_BUFFER);
    let (shares, key) = (app.processor_shares.clone(), caller.client.key);
    let server = app.clone();
    let answer = upgrade.on_upgrade(move |socket| async move {
        let call = async move {
            match start(socket).await {
                Ok(started) => run(app, caller, started, id, session, guard).await,
                Err(error) => tracing::warn!(%error, "a media stream was refused"),
            }
        };
        server.spawn_call(shares.run(key, call).instrument(span));
    });
    Ok(answer.into_response())
}

/// Runs a call until its end.
async fn run(
    app: Arc<AppState>,
    mut caller: Caller,
    Started { socket, start }: Started,
    id: String,
    session: SessionHandle,
    guard: CallGuard,
) {
    let parameters = start.custom_parameters.clone();
    caller.session = Some(Arc::new(with_patch(caller.session.as_deref(), &patch(&parameters))));
    let mut setup = match app.setup(Delivery::Paced, &caller) {
        Ok(setup) => setup,
        Err(error) => return tracing::error!(?error, "a telephone call could not begin"),
    };
    let configured = |setup: &SessionSetup| {
        setup.configuration.as_ref().map(|patch| initial_session(&setup.session_id, &setup.model, patch)).transpose()
    };
    if let Err(error) = configured(&setup) {
        // A caller hears the defaults rather than nothing.
        tracing::warn!(error = %error.message, "the parameters of a telephone call are ignored");
        setup.warnings.push(format!("the parameters of the call are ignored: {}", error.message));
        setup.configuration = None;
    }
    let (of_provider, stream) = (start.call_sid.clone(), start.stream_sid.clone());
    let (sink, incoming) = socket.split();
    let (mut transport, writer) = TelephonyTransport::new(
        (incoming, sink),
        start,
        setup.model.output_rate,
        app.config.stalled_after,
        app.metrics.clone(),
    );
    if let Some(greeting) = parameters.get("greeting").or(app.config.telephony.greeting.as_ref()) {
        transport.push_event(greeting_event(greeting));
    }
    let mut writer = log::spawn(writer);
    let hang_up = Arc::new(Notify::new());
    let preferred = Some(of_provider).filter(|id| is_id(id));
    let listed = ListedCall::new(NAME, app.key_name(&caller), caller.client.address);
    let running = ActiveCall {
        owner: CallOwner::of_stream(&caller),
        hang_up: hang_up.clone(),
        sidebands: Some(transport.sidebands()),
        listed: listed.clone(),
    };
    let registration = Registration::new(app.clone(), preferred, id, running);
    if let Some(recordings) = &app.recordings {
        transport.record(recordings.begin(registration.id()));
    }
    tracing::info!(call = registration.id(), stream, "the provider's stream of a call");
    let services = app.call_services(registration.id(), &caller, &listed);
    let stop = ended_by_server(&app, hang_up);
    registration.end(call::run(transport, session, setup, services, app.draining(), stop).await);
    // The writer sends the closing message and ends, unless the socket is stalled.
    if tokio::time::timeout(app.config.stalled_after, &mut writer).await.is_err() {
        writer.abort();
    }
    drop(guard);
}

/// Event that asks for a first answer with these instructions.
pub(super) fn greeting_event(instructions: &str) -> String {
    json!({"type": "response.create", "response": {"instructions": instructions}}).to_string()
}

/// Session configuration of a call's parameters.
fn patch(parameters: &BTreeMap<String, String>) -> Value {
    let mut patch = Map::new();
    if let Some(instructions) = parameters.get("instructions") {
        patch.insert("instructions".to_owned(), json!(instructions));
    }
    if let Some(voice) = parameters.get("voice") {
        patch.insert("audio".to_owned(), json!({"output": {"voice": voice}}));
    }
    Value::Object(patch)
}

/// True if a provider's id can be the call's id.
fn is_id(id: &str) -> bool {
    (8..=MAX_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_providers_are_plain() {
        assert!(is_id("CA0123456789abcdef0123456789abcdef") && is_id("v3-0123abcd"));
        for id in ["", "CA1", "CA/../../etc", "CA 01234567", &"a".repeat(65)] {
            assert!(!is_id(id), "{id}");
        }
    }
}
