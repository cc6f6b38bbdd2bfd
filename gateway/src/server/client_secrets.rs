//! `POST /v1/realtime/client_secrets`: an ephemeral key for a page, bound to a session configuration.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use repartee_protocol::session::Session;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::App;
use super::gate::Caller;
use super::reply::Refusal;
use crate::auth::IssueError;

/// Where it is.
pub(super) const PATH: &str = "/v1/realtime/client_secrets";
/// The largest request, in bytes: instructions and tools may be long.
pub(super) const MAX_BODY: usize = 1 << 20;
/// How long a key may hold, in seconds.
const LIFETIMES: std::ops::RangeInclusive<u64> = 10..=7_200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wanted {
    expires_after: ExpiresAfter,
    session: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct ExpiresAfter {
    /// Only `created_at` is known.
    anchor: String,
    seconds: u64,
}

impl Default for ExpiresAfter {
    fn default() -> Self {
        Self { anchor: "created_at".into(), seconds: 600 }
    }
}

#[derive(Debug, Serialize)]
struct ClientSecret {
    value: String,
    /// Seconds since 1970.
    expires_at: u64,
    session: Session,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    app.keep_pace(&caller)?;
    let body = body.map_err(|rejection| {
        Refusal::new(rejection.status(), ErrorBody::invalid(ErrorKind::TooLarge, rejection.body_text()))
    })?;
    let wanted = read(&body).map_err(Refusal::bad_request)?;
    let lifetime = Duration::from_secs(wanted.expires_after.seconds);
    let patch = wanted.session.unwrap_or_else(|| json!({}));
    let id = app.ids.session().map_err(|error| Refusal::internal(&error.to_string()))?;
    // What a call with this key would begin with: refused here, where its author can read why.
    let session = repartee_realtime::initial_session(&id, app.engine.info(), &patch).map_err(Refusal::bad_request)?;
    let value = app.ephemeral.issue(Instant::now(), lifetime, Arc::new(patch), caller.asker.key).map_err(|error| {
        let message = error.to_string();
        match error {
            IssueError::Full { retry_after } => {
                let error = ErrorBody::invalid(ErrorKind::TooManyKeys, message);
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, error).again_after(retry_after)
            }
            IssueError::Random(_) => Refusal::internal(&message),
        }
    })?;
    let expires = SystemTime::now() + lifetime;
    let expires_at = expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Json(ClientSecret { value, expires_at, session }).into_response())
}

fn read(body: &[u8]) -> Result<Wanted, ErrorBody> {
    let refuse = |param: &str, message: String| Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).at(param));
    if body.is_empty() {
        return Ok(Wanted::default());
    }
    let reader = &mut serde_json::Deserializer::from_slice(body);
    let wanted: Wanted = serde_path_to_error::deserialize(reader).map_err(|error| ErrorBody::from_path(&error, ""))?;
    if wanted.expires_after.anchor != "created_at" {
        return refuse("expires_after.anchor", "keys count from `created_at`".into());
    }
    if !LIFETIMES.contains(&wanted.expires_after.seconds) {
        let (least, most) = (LIFETIMES.start(), LIFETIMES.end());
        return refuse("expires_after.seconds", format!("a key holds {least} to {most} seconds"));
    }
    let kind = wanted.session.as_ref().and_then(|session| session.get("type"));
    if kind.is_some_and(|kind| kind != "realtime") {
        return refuse("session.type", "only sessions of the type `realtime` are offered".into());
    }
    Ok(wanted)
}
