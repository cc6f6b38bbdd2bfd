//! `GET /v1/realtime`: a call over a websocket, or one more client of a call over WebRTC.

use std::sync::Arc;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::Delivery;
use serde::Deserialize;

use super::gate::Caller;
use super::reply::Refusal;
use super::{App, calls};
use crate::call;
use crate::transport::websocket::{self, Limits, MAX_READ};

/// What the address may say. The model is the one that there is, whatever is asked for.
#[derive(Debug, Deserialize)]
pub(super) struct Target {
    /// A call over WebRTC to attach to.
    call_id: Option<String>,
}

/// The subprotocol that browsers must offer and see confirmed.
const SUBPROTOCOL: &str = "realtime";

pub(super) async fn websocket(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(target): Query<Target>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade.map_err(|rejection| {
        let message = format!("this is the address of a websocket: {rejection}");
        Refusal::new(StatusCode::UPGRADE_REQUIRED, ErrorBody::invalid(ErrorKind::NotFound, message))
    })?;
    if let Some(id) = target.call_id {
        let sideband = calls::attach(&app, &id)?;
        let upgrade = upgrade.protocols([SUBPROTOCOL]).max_message_size(MAX_READ).max_frame_size(MAX_READ);
        return Ok(upgrade.on_upgrade(move |socket| calls::relay(socket, sideband, app)));
    }
    // The slot is taken before the upgrade, so that a full server can still say so in plain HTTP.
    let (session, place) = app.admit(&caller)?;
    let setup = app.setup(Delivery::Unpaced, &caller)?;
    let upgrade = upgrade.protocols([SUBPROTOCOL]).max_message_size(MAX_READ).max_frame_size(MAX_READ);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let limits = Limits { stalled_after: app.config.stalled_after, ping_every: app.config.ping_every };
        let (line, writer) = websocket::open(socket, setup.model.output_rate, limits);
        let mut writer = tokio::spawn(writer);
        let ended = call::run(line, session, setup, app.metrics.clone(), app.draining(), app.stopped()).await;
        tracing::debug!(?ended, "a call ended");
        // The writer says good-bye and ends by itself, unless the socket takes nothing.
        if tokio::time::timeout(app.config.stalled_after, &mut writer).await.is_err() {
            writer.abort();
        }
        drop(place);
    }))
}
