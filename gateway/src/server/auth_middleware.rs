//! What stands before every route that does something: who asks ([`Caller`]), whether it has a key, and whether its page may
//! ask at all (CORS).

use std::sync::{Arc, PoisonError, RwLockReadGuard};
use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, ORIGIN, SEC_WEBSOCKET_PROTOCOL, VARY,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;

use super::App;
use super::reply::Refusal;
use super::via::{Peer, Via};
use crate::admission::Asker;
use crate::auth::{KeySet, Presented};

/// How a browser, which cannot set headers on a websocket, names its key.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";
/// What a page may read of an answer.
const EXPOSED: &str = "Location, Retry-After, WWW-Authenticate";
/// How long a browser may remember what it was allowed, in seconds.
const MAX_AGE: &str = "600";

/// Who asks. An extractor of every route behind the gate.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Whose limits count.
    pub asker: Asker,
    /// The configuration that its ephemeral key stands for: a `session.update` patch.
    pub session: Option<Arc<Value>>,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let missing = || Refusal::internal("a route without a gate asks who calls");
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}

/// Lets in who may ask, and says who it is.
pub(super) async fn gate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return Refusal::internal("a connection without a peer").into_response();
    };
    let headers = request.headers();
    let via = Via::of(peer, headers, &app.config.proxy.trusted);
    let origin = headers.get(ORIGIN).cloned();
    if let Some(origin) = &origin
        && !origin.to_str().is_ok_and(|origin| app.origins.allow(origin, &via))
    {
        let message = "pages of this origin may not call this server: list it under browser.origins";
        return Refusal::new(StatusCode::FORBIDDEN, ErrorBody::invalid(ErrorKind::ForeignOrigin, message))
            .into_response();
    }
    let mut response = if request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        // Asked before the real request, and without its key.
        preflight(headers)
    } else {
        match app.identify(request.uri().path(), headers, &via) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                next.run(request).await
            }
            Err(refusal) => {
                app.metrics.refused.with_label_values(&["unauthorized"]).inc();
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

/// What a page may send: anything, for its origin is known. Stock clients add headers of their own.
fn preflight(headers: &HeaderMap) -> Response {
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    if let Some(asked) = asked {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked);
    }
    response
}

impl App {
    fn identify(&self, path: &str, headers: &HeaderMap, via: &Via) -> Result<Caller, Refusal> {
        let known = |key, session| Ok(Caller { asker: Asker { address: via.address, key }, session });
        let Some(key) = presented(headers) else {
            return if !self.needs_key(path) { known(None, None) } else { Err(unauthorized(ErrorKind::MissingKey)) };
        };
        match self.ephemeral.look_up(key, Instant::now()) {
            Presented::Valid { session, owner } if opens_calls(path) => known(owner, Some(session)),
            Presented::Valid { .. } => {
                let message = "an ephemeral key opens calls and nothing else: use an API key for this";
                let error = ErrorBody::invalid(ErrorKind::KeyInsufficient, message);
                Err(Refusal::new(StatusCode::FORBIDDEN, error))
            }
            Presented::Expired => Err(unauthorized(ErrorKind::ExpiredKey)),
            Presented::Foreign => match self.keys().find(key) {
                Some(key) => known(Some(key), None),
                // Stock clients always send something.
                None if !self.needs_key(path) => known(None, None),
                None => Err(unauthorized(ErrorKind::InvalidKey)),
            },
        }
    }

    fn keys(&self) -> RwLockReadGuard<'_, KeySet> {
        // They are replaced whole, so nothing is ever half done.
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn needs_key(&self, path: &str) -> bool {
        !self.keys().is_empty() && (path != "/metrics" || self.config.keys.metrics)
    }
}

/// Whether an ephemeral key is good for this.
fn opens_calls(path: &str) -> bool {
    path.starts_with("/v1/realtime") && path != super::client_secrets::PATH
}

/// The key that came along. Never from the URL, which ends up in logs.
fn presented(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer.or_else(|| {
        let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|value| value.to_str().ok());
        offered.flat_map(|list| list.split(',')).find_map(|protocol| protocol.trim().strip_prefix(KEY_PROTOCOL))
    })
}

fn unauthorized(kind: ErrorKind) -> Refusal {
    let message = match kind {
        ErrorKind::MissingKey => {
            "this server needs a key: send `Authorization: Bearer KEY`, or from a browser's websocket the subprotocol \
             `openai-insecure-api-key.KEY`"
        }
        ErrorKind::ExpiredKey => "this ephemeral key is over, or was never given out: ask for another",
        _ => "this is none of this server's keys",
    };
    Refusal::new(StatusCode::UNAUTHORIZED, ErrorBody::invalid(kind, message))
}
