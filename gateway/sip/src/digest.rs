//! Digest credentials (RFC 7616), as exchanges ask for them: MD5, with the quality `auth` or none.

use std::fmt::Write as _;

use ezk_sip_types::Name;
use ezk_sip_types::header::typed::{Algorithm, AlgorithmValue, AuthChallenge, DigestChallenge, QopOption};
use md5::{Digest as _, Md5};

use crate::message::Message;

/// Reads the challenge of a response with status 401 or 407, and names the header of its answer.
pub(crate) fn challenge(status: u16, response: &Message) -> Option<(&'static str, AuthChallenge)> {
    let (challenge, header) = if status == 401 {
        (Name::WWW_AUTHENTICATE, "Authorization")
    } else {
        (Name::PROXY_AUTHENTICATE, "Proxy-Authorization")
    };
    // The parser divides an algorithm's name by bytes.
    response.raw(&challenge).next().filter(|text| text.is_ascii())?;
    Some((header, response.headers.get::<AuthChallenge>(challenge).ok()?))
}

/// Credentials for one request.
pub(crate) struct DigestRequest<'a> {
    pub user: &'a str,
    pub password: &'a str,
    pub method: &'a str,
    pub uri: &'a str,
    /// Random text of ours.
    pub cnonce: &'a str,
}

impl DigestRequest<'_> {
    /// Writes the header that answers a challenge; `None` for a challenge that is not served.
    pub fn answer(&self, challenge: &AuthChallenge) -> Option<String> {
        let AuthChallenge::Digest(challenge) = challenge else { return None };
        let Algorithm::AlgorithmValue(AlgorithmValue::MD5) = &challenge.algorithm else { return None };
        let DigestChallenge { realm, nonce, opaque, qop, .. } = challenge;
        let has_quality = !qop.is_empty();
        if has_quality && !qop.contains(&QopOption::Auth) {
            return None;
        }
        let Self { user, password, method, uri, cnonce } = self;
        // What is quoted must not end the quotation.
        if [realm.as_str(), nonce.as_str(), user, uri].iter().any(|text| text.contains(['"', '\\'])) {
            return None;
        }
        let (a1, a2) = (hash(&format!("{user}:{realm}:{password}")), hash(&format!("{method}:{uri}")));
        let response = match has_quality {
            true => hash(&format!("{a1}:{nonce}:00000001:{cnonce}:auth:{a2}")),
            false => hash(&format!("{a1}:{nonce}:{a2}")),
        };
        let mut text = format!(
            "Digest username=\"{user}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{uri}\", response=\"{response}\", algorithm=MD5"
        );
        // Writing to a string cannot fail.
        if has_quality {
            let _ = write!(text, ", qop=auth, nc=00000001, cnonce=\"{cnonce}\"");
        }
        if let Some(opaque) = opaque.as_ref().filter(|opaque| !opaque.contains(['"', '\\'])) {
            let _ = write!(text, ", opaque=\"{opaque}\"");
        }
        Some(text)
    }
}

fn hash(text: &str) -> String {
    let mut hexadecimal = String::new();
    for byte in Md5::digest(text) {
        // Writing to a string cannot fail.
        let _ = write!(hexadecimal, "{byte:02x}");
    }
    hexadecimal
}

#[cfg(test)]
mod tests {
    use ezk_sip_types::header::HeaderParse as _;

    use super::*;

    fn challenge(text: &str) -> AuthChallenge {
        let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
        AuthChallenge::parse(&bytes, std::str::from_utf8(&bytes).unwrap()).unwrap().1
    }

    /// The example of RFC 2617, 3.5.
    #[test]
    fn credentials_are_those_of_the_specification() {
        let request = DigestRequest {
            user: "Mufasa",
            password: "Circle Of Life",
            method: "GET",
            uri: "/dir/index.html",
            cnonce: "0a4f113b",
        };
        let given = "Digest realm=\"testrealm@host.com\", qop=\"auth,auth-int\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", \
            opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"";
        let answer = request.answer(&challenge(given)).unwrap();
        assert!(answer.contains("response=\"6629fae49393a05397450978507c4ef1\""), "{answer}");
        assert!(answer.contains("opaque=\"5ccc069c403ebaf9f0171e9517f40e41\""), "{answer}");
        for refused in
            ["Digest realm=\"a\", nonce=\"b\", algorithm=SHA-256", "Digest realm=\"a\", nonce=\"b\", qop=\"auth-int\""]
        {
            assert!(request.answer(&challenge(refused)).is_none(), "{refused}");
        }
    }
}
