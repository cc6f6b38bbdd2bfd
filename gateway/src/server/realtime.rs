//! `GET /v1/realtime`: a call over a websocket.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::reply::Refusal;
use super::{App, origin};
use crate::call;
use crate::protocol::{ErrorBody, ErrorKind};
use crate::session::Delivery;
use crate::transport::websocket::{self, Limits, MAX_READ};

/// The subprotocol that browsers must offer and see confirmed.
const SUBPROTOCOL: &str = "realtime";

pub(super) async fn websocket(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade.map_err(|rejection| {
        let message = format!("this is the address of a websocket: {rejection}");
        Refusal::new(StatusCode::UPGRADE_REQUIRED, ErrorBody::invalid(ErrorKind::NotFound, message))
    })?;
    origin::check(&headers)?;
    // The slot is taken before the upgrade, so that a full server can still say so in plain HTTP.
    let (session, place) = app.admit()?;
    let setup = app.setup(Delivery::Unpaced)?;
    let upgrade = upgrade.protocols([SUBPROTOCOL]).max_message_size(MAX_READ).max_frame_size(MAX_READ);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let limits = Limits { stalled_after: app.config.stalled_after, ..Limits::default() };
        let (line, writer) = websocket::open(socket, setup.model.output_rate, limits);
        let mut writer = tokio::spawn(writer);
        let ended = call::run(line, session, setup, app.metrics.clone(), app.stopped()).await;
        tracing::debug!(?ended, "a call ended");
        // The writer says good-bye and ends by itself, unless the socket takes nothing.
        if tokio::time::timeout(app.config.drain, &mut writer).await.is_err() {
            writer.abort();
        }
        drop(place);
    }))
}
