//! The URL of a server's API, to which paths such as `/chat/completions` are added.

use std::fmt;

use hyper::header::HeaderValue;

use crate::url_parts::{BasicCredentials, UrlError, UrlParts, format_authority};

/// Path of a request for an answer, below the base URL.
pub(crate) const COMPLETIONS: &str = "/chat/completions";
/// Path of the list of models, below the base URL.
pub(crate) const MODELS: &str = "/models";
/// Path that a URL without one gets.
const DEFAULT_PATH: &str = "/v1";

/// Base URL of a server: `https://api.example.com/v1`.
///
/// A URL without a path gets `/v1`; any other path stands for itself. A trailing `/chat/completions` is left out, a query
/// is added to every request. User name and password are sent as Basic credentials. [`Display`](fmt::Display) prints neither
/// credentials nor query.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl {
    secure: bool,
    host: String,
    port: u16,
    path: String,
    query: Option<String>,
    credentials: Option<BasicCredentials>,
}

impl BaseUrl {
    /// Parses a URL with the scheme `http` or `https`.
    ///
    /// # Errors
    /// The URL is malformed or has another scheme. The error does not repeat the URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let parts = UrlParts::parse(text.trim())?;
        let secure = match parts.scheme.as_deref() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(UrlError::Scheme("http:// or https://")),
        };
        let path = parts.path.trim_end_matches('/');
        let path = match path.strip_suffix(COMPLETIONS) {
            Some(base) => base.trim_end_matches('/'),
            None if path.is_empty() => DEFAULT_PATH,
            None => path,
        };
        Ok(Self {
            secure,
            host: parts.host,
            port: parts.port.unwrap_or(default_port(secure)),
            path: path.to_owned(),
            query: parts.query.filter(|query| !query.is_empty()),
            credentials: parts.credentials,
        })
    }

    /// True for https.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Host name or address, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port, the scheme's default if the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Value of the `Host` header.
    pub(crate) fn authority(&self) -> String {
        format_authority(&self.host, self.port, default_port(self.secure))
    }

    /// Path and query of an endpoint below the base.
    pub(crate) fn target(&self, endpoint: &str) -> String {
        match &self.query {
            Some(query) => format!("{}{endpoint}?{query}", self.path),
            None => format!("{}{endpoint}", self.path),
        }
    }

    /// Path of an endpoint below the base, without the query.
    pub(crate) fn path_of(&self, endpoint: &str) -> String {
        format!("{}{endpoint}", self.path)
    }

    /// Whole URL of an endpoint with its query and without credentials, for a proxy.
    pub(crate) fn absolute_target(&self, endpoint: &str) -> String {
        format!("{}://{}{}", self.scheme(), self.authority(), self.target(endpoint))
    }

    /// Header with the URL's credentials.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        self.credentials.as_ref().map(BasicCredentials::header)
    }

    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority(), self.path)
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completions(text: &str) -> String {
        BaseUrl::parse(text).unwrap().absolute_target(COMPLETIONS)
    }

    #[test]
    fn base_urls_reach_the_endpoint() {
        for (url, expected) in [
            ("http://localhost:8000", "http://localhost:8000/v1/chat/completions"),
            ("http://localhost:8000/", "http://localhost:8000/v1/chat/completions"),
            ("http://localhost:80/v1/", "http://localhost/v1/chat/completions"),
            (" https://api.example.com/v1\n", "https://api.example.com/v1/chat/completions"),
            ("https://a.example/api/v2//", "https://a.example/api/v2/chat/completions"),
            ("https://a.example/v1/chat/completions", "https://a.example/v1/chat/completions"),
            ("https://a.example/chat/completions", "https://a.example/chat/completions"),
            ("https://a.example/d/x?api-version=1", "https://a.example/d/x/chat/completions?api-version=1"),
            ("https://a.example?", "https://a.example/v1/chat/completions"),
            ("http://[::1]:11434/v1", "http://[::1]:11434/v1/chat/completions"),
        ] {
            assert_eq!(completions(url), expected, "{url}");
        }
    }

    #[test]
    fn other_schemes_are_refused() {
        for url in ["localhost:8000", "ftp://a/", "ws://a/v1", ""] {
            let error = BaseUrl::parse(url).unwrap_err();
            let expected = if url.is_empty() { UrlError::Host } else { UrlError::Scheme("http:// or https://") };
            assert_eq!(error, expected, "{url}");
        }
    }

    #[test]
    fn display_hides_credentials_and_query() {
        let url = BaseUrl::parse("https://ada:secret@a.example:8443/v1?key=hidden").unwrap();
        assert_eq!(url.to_string(), "https://a.example:8443/v1");
        assert_eq!(format!("{url:?}"), "BaseUrl(https://a.example:8443/v1)");
        assert_eq!(url.absolute_target(MODELS), "https://a.example:8443/v1/models?key=hidden");
        assert!(url.authorization().unwrap().is_sensitive());
    }
}
