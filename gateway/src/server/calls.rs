//! `POST /v1/realtime/calls`: a call over WebRTC. The offer goes in and the answer comes out as SDP; everything else
//! happens over the connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use tokio::sync::oneshot;

use super::App;
use super::gate::Caller;
use super::reply::Refusal;
use crate::call;
use crate::protocol::{ErrorBody, ErrorKind};
use crate::session::Delivery;
use crate::transport::webrtc::{AnswerError, WebRtcLine, WebRtcSettings, answer};

/// The longest offer, in bytes.
pub(super) const MAX_OFFER: usize = 64 << 10;
/// The media type of offers and answers.
const SDP: &str = "application/sdp";

/// The calls that run, and how to end each.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<HashMap<String, oneshot::Sender<()>>>);

impl Calls {
    fn running(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<()>>> {
        // Insertions and removals leave nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a call off the list when it ends, however that happens.
struct Listed {
    app: Arc<App>,
    id: String,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.app.calls.running().remove(&self.id);
    }
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let offer = read_offer(&headers, body)?;
    let (session, place) = app.admit(&caller)?;
    let setup = app.setup(Delivery::Paced, &caller)?;
    let settings = WebRtcSettings::listening_on(app.config.listen.ip());
    let (answer, call) = answer(&offer, &settings).await.map_err(|error| match error {
        AnswerError::Internal(message) => Refusal::internal(&message),
        error => bad_offer(error.to_string()),
    })?;
    let (hears, speaks) = (setup.model.input_rate, setup.model.output_rate);
    let line = WebRtcLine::new(call, hears, speaks, app.config.stalled_after)
        .map_err(|error| Refusal::internal(&error.to_string()))?;
    let id = app.ids.call().map_err(|error| Refusal::internal(&error.to_string()))?;
    let location = format!("/v1/realtime/calls/{id}");
    let (hang_up, hung_up) = oneshot::channel();
    app.calls.running().insert(id.clone(), hang_up);
    let listed = Listed { app: app.clone(), id };
    tokio::spawn(async move {
        let (drain, stopped) = (app.draining(), app.stopped());
        let stop = async {
            tokio::select! {
                () = stopped => {}
                // The sender stays on the list as long as the call does.
                _ = hung_up => {}
            }
        };
        let ended = call::run(line, session, setup, app.metrics.clone(), drain, stop).await;
        tracing::debug!(?ended, "a call ended");
        drop((listed, place));
    });
    Ok((StatusCode::CREATED, [(CONTENT_TYPE, SDP), (LOCATION, &location)], answer).into_response())
}

pub(super) async fn hang_up(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    let hang_up = app.calls.running().remove(&id).ok_or_else(|| {
        let message = "there is no such call";
        Refusal::new(StatusCode::NOT_FOUND, ErrorBody::invalid(ErrorKind::CallUnknown, message))
    })?;
    // An error means that the call has just ended by itself.
    let _ = hang_up.send(());
    Ok(StatusCode::OK)
}

fn read_offer(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<String, Refusal> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(SDP)) {
        let message = format!("send the offer as {SDP}");
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorBody::invalid(ErrorKind::InvalidOffer, message),
        ));
    }
    let body = body.map_err(|rejection| {
        Refusal::new(rejection.status(), ErrorBody::invalid(ErrorKind::TooLarge, rejection.body_text()))
    })?;
    String::from_utf8(body.into()).map_err(|_| bad_offer("the offer is not text".into()))
}

fn bad_offer(message: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, ErrorBody::invalid(ErrorKind::InvalidOffer, message))
}
