//! Signature of a media stream's request, which stands for a key: HMAC-SHA1 of the URL that the provider connects to, by
//! the account's token.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use super::client_addr::ClientAddr;
use crate::config::TelephonyConfig;

/// Path of the streams.
pub(super) const PATH: &str = "/v1/telephony/media-stream";
/// Header of the provider's signature.
const SIGNATURE: &str = "x-twilio-signature";
/// Signature of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    /// It is the secret's, of this address.
    Valid,
    /// It is another one.
    Wrong,
    /// There is none, or no secret to check it.
    None,
}

/// Checks the signature of a request: HMAC-SHA1 of the URL that the provider connects to.
pub(super) fn signature(config: &TelephonyConfig, headers: &HeaderMap, client: &ClientAddr) -> Signature {
    let (Some(secret), Some(presented)) = (&config.secret, headers.get(SIGNATURE)) else { return Signature::None };
    let Some(url) = config.url.clone().or_else(|| url(client)) else { return Signature::Wrong };
    let Ok(presented) = STANDARD.decode(presented.as_bytes()) else { return Signature::Wrong };
    // The scheme prescribes SHA-1.
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.expose().as_bytes());
    match hmac::verify(&key, url.as_bytes(), &presented) {
        Ok(()) => Signature::Valid,
        Err(_) => Signature::Wrong,
    }
}

/// Builds the URL that the provider was given from what the request says.
fn url(client: &ClientAddr) -> Option<String> {
    let scheme = if client.scheme == Some("http") { "ws" } else { "wss" };
    client.host.as_ref().map(|host| format!("{scheme}://{host}{PATH}"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::config::Secret;

    fn checked(config: &TelephonyConfig, signature: Option<&str>, scheme: &'static str) -> Signature {
        let mut headers = HeaderMap::new();
        if let Some(signature) = signature {
            headers.insert(SIGNATURE, HeaderValue::from_str(signature).unwrap());
        }
        let host = Some("voice.example".to_owned());
        let client = ClientAddr { address: [192, 0, 2, 1].into(), scheme: Some(scheme), host };
        super::signature(config, &headers, &client)
    }

    /// Example of the provider's own library: token, URL and signature of a request without a form.
    #[test]
    fn published_signature_is_valid() {
        let url = "https://mycompany.com/myapp.php?foo=1&bar=2&bodySHA256=\
                   0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620";
        let (secret, url) = (Some(Secret::new("12345")), Some(url.to_owned()));
        let config = TelephonyConfig { secret, url, ..TelephonyConfig::default() };
        assert_eq!(checked(&config, Some("a9nBmqA0ju/hNViExpshrM61xv4="), "https"), Signature::Valid);
    }

    #[test]
    fn signatures_are_of_the_url_and_the_secret() {
        let sign = |url: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"token");
            STANDARD.encode(hmac::sign(&key, url.as_bytes()))
        };
        let config = TelephonyConfig { secret: Some(Secret::new("token")), ..TelephonyConfig::default() };
        let valid = sign("wss://voice.example/v1/telephony/media-stream");
        assert_eq!(checked(&config, Some(&valid), "https"), Signature::Valid);
        assert_eq!(checked(&config, Some(&valid), "http"), Signature::Wrong, "another URL");
        assert_eq!(checked(&config, Some("AAAA"), "https"), Signature::Wrong);
        assert_eq!(checked(&config, Some("no base64"), "https"), Signature::Wrong);
        assert_eq!(checked(&config, None, "https"), Signature::None);
        let other = TelephonyConfig { secret: Some(Secret::new("other")), ..TelephonyConfig::default() };
        assert_eq!(checked(&other, Some(&valid), "https"), Signature::Wrong);
        let public = "wss://public.example/v1/telephony/media-stream".to_owned();
        let behind = TelephonyConfig { url: Some(public.clone()), ..config };
        assert_eq!(checked(&behind, Some(&sign(&public)), "http"), Signature::Valid);
        assert_eq!(checked(&TelephonyConfig::default(), Some(&valid), "https"), Signature::None, "no secret");
    }
}
