//! Ephemeral keys that every node checks by itself: the key holds its session, or its issuer does if that is large.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Extension, Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use repartee_cluster::{Hop, KeyGrant, KeySession, MAX_SESSION_IN_KEY, Owner, SignedKeyError};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::{Value, json};

use super::super::api_error::ApiError;
use super::super::app::AppState;
use super::ask::ask;
use super::hops::unix_now;
use crate::auth::KeyId;
use crate::auth::ephemeral::{IssueError, KeyStatus};
use crate::cluster::membership::Membership;

/// Path of a key's session at its issuer, before the key's nonce.
const SESSIONS: &str = "/v1/cluster/key_sessions/";
/// Maximum size of a session in JSON, in bytes: more than a request for a key can hold.
const MAX_SESSION: usize = 2 << 20;
/// `Retry-After` of a key whose issuer does not answer.
const ISSUER_RETRY: Duration = Duration::from_secs(1);

/// Issues a key that is valid on every node. It counts for `limits.ephemeral_keys` of this one.
pub(in crate::server) fn issue(
    app: &AppState,
    cluster: &Membership,
    lifetime: Duration,
    session: Value,
    owner: Option<KeyId>,
) -> Result<String, IssueError> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(IssueError::Random)?;
    let is_small = session.to_string().len() <= MAX_SESSION_IN_KEY;
    let held = Arc::new(if is_small { json!({}) } else { session.clone() });
    app.ephemeral.issue_as(nonce, Instant::now(), lifetime, held, owner, app.keys().len())?;
    let session = if is_small { KeySession::Inside(session) } else { KeySession::AtIssuer };
    let issuer = cluster.directory.with(|table, _| table.own().tag);
    let until = unix_now() + lifetime.as_secs();
    let grant = KeyGrant { until, owner: owner.map(u64::from), issuer, nonce, session };
    cluster.keys.issue(&grant).map_err(|error| IssueError::Unsigned(error.to_string()))
}

/// Checks a key of any node; `None` on a server without a cluster. A session that is not in the key comes from its issuer, which
/// is asked for the client at this address. A key without a signature is none of a node: its hash alone would count here, and
/// not its session.
pub(in crate::server) async fn check(
    app: &Arc<AppState>,
    key: &str,
    client: IpAddr,
) -> Option<Result<KeyStatus, ApiError>> {
    let cluster = app.cluster.get()?;
    let grant = match cluster.keys.check(key, unix_now()) {
        Ok(grant) => grant,
        Err(SignedKeyError::NotSigned) => return Some(Ok(KeyStatus::NotEphemeral)),
        Err(SignedKeyError::Expired) => return Some(Ok(KeyStatus::Expired)),
        // Not of this cluster, or changed: it never counted here.
        Err(error) => {
            tracing::debug!(%error, "an ephemeral key is refused");
            return Some(Ok(KeyStatus::Forged));
        }
    };
    let owner = grant.owner.map(KeyId::from);
    // The API key that issued it was removed.
    if owner.is_some_and(|owner| app.keys().name(owner).is_none()) {
        return Some(Ok(KeyStatus::Expired));
    }
    let session = match grant.session {
        KeySession::Inside(ref session) => Some(Arc::new(session.clone())),
        KeySession::AtIssuer => match held_session(app, cluster, &grant, client).await {
            Ok(session) => session,
            Err(error) => return Some(Err(error)),
        },
    };
    let id = KeyId::of_key(key);
    Some(Ok(session.map_or(KeyStatus::Expired, |session| KeyStatus::Valid { id, session, owner })))
}

/// Session that the issuer holds; `None` if the key has expired there.
async fn held_session(
    app: &Arc<AppState>,
    cluster: &Membership,
    grant: &KeyGrant,
    client: IpAddr,
) -> Result<Option<Arc<Value>>, ApiError> {
    let target = match cluster.directory.with(|table, now| table.owner(grant.issuer, now)) {
        Owner::Own => return Ok(app.ephemeral.session(grant.nonce, Instant::now())),
        issuer => match (cluster.sessions.get(&grant.nonce), issuer) {
            (Some(session), _) => return Ok(Some(session)),
            (None, Owner::Other(target, _)) => target,
            (None, _) => return Err(unreachable_issuer()),
        },
    };
    let path = format!("{SESSIONS}{}", URL_SAFE_NO_PAD.encode(grant.nonce));
    let answer =
        ask(app, cluster, &target, (Method::GET, path, client), MAX_SESSION).await.map_err(|_| unreachable_issuer())?;
    let Some(body) = answer else { return Ok(None) };
    let session: Value = serde_json::from_slice(&body).map_err(|_| unreachable_issuer())?;
    let session = Arc::new(session);
    cluster.sessions.put(grant.nonce, (session.clone(), body.len()), grant.until, unix_now());
    Ok(Some(session))
}

fn unreachable_issuer() -> ApiError {
    let message = "the node that issued this key does not answer, and the key's session is too large to be in the key: \
                   try again soon, or request another key";
    let error = ErrorBody::server(ErrorKind::KeyIssuerUnreachable, message);
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(ISSUER_RETRY)
}

/// Routes for other nodes, which sign their requests and send no key.
pub(in crate::server) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(&format!("{SESSIONS}{{nonce}}"), axum::routing::get(show_session))
}

/// Tells another node the session of a key that this one has issued.
async fn show_session(
    State(app): State<Arc<AppState>>,
    hop: Option<Extension<Hop>>,
    Path(nonce): Path<String>,
) -> Response {
    let mut bytes = [0; 16];
    let is_nonce = URL_SAFE_NO_PAD.decode_slice(nonce, &mut bytes).is_ok_and(|length| length == bytes.len());
    let session = app.ephemeral.session(bytes, Instant::now()).filter(|_| hop.is_some() && is_nonce);
    match session {
        Some(session) => Json(Value::clone(&session)).into_response(),
        None => ApiError::not_found("there is no such key").into_response(),
    }
}
