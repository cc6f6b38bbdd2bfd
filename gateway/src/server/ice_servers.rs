//! `GET /v1/realtime/ice_servers`: TURN servers and short-lived credentials for callers behind a strict firewall.
//!
//! The credentials are derived from a secret that the TURN server shares (coturn's `use-auth-secret`): the user name is
//! the Unix time of expiry, the password its HMAC. Nothing is stored. The response is a list of `RTCIceServer` for a
//! browser's `RTCPeerConnection`.

use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde::Serialize;

use super::AppState;
use crate::config::TurnServerConfig;

/// `RTCIceServer` on the wire.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct IceServer {
    urls: Vec<String>,
    username: String,
    credential: String,
}

#[derive(Debug, Serialize)]
struct List {
    ice_servers: Vec<IceServer>,
    /// Lifetime of the credentials, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_after: Option<u64>,
}

pub(super) async fn list(State(app): State<Arc<AppState>>) -> Response {
    let turn = &app.config.webrtc.turn;
    let server = credentials(turn, SystemTime::now());
    let expires_after = server.as_ref().map(|_| turn.ttl.as_secs());
    let list = List { ice_servers: server.into_iter().collect(), expires_after };
    ([(CACHE_CONTROL, "no-store")], Json(list)).into_response()
}

/// Derives credentials at `now`; `None` without a TURN server, or if their expiry is out of range.
fn credentials(turn: &TurnServerConfig, now: SystemTime) -> Option<IceServer> {
    let secret = turn.secret.as_ref().filter(|_| !turn.urls.is_empty())?;
    let expires = now.checked_add(turn.ttl)?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let username = expires.as_secs().to_string();
    // The scheme prescribes SHA-1.
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.expose().as_bytes());
    let credential = STANDARD.encode(hmac::sign(&key, username.as_bytes()));
    Some(IceServer { urls: turn.urls.clone(), username, credential })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Secret;

    fn turn(urls: &[&str], secret: Option<&str>) -> TurnServerConfig {
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        TurnServerConfig { urls, secret: secret.map(Secret::new), ttl: Duration::from_secs(600) }
    }

    #[test]
    fn the_password_signs_the_expiry_time() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let server = credentials(&turn(&["turn:turn.example.org:3478"], Some("north")), now).unwrap();
        assert_eq!(server.username, "1700000600");
        // From `printf 1700000600 | openssl dgst -sha1 -hmac north -binary | base64`.
        assert_eq!(server.credential, "pL3AD+pdSi0Td8xk/uSD7cXdsYc=");
    }

    #[test]
    fn no_credentials_without_server_and_secret() {
        let now = SystemTime::now();
        assert_eq!(credentials(&turn(&[], Some("north")), now), None);
        assert_eq!(credentials(&turn(&["turn:turn.example.org"], None), now), None);
    }
}
