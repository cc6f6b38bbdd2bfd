//! Parser of the URLs of servers and proxies. Errors never repeat the URL, which may hold a password.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use hyper::http::uri::PathAndQuery;
use thiserror::Error;

/// Maximum length of a URL, in bytes.
const MAX_URL: usize = 2_048;

/// Error of a URL. The text does not repeat the URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Longer than 2,048 bytes.
    #[error("it is longer than {MAX_URL} bytes")]
    TooLong,
    /// A space, a control character or a letter beyond ASCII.
    #[error("it holds a character that has to be percent-encoded, or a host name that has to be in its ASCII form")]
    Character,
    /// No scheme, or one that is not supported here.
    #[error("it has to begin with {0}")]
    Scheme(&'static str),
    /// Missing or malformed host.
    #[error("give a host name or an address after ://, an IPv6 address in brackets")]
    Host,
    /// The port is no number from 1 to 65535.
    #[error("the port is a number from 1 to 65535")]
    Port,
    /// Malformed percent-encoding of user name or password.
    #[error("user name or password hold a % that begins no percent-encoding")]
    Credentials,
    /// Malformed path or query.
    #[error("its path or query is malformed")]
    Path,
    /// A part that this URL may not have.
    #[error("leave out {0}")]
    Extra(&'static str),
}

/// User name and password, as the value of an `Authorization` header.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BasicCredentials(HeaderValue);

impl BasicCredentials {
    fn parse(text: &str) -> Result<Self, UrlError> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let mut plain = percent_decode(user)?;
        plain.push(b':');
        plain.extend(percent_decode(password)?);
        let mut value =
            HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(plain))).map_err(|_| UrlError::Credentials)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Value of the header, marked as sensitive.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for BasicCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BasicCredentials")
    }
}

/// Parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlParts {
    /// Scheme in lower case; `None` if the URL has none.
    pub scheme: Option<String>,
    pub credentials: Option<BasicCredentials>,
    /// Host in lower case, an IPv6 address without brackets.
    pub host: String,
    pub port: Option<u16>,
    /// Path, empty or with a leading slash.
    pub path: String,
    pub query: Option<String>,
}

impl UrlParts {
    /// Parses a URL; one without `://` has no scheme.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > MAX_URL {
            return Err(UrlError::TooLong);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(UrlError::Character);
        }
        if text.contains('#') {
            return Err(UrlError::Extra("the fragment, from # on"));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
            None => (None, text),
        };
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (credentials, address) = match authority.rsplit_once('@') {
            Some((credentials, address)) => (Some(BasicCredentials::parse(credentials)?), address),
            None => (None, authority),
        };
        let (host, port) = parse_address(address)?;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        if !target.is_empty() {
            PathAndQuery::try_from(target).map_err(|_| UrlError::Path)?;
        }
        Ok(Self { scheme, credentials, host, port, path: path.to_owned(), query })
    }
}

/// Returns host and port as they are written in a URL, without the port if it is `default_port`.
pub(crate) fn format_authority(host: &str, port: u16, default_port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == default_port { host } else { format!("{host}:{port}") }
}

/// Parses `HOST` or `HOST:PORT`, an IPv6 address in brackets.
fn parse_address(address: &str) -> Result<(String, Option<u16>), UrlError> {
    let (host, port) = match address.strip_prefix('[') {
        Some(inner) => {
            let (host, rest) = inner.split_once(']').ok_or(UrlError::Host)?;
            let host: Ipv6Addr = host.parse().map_err(|_| UrlError::Host)?;
            let port = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or(UrlError::Port)?),
            };
            (IpAddr::V6(host).to_string(), port)
        }
        None => {
            let (host, port) = match address.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (address, None),
            };
            let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            if host.is_empty() || !host.bytes().all(valid) {
                return Err(UrlError::Host);
            }
            (host.to_ascii_lowercase(), port)
        }
    };
    let port = port.map(|port| match port.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(UrlError::Port),
    });
    Ok((host, port.transpose()?))
}

fn percent_decode(text: &str) -> Result<Vec<u8>, UrlError> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or(UrlError::Credentials);
        let (high, low) = (digit()?, digit()?);
        decoded.push(u8::try_from(high * 16 + low).map_err(|_| UrlError::Credentials)?);
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn url_splits_into_parts() {
        let parts = UrlParts::parse("HTTPS://Ada:p%40ss@API.example.com:8443/v1/x?api-version=1").unwrap();
        assert_eq!(parts.scheme.as_deref(), Some("https"));
        assert_eq!((parts.host.as_str(), parts.port), ("api.example.com", Some(8443)));
        assert_eq!((parts.path.as_str(), parts.query.as_deref()), ("/v1/x", Some("api-version=1")));
        let header = parts.credentials.unwrap().header();
        assert_eq!(header.to_str().unwrap(), format!("Basic {}", STANDARD.encode("Ada:p@ss")));
        assert!(header.is_sensitive());
    }

    #[test]
    fn url_without_scheme_or_path_parses() {
        let parts = UrlParts::parse("[::1]:3128").unwrap();
        assert_eq!((parts.scheme, parts.host.as_str(), parts.port), (None, "::1", Some(3128)));
        assert_eq!((parts.path.as_str(), parts.query), ("", None));
        assert_eq!(format_authority("::1", 3128, 80), "[::1]:3128");
        assert_eq!(format_authority("a.example", 80, 80), "a.example");
    }

    #[test]
    fn malformed_urls_have_typed_errors() {
        let error = |text: &str| UrlParts::parse(text).unwrap_err();
        assert_eq!(error(&"h".repeat(MAX_URL + 1)), UrlError::TooLong);
        assert_eq!(error("http://a b/"), UrlError::Character);
        assert_eq!(error("http://bücher.example/"), UrlError::Character);
        assert_eq!(error("http://a/#b"), UrlError::Extra("the fragment, from # on"));
        for text in ["http://", "http:///v1", "http://:80/", "http://[1.2.3.4]/", "http://[::1/", "http://a%20b/"] {
            assert_eq!(error(text), UrlError::Host, "{text}");
        }
        for text in ["http://a:/", "http://a:0/", "http://a:65536/", "http://a:b/", "http://[::1]80/", "http://a:1:2/"]
        {
            assert_eq!(error(text), UrlError::Port, "{text}");
        }
        assert_eq!(error("http://a:%4@b/"), UrlError::Credentials);
        assert_eq!(error("http://a:%g0@b/"), UrlError::Credentials);
        assert_eq!(error("http://a/<b>"), UrlError::Path);
    }

    proptest! {
        #[test]
        fn arbitrary_urls_parse_or_fail(text in "(http://|https:|//|[a@:%/?#\\[\\]0-9.\u{e9} -]){0,12}") {
            if let Ok(parts) = UrlParts::parse(&text) {
                prop_assert!(!parts.host.is_empty() && parts.port != Some(0));
                let target = format!("/{}", parts.path.trim_start_matches('/'));
                prop_assert!(PathAndQuery::try_from(target).is_ok());
            }
        }
    }

    #[test]
    fn debug_and_errors_hide_credentials() {
        let parts = UrlParts::parse("http://ada:secret@a/").unwrap();
        assert!(!format!("{parts:?}").contains("secret"));
        assert!(!format!("{parts:?}").contains(&STANDARD.encode("ada:secret")));
        let error = UrlParts::parse("http://ada:secret@a:b/").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
}
