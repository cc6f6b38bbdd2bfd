//! Middleware of every `/v1` route and `/metrics`: checks the origin (CORS) and the key, and adds the [`Caller`] to the
//! request.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, PoisonError, RwLockReadGuard};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use repartee_protocol::{ErrorBody, ErrorKind};

use super::api_error::ApiError;
use super::app::AppState;
use super::caller::Caller;
use super::client_addr::{ClientAddr, Peer};
use super::extract::subprotocols;
use super::keyless::names_this_machine;
use super::request_log::RequestId;
use super::stream_signature::{self, Signature};
use crate::admission::ClientIdentity;
use crate::auth::ephemeral::KeyStatus;
use crate::auth::{KeyId, KeySet};

/// Prefix of the websocket subprotocol that carries a key, because a browser cannot set headers on a websocket.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";
/// Response headers that CORS exposes to pages.
const EXPOSED: &str = "Location, Repartee-Warnings, Retry-After, WWW-Authenticate, X-Request-Id";
/// Lifetime of a cached preflight, in seconds.
const MAX_AGE: &str = "600";

/// Refuses requests of foreign origins and without a valid key; adds the [`Caller`] to all others.
pub(super) async fn authenticate(State(app): State<Arc<AppState>>, mut request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return ApiError::internal("a request has no peer address").into_response();
    };
    let headers = request.headers();
    let client_addr = ClientAddr::new(peer, headers, &app.config.proxy.trusted);
    let origin = headers.get(ORIGIN).cloned();
    if let Some(origin) = &origin
        && !origin.to_str().is_ok_and(|origin| app.origins.allow(origin, &client_addr))
    {
        let message = "pages of this origin may not call this server: list it under browser.origins";
        return ApiError::new(StatusCode::FORBIDDEN, ErrorBody::invalid(ErrorKind::OriginNotAllowed, message))
            .into_response();
    }
    let mut response = if request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        // A preflight carries no key.
        preflight(headers)
    } else {
        match app.identify(request.uri(), headers, &client_addr).await {
            Ok(mut caller) => {
                caller.request_id = request.extensions().get::<RequestId>().cloned().unwrap_or_default();
                request.extensions_mut().insert(caller);
                next.run(request).await
            }
            Err(Unidentified::WrongKey(refusal)) => app.answer_wrong_key(client_addr.address, refusal).await,
            Err(Unidentified::Refused(refusal)) => {
                app.metrics.requests.refused.with_label_values(&["unauthorized"]).inc();
                refusal.into_response()
            }
        }
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    response
}

/// Allows every header, because the origin is known and stock clients add headers of their own.
fn preflight(headers: &HeaderMap) -> Response {
    let requested = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    if let Some(requested) = requested {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested);
    }
    response
}

/// Refusal of a request whose caller is not known.
enum Unidentified {
    /// The key is wrong, or an ephemeral one that has expired.
    WrongKey(ApiError),
    /// There is no key, or it does not permit this request.
    Refused(ApiError),
}

impl AppState {
    /// Counts a wrong key. Above the rate the answer is 429, and it comes late.
    async fn answer_wrong_key(&self, address: IpAddr, refusal: ApiError) -> Response {
        let Some(retry_after) = self.wrong_keys.count(address, Instant::now()) else {
            self.metrics.requests.refused.with_label_values(&["unauthorized"]).inc();
            return refusal.into_response();
        };
        self.metrics.requests.refused.with_label_values(&["wrong_keys"]).inc();
        self.wrong_keys.delay().await;
        let message = format!(
            "limits.wrong_keys_per_minute: more than {} wrong keys from this address in a minute: correct the key",
            self.config.limits.wrong_keys_per_minute
        );
        let error = ErrorBody::invalid(ErrorKind::RateLimit, message).with_param("wrong_keys_per_minute");
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, error).retry_after(retry_after).into_response()
    }

    async fn identify(
        self: &Arc<Self>,
        uri: &Uri,
        headers: &HeaderMap,
        client_addr: &ClientAddr,
    ) -> Result<Caller, Unidentified> {
        let path = uri.path();
        let client = |key| ClientIdentity { address: client_addr.address, key };
        let known =
            |key| Ok(Caller { client: client(key), ephemeral: None, session: None, request_id: RequestId::default() });
        // Without a key nothing but the host's name tells a scraper from a page that resolves its name to this machine.
        let anonymous = || {
            if self.has_keys() && !names_this_machine(uri, headers, &self.config.browser.hosts) {
                let message = "without a key this path answers to localhost and IP addresses only: send a key, or list \
                               the host name under browser.hosts";
                let error = ErrorBody::invalid(ErrorKind::HostNotAllowed, message);
                return Err(Unidentified::Refused(ApiError::new(StatusCode::FORBIDDEN, error)));
            }
            known(None)
        };
        if path == stream_signature::PATH {
            match stream_signature::signature(&self.config.telephony, headers, client_addr) {
                // A provider's few addresses stand for all of its callers, so its calls are counted as this machine's.
                Signature::Valid => {
                    let client = ClientIdentity { address: Ipv4Addr::LOCALHOST.into(), key: None };
                    return Ok(Caller { client, ephemeral: None, session: None, request_id: RequestId::default() });
                }
                Signature::Wrong => return Err(Unidentified::WrongKey(wrong_signature())),
                Signature::None => {}
            }
        }
        let keys = request_keys(headers);
        // One of them could be checked and the other one meant.
        if keys.len() > 1 && self.needs_key(path) {
            let message = "the request carries different keys: send one";
            let error = ErrorBody::invalid(ErrorKind::InvalidKey, message);
            return Err(Unidentified::WrongKey(ApiError::new(StatusCode::UNAUTHORIZED, error)));
        }
        let Some(key) = keys.first().copied() else {
            let missing = || Unidentified::Refused(unauthorized(ErrorKind::MissingKey));
            return if self.needs_key(path) { Err(missing()) } else { anonymous() };
        };
        match self.look_up(key, client_addr.address).await.map_err(Unidentified::Refused)? {
            KeyStatus::Valid { id, session, owner } if opens_calls(path) => Ok(Caller {
                client: client(owner),
                ephemeral: Some(id),
                session: Some(session),
                request_id: RequestId::default(),
            }),
            KeyStatus::Valid { .. } => {
                let message = "an ephemeral key opens calls and nothing else: use an API key for this";
                let error = ErrorBody::invalid(ErrorKind::KeyInsufficient, message);
                Err(Unidentified::Refused(ApiError::new(StatusCode::FORBIDDEN, error)))
            }
            KeyStatus::Expired => Err(Unidentified::WrongKey(unauthorized(ErrorKind::ExpiredKey))),
            KeyStatus::Forged => Err(Unidentified::WrongKey(unauthorized(ErrorKind::InvalidKey))),
            KeyStatus::NotEphemeral => match self.find_key(key) {
                Some(key) => known(Some(key)),
                // Stock clients always send a key.
                None if !self.needs_key(path) => anonymous(),
                None => Err(Unidentified::WrongKey(unauthorized(ErrorKind::InvalidKey))),
            },
        }
    }

    /// Looks up an ephemeral key of this server, or of any node of its cluster.
    async fn look_up(self: &Arc<Self>, key: &str, client: IpAddr) -> Result<KeyStatus, ApiError> {
        #[cfg(feature = "cluster")]
        if let Some(status) = super::cluster::keys::check(self, key, client).await {
            return status;
        }
        #[cfg(not(feature = "cluster"))]
        let _ = client;
        Ok(self.ephemeral.look_up(key, Instant::now()))
    }

    pub(super) fn keys(&self) -> RwLockReadGuard<'_, KeySet> {
        // The set is replaced as a whole, so a panic cannot leave it half changed.
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_key(&self, presented: &str) -> Option<KeyId> {
        self.keys().find(presented)
    }

    /// True if the server has API keys; without them it serves this machine only.
    pub(super) fn has_keys(&self) -> bool {
        !self.keys().is_empty()
    }

    fn needs_key(&self, path: &str) -> bool {
        self.has_keys() && (path != "/metrics" || self.config.keys.metrics)
    }
}

/// True if an ephemeral key may be used for this path: one that opens or controls calls.
fn opens_calls(path: &str) -> bool {
    matches!(path, "/v1/realtime" | "/v1/realtime/calls" | "/v1/realtime/ice_servers")
        || path.starts_with("/v1/realtime/calls/")
}

/// Reads the different keys of the headers, the one of `Authorization` first. A key in the URL is ignored, because URLs
/// end up in logs.
fn request_keys(headers: &HeaderMap) -> Vec<&str> {
    let bearers = headers.get_all(AUTHORIZATION).into_iter().filter_map(|value| {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let mut keys = Vec::new();
    for key in bearers.chain(subprotocols(headers).filter_map(|offered| offered.strip_prefix(KEY_PROTOCOL))) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn wrong_signature() -> ApiError {
    let message = "the request is not signed with telephony.secret for this address: set telephony.url to the URL that \
                   the provider connects to, and telephony.secret to the account's token";
    let error = ErrorBody::invalid(ErrorKind::InvalidKey, message).with_param("X-Twilio-Signature");
    ApiError::new(StatusCode::UNAUTHORIZED, error)
}

fn unauthorized(kind: ErrorKind) -> ApiError {
    let message = match kind {
        ErrorKind::MissingKey => {
            "this server needs a key: send `Authorization: Bearer KEY`, or from a browser's websocket the subprotocol \
             `openai-insecure-api-key.KEY`"
        }
        ErrorKind::ExpiredKey => "this ephemeral key has expired, or was never issued: request another",
        _ => "the server does not know this key",
    };
    ApiError::new(StatusCode::UNAUTHORIZED, ErrorBody::invalid(kind, message))
}
