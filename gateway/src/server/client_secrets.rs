//! `POST /v1/realtime/client_secrets`: issues an ephemeral key with a session configuration.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use repartee_protocol::fields::optional_integer;
use repartee_protocol::json::read_body;
use repartee_protocol::session::Session;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::AppState;
use super::api_error::ApiError;
use super::caller::Caller;
use super::uploads::HeldBody;
use crate::admission::ClientIdentity;
use crate::auth::KeyId;
use crate::auth::ephemeral::IssueError;
use crate::budget::key_limit::KeyLimit;

/// Maximum size of a request, in bytes: instructions and tools may be long.
pub(super) const MAX_BODY: usize = 1 << 20;
/// Default lifetime of a key, in seconds.
const LIFETIME: u64 = 600;
/// Allowed lifetimes of a key, in seconds.
const LIFETIMES: std::ops::RangeInclusive<u64> = 10..=7_200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SecretRequest {
    expires_after: Option<ExpiresAfter>,
    session: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExpiresAfter {
    /// Start of the lifetime; `created_at` is the only value.
    anchor: Option<String>,
    #[serde(deserialize_with = "optional_integer")]
    seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ClientSecret {
    value: String,
    /// Time of expiry, in seconds since 1970.
    expires_at: u64,
    session: Session,
}

pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    app.check_rate(&caller)?;
    let HeldBody { bytes, charge } = app.read_body(&caller, request.into_body(), MAX_BODY).await?;
    let (server, client) = (app.clone(), caller.client);
    let issue = move |body: Bytes| {
        let issued = issue(&server, client, &body);
        drop((body, charge));
        issued
    };
    app.parse_body(&caller, bytes, issue).await?
}

/// Issues the key that `body` asks for.
fn issue(app: &AppState, client: ClientIdentity, body: &[u8]) -> Result<Response, ApiError> {
    let (seconds, session) = read(body).map_err(ApiError::bad_request)?;
    let lifetime = Duration::from_secs(seconds);
    let patch = session.unwrap_or_else(|| json!({}));
    let id = app.ids.session().map_err(|error| ApiError::internal(&error.to_string()))?;
    // Checked here and not at the call, because the author of the configuration reads this response.
    let shown = app.config.turns.model.configure(Some(&patch));
    let shown = shown.as_ref().unwrap_or(&patch);
    let session = repartee_realtime::initial_session(&id, &app.info(), shown).map_err(ApiError::bad_request)?;
    let value = new_key(app, lifetime, patch, client.key).map_err(|error| {
        let message = error.to_string();
        match error {
            IssueError::Full { retry_after } | IssueError::Share { retry_after } => {
                let limit = KeyLimit::EphemeralKeys;
                app.budgets.account(client.key).count_refusal(limit);
                let error = ErrorBody::invalid(ErrorKind::TooManyKeys, message).with_param(limit.name());
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, error).retry_after(retry_after)
            }
            IssueError::Random(_) | IssueError::Unsigned(_) => ApiError::internal(&message),
        }
    })?;
    let expires = SystemTime::now() + lifetime;
    let expires_at = expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Json(ClientSecret { value, expires_at, session }).into_response())
}

/// Issues a key for this server, or for all nodes of its cluster.
fn new_key(app: &AppState, lifetime: Duration, session: Value, owner: Option<KeyId>) -> Result<String, IssueError> {
    #[cfg(feature = "cluster")]
    if let Some(cluster) = app.cluster.get() {
        return super::cluster::keys::issue(app, cluster, lifetime, session, owner);
    }
    app.ephemeral.issue(Instant::now(), lifetime, Arc::new(session), owner, app.keys().len())
}

/// Reads a request: the lifetime in seconds, and the session.
fn read(body: &[u8]) -> Result<(u64, Option<Value>), ErrorBody> {
    let refuse =
        |param: &str, message: String| Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param));
    let wanted = if body.is_empty() { SecretRequest::default() } else { read_body(body)? };
    let ExpiresAfter { anchor, seconds } = wanted.expires_after.unwrap_or_default();
    if anchor.is_some_and(|anchor| anchor != "created_at") {
        return refuse("expires_after.anchor", "the anchor has to be `created_at`".into());
    }
    let seconds = seconds.unwrap_or(LIFETIME);
    if !LIFETIMES.contains(&seconds) {
        let (least, most) = (LIFETIMES.start(), LIFETIMES.end());
        return refuse("expires_after.seconds", format!("a key lasts {least} to {most} seconds"));
    }
    Ok((seconds, wanted.session))
}
