//! `GET /v1/realtime`: a call over a websocket, or a sideband client of a WebRTC call.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::header::{SEC_WEBSOCKET_VERSION, UPGRADE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::{Delivery, initial_session};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;
use tracing::Instrument as _;

use super::api_error::ApiError;
use super::call_registry::{ActiveCall, CallOwner, ListedCall};
use super::caller::Caller;
use super::calls::{Registration, ended_by_server};
use super::extract::{UrlQuery, header_warnings, subprotocols};
use super::{AppState, calls};
use crate::call;
use crate::telemetry::log;
use crate::transport::message_bytes::{MAX_READ, MessageBytes};
use crate::transport::ping_limit::MAX_WRITE_BUFFER;
use crate::transport::relay;
use crate::transport::websocket::{self, Timeouts};

/// Query parameters. `model` is ignored, because there is one model.
#[derive(Debug, Deserialize)]
pub(super) struct WebsocketQuery {
    /// Id of the WebRTC call to attach to; `None` for a new call.
    call_id: Option<String>,
    /// `transcription` for a session of that type; other values are ignored.
    intent: Option<String>,
}

/// Subprotocol that browsers offer.
const SUBPROTOCOL: &str = "realtime";

/// Response to a request that opens no websocket.
pub(super) fn no_websocket(rejection: &WebSocketUpgradeRejection) -> Response {
    let message = format!("this path takes websocket connections only: {rejection}");
    let error = ErrorBody::invalid(ErrorKind::NotFound, message);
    if let WebSocketUpgradeRejection::WebSocketKeyHeaderMissing(_) = rejection {
        return ApiError::bad_request(error).into_response();
    }
    let mut response = ApiError::new(StatusCode::UPGRADE_REQUIRED, error).into_response();
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    response
}

pub(super) async fn websocket(
    State(app): State<Arc<AppState>>,
    mut caller: Caller,
    UrlQuery(target): UrlQuery<WebsocketQuery>,
    Extension(messages): Extension<Arc<MessageBytes>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return Ok(no_websocket(&rejection)),
    };
    // A browser drops the connection if none of its subprotocols is chosen.
    let mut offered = subprotocols(&headers).peekable();
    if offered.peek().is_some() && offered.all(|offered| offered != SUBPROTOCOL) {
        let message = "offer the subprotocol `realtime` too: this server speaks no other";
        let error = ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("Sec-WebSocket-Protocol");
        return Err(ApiError::bad_request(error));
    }
    if let Some(id) = target.call_id {
        let sideband = calls::attach(&app, &caller, &id)?;
        let most = relay::MAX_READ;
        let upgrade = upgrade.protocols([SUBPROTOCOL]).max_message_size(most).max_frame_size(most);
        let upgrade = upgrade.max_write_buffer_size(MAX_WRITE_BUFFER);
        let timeouts = Timeouts { stalled_after: app.config.stalled_after, ping_every: app.config.ping_every };
        let (shares, key) = (app.processor_shares.clone(), caller.client.key);
        return Ok(upgrade.on_upgrade(move |socket| async move {
            app.spawn_call(shares.run(key, relay::run(socket, sideband, timeouts)));
        }));
    }
    // The slot is taken before the upgrade, so that a full server can refuse in plain HTTP.
    if target.intent.as_deref() == Some("transcription") {
        caller.session =
            Some(Arc::new(calls::with_patch(caller.session.as_deref(), &json!({"type": "transcription"}))));
    }
    #[cfg(feature = "cluster")]
    super::cluster::voices::find_in_session(&app, caller.session.as_deref()).await;
    let mut setup = app.setup(Delivery::Unpaced, &caller)?;
    setup.warnings = header_warnings(&headers);
    if let Some(patch) = &setup.configuration {
        initial_session(&setup.session_id, &setup.model, patch).map_err(ApiError::bad_request)?;
    }
    let id = setup.session_id.clone();
    let span = log::call_span(&id, websocket::NAME);
    let (session, guard) = span.in_scope(|| app.admit_call(&caller))?;
    let upgrade = upgrade.protocols([SUBPROTOCOL]).max_message_size(MAX_READ).max_frame_size(MAX_READ);
    let upgrade = upgrade.max_write_buffer_size(MAX_WRITE_BUFFER);
    let (shares, key) = (app.processor_shares.clone(), caller.client.key);
    let server = app.clone();
    let call = move |socket| async move {
        let timeouts = Timeouts { stalled_after: app.config.stalled_after, ping_every: app.config.ping_every };
        messages.begin(app.begin_bytes(&caller));
        let (transport, writer) = websocket::open(socket, messages.clone(), setup.model.output_rate, timeouts);
        let mut writer = log::spawn(writer);
        let listed = ListedCall::new(websocket::NAME, app.key_name(&caller), caller.client.address);
        let services = app.call_services(&id, &caller, &listed);
        let hang_up = Arc::new(Notify::new());
        let owner = CallOwner::of(&caller);
        let running = ActiveCall { owner, hang_up: hang_up.clone(), sidebands: None, listed };
        let registration = Registration::new(app.clone(), None, id, running);
        let stop = ended_by_server(&app, hang_up);
        registration.end(call::run(transport, session, setup, services, app.draining(), stop).await);
        if messages.refusal().is_some() {
            app.count_no_room();
        }
        // The writer sends the closing message and ends, unless the socket is stalled.
        if tokio::time::timeout(app.config.stalled_after, &mut writer).await.is_err() {
            writer.abort();
        }
        drop(guard);
    };
    Ok(upgrade.on_upgrade(move |socket| async move {
        server.spawn_call(shares.run(key, call(socket)).instrument(span));
    }))
}
