//! Requests about calls: `POST /v1/realtime/calls/{id}/accept`, `reject` and `refer`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use repartee_protocol::json::read_body;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::initial_session;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;

use super::ringing::CallDecision;
use super::service::SipService;
use crate::server::AppState;
use crate::server::api_error::ApiError;
use crate::server::caller::Caller;
use crate::server::extract::UrlName;
use crate::server::uploads::HeldBody;

/// Maximum size of a session, in bytes: instructions and tools may be long.
pub(in crate::server) const MAX_BODY: usize = 1 << 20;
/// Longest address of a transfer, in bytes.
const MAX_TARGET: usize = 1_024;
/// Status of a refusal without one.
const DECLINE: u16 = 603;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RejectRequest {
    status_code: Option<u16>,
}

#[derive(Debug, Deserialize)]
struct ReferRequest {
    target_uri: String,
}

/// Accepts a call that rings, with the session of the body.
pub(in crate::server) async fn accept(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    UrlName(id): UrlName,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let sip = service(&app, &caller)?;
    let patch: Value = read(&app, &caller, request).await?;
    // Checked here and not at the call, because the author of the configuration reads this response.
    initial_session(&id, &app.info(), &patch).map_err(ApiError::bad_request)?;
    let (outcome, accepted) = oneshot::channel();
    sip.named.decide(&id, CallDecision::Accept(patch, outcome)).map_err(|_| unknown_call())?;
    // The call's task ends without an outcome if the caller gave up.
    accepted.await.unwrap_or_else(|_| Err(unknown_call()))?;
    Ok(StatusCode::OK)
}

/// Refuses a call that rings.
pub(in crate::server) async fn reject(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    UrlName(id): UrlName,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let sip = service(&app, &caller)?;
    let RejectRequest { status_code } = read(&app, &caller, request).await?;
    let status = status_code.unwrap_or(DECLINE);
    if !(300..700).contains(&status) {
        return Err(invalid("status_code", "a refusal of SIP goes from 300 to 699"));
    }
    sip.named.decide(&id, CallDecision::Reject(status)).map_err(|_| unknown_call())?;
    Ok(StatusCode::OK)
}

/// Transfers a call that runs.
pub(in crate::server) async fn refer(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    UrlName(id): UrlName,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let sip = service(&app, &caller)?;
    let ReferRequest { target_uri } = read(&app, &caller, request).await?;
    let target = target_uri.trim();
    let has_scheme = ["sip:", "sips:", "tel:"].iter().any(|scheme| target.starts_with(scheme));
    let is_plain =
        target.len() <= MAX_TARGET && target.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"".contains(&byte));
    if !has_scheme || !is_plain {
        return Err(invalid("target_uri", "write sip:name@host or tel:+number, in ASCII and without blanks"));
    }
    if sip.addresses.iter().any(|own| names(target, own.address.ip(), own.address.port())) {
        return Err(invalid("target_uri", "this is the server itself"));
    }
    let key = sip.named.running(&id).ok_or_else(unknown_call)?;
    sip.refer(key, target.to_owned()).await.map_err(|_| unknown_call())?;
    Ok(StatusCode::OK)
}

/// True if an address is at this host and port.
fn names(target: &str, ip: std::net::IpAddr, port: u16) -> bool {
    let Some(rest) = target.strip_prefix("sip:").or_else(|| target.strip_prefix("sips:")) else { return false };
    let rest = rest.split([';', '?']).next().unwrap_or_default();
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let with_port = if host.parse::<std::net::IpAddr>().is_ok() { format!("{host}:5060") } else { host.to_owned() };
    with_port == std::net::SocketAddr::new(ip, port).to_string()
}

/// Returns the signalling, for a caller that may control it.
pub(super) fn service<'a>(app: &'a AppState, caller: &Caller) -> Result<&'a SipService, ApiError> {
    app.check_rate(caller)?;
    let message = "this server takes no calls over SIP: set sip.listen (docs/telephone.md)";
    let sip = app.sip.as_deref().ok_or_else(|| ApiError::not_found(message))?;
    Some(sip).filter(|_| caller.ephemeral.is_none()).ok_or_else(unknown_call)
}

/// Reads a body; an empty one stands for `{}`.
pub(super) async fn read<T: serde::de::DeserializeOwned + Send + 'static>(
    app: &Arc<AppState>,
    caller: &Caller,
    request: Request,
) -> Result<T, ApiError> {
    let HeldBody { bytes, charge } = app.read_body(caller, request.into_body(), MAX_BODY).await?;
    let read = move |bytes: bytes::Bytes| {
        let body = if bytes.is_empty() { &b"{}"[..] } else { &bytes[..] };
        let read = read_body(body);
        drop(charge);
        read
    };
    app.parse_body(caller, bytes, read).await?.map_err(ApiError::bad_request)
}

pub(super) fn invalid(field: &str, message: &str) -> ApiError {
    ApiError::bad_request(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(field))
}

fn unknown_call() -> ApiError {
    let message = "no call over SIP by this id waits for that: it is over, or has been answered already";
    ApiError::new(StatusCode::NOT_FOUND, ErrorBody::invalid(ErrorKind::CallUnknown, message).with_param("call_id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_itself_is_recognised() {
        let ip = [192, 0, 2, 1].into();
        for target in
            ["sip:192.0.2.1", "sip:voice@192.0.2.1", "sip:voice@192.0.2.1:5060;transport=udp", "sips:x@192.0.2.1"]
        {
            assert!(names(target, ip, 5060), "{target}");
        }
        for target in ["tel:+4930", "sip:voice@192.0.2.1:5061", "sip:voice@192.0.2.10", "sip:192.0.2.1@other.example"] {
            assert!(!names(target, ip, 5060), "{target}");
        }
    }
}
