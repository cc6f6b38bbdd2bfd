//! Webhook of a call that comes in, as OpenAI publishes it, signed by the Standard Webhooks scheme.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use repartee_chat_client::{BaseUrl, post};
use repartee_sip::Invitation;
use ring::hmac;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::config::SipConfig;

/// Time for the program to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Pauses before the further attempts.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// Prefix of a secret in base64.
const SECRET_PREFIX: &str = "whsec_";
/// Headers of the caller's credentials, which go to nobody else.
const CREDENTIALS: [&str; 2] = ["authorization", "proxy-authorization"];

/// Tells the program of the operator that a call waits; true once it has taken the news.
pub(super) async fn announce(config: &SipConfig, url: &str, id: &str, invitation: &Invitation) -> bool {
    let Ok(url) = BaseUrl::parse(url) else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let event = format!("evt_{}", id.trim_start_matches("rtc_"));
    let body = body(&event, now, id, invitation).to_string();
    let mut headers = vec![("webhook-id", event.clone()), ("webhook-timestamp", now.to_string())];
    if let Some(secret) = &config.webhook_secret {
        headers.push(("webhook-signature", signature(secret.expose(), &event, now, &body)));
    }
    let body = Bytes::from(body);
    let mut pauses = PAUSES.iter();
    loop {
        match post(&url, &headers, body.clone(), ANSWER_WITHIN).await {
            Ok(200..300) => return true,
            Ok(status) => tracing::warn!(status, "sip.webhook: the program does not take a call's webhook"),
            Err(error) => tracing::warn!(%error, "sip.webhook: a call's webhook cannot be sent"),
        }
        let Some(pause) = pauses.next() else { return false };
        sleep(*pause).await;
    }
}

/// Writes the event.
fn body(event: &str, now: u64, id: &str, invitation: &Invitation) -> Value {
    let shown =
        invitation.headers.iter().filter(|(name, _)| !CREDENTIALS.iter().any(|of| name.eq_ignore_ascii_case(of)));
    let headers: Vec<Value> = shown.map(|(name, value)| json!({"name": name, "value": value})).collect();
    let security = if invitation.is_encrypted { "srtp" } else { "rtp" };
    json!({
        "object": "event",
        "id": event,
        "type": "realtime.call.incoming",
        "created_at": now,
        "data": {"call_id": id, "sip_headers": headers, "sip_media_security": security},
    })
}

/// Signs an event: HMAC-SHA256 of its id, its time and its text.
fn signature(secret: &str, event: &str, now: u64, body: &str) -> String {
    // A secret without the prefix, or of another form, stands for itself.
    let encoded = secret.strip_prefix(SECRET_PREFIX);
    let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok()).unwrap_or_else(|| secret.as_bytes().to_vec());
    let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
    let signed = format!("{event}.{now}.{body}");
    format!("v1,{}", STANDARD.encode(hmac::sign(&key, signed.as_bytes())))
}

#[cfg(test)]
mod tests {
    use repartee_sip::Hop;

    use super::*;

    #[test]
    fn events_have_their_published_form() {
        let headers = [("From", "<sip:+49301@a.example>;tag=1"), ("Authorization", "Digest secret"), ("To", "<sip:b>")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let invitation = Invitation { from: Hop::udp(([192, 0, 2, 1], 5060)), is_encrypted: true, headers };
        assert_eq!(
            body("evt_1", 7, "rtc_1", &invitation),
            json!({"object": "event", "id": "evt_1", "type": "realtime.call.incoming", "created_at": 7, "data": {
                "call_id": "rtc_1",
                "sip_headers": [{"name": "From", "value": "<sip:+49301@a.example>;tag=1"}, {"name": "To", "value": "<sip:b>"}],
                "sip_media_security": "srtp",
            }})
        );
    }

    /// The example of the Standard Webhooks specification.
    #[test]
    fn signature_is_that_of_the_specification() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}");
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
