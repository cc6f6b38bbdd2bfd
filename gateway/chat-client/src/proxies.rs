//! Proxies, as the environment names them.

use std::env;

use hyper::header::HeaderValue;
use thiserror::Error;

use crate::base_url::BaseUrl;
use crate::no_proxy::NoProxy;
use crate::url_parts::{BasicCredentials, UrlError, UrlParts, format_authority};

/// Error of a variable that names a proxy. The text does not repeat its value, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the variable {variable} names no proxy: {error}")]
pub struct ProxyError {
    /// Name of the variable.
    pub variable: &'static str,
    /// Reason, without the variable's value.
    pub error: UrlError,
}

/// A proxy: an HTTP server that passes requests or connections on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// True if the connection to the proxy itself is encrypted.
    secure: bool,
    host: String,
    port: u16,
    credentials: Option<BasicCredentials>,
}

impl Proxy {
    /// Parses `[http[s]://][USER:PASSWORD@]HOST[:PORT]`.
    fn parse(text: &str) -> Result<Self, UrlError> {
        let parts = UrlParts::parse(text.trim())?;
        let secure = match parts.scheme.as_deref() {
            None | Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(UrlError::Scheme("http:// or https://; other kinds of proxies are not supported")),
        };
        if !matches!(parts.path.as_str(), "" | "/") || parts.query.is_some() {
            return Err(UrlError::Extra("the path of the proxy"));
        }
        Ok(Self {
            secure,
            host: parts.host,
            port: parts.port.unwrap_or(if secure { 443 } else { 80 }),
            credentials: parts.credentials,
        })
    }

    /// True if the connection to the proxy itself is encrypted.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Host name or address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port, 80 or 443 by default.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port for messages, without credentials.
    pub(crate) fn name(&self) -> String {
        format_authority(&self.host, self.port, 0)
    }

    /// Value of the `Proxy-Authorization` header.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        self.credentials.as_ref().map(BasicCredentials::header)
    }
}

/// Proxies for http and https, and the hosts that are reached without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    without: NoProxy,
}

impl Proxies {
    /// No proxy for any host.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    ///
    /// # Errors
    /// A variable names no proxy, or one of a kind that is not supported.
    pub fn from_env() -> Result<Self, ProxyError> {
        Self::from_variables(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Reads the variables from `read`. Each is looked up in lower case first; an empty one counts as missing. Where
    /// `REQUEST_METHOD` is set, `HTTP_PROXY` is a header of a CGI request and not read.
    ///
    /// # Errors
    /// A variable names no proxy, or one of a kind that is not supported.
    pub fn from_variables(read: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let find = |names: &[&'static str]| {
            let mut found = names.iter().filter_map(|name| Some((*name, read(name)?)));
            found.find(|(_, value)| !value.trim().is_empty())
        };
        let proxy = |names: &[&'static str]| {
            let Some((variable, value)) = find(names) else { return Ok(None) };
            Proxy::parse(&value).map(Some).map_err(|error| ProxyError { variable, error })
        };
        let cgi = read("REQUEST_METHOD").is_some();
        let http: &[&str] = if cgi { &["http_proxy"] } else { &["http_proxy", "HTTP_PROXY"] };
        let all = proxy(&["all_proxy", "ALL_PROXY"])?;
        Ok(Self {
            http: proxy(http)?.or_else(|| all.clone()),
            https: proxy(&["https_proxy", "HTTPS_PROXY"])?.or(all),
            without: find(&["no_proxy", "NO_PROXY"]).map(|(_, list)| NoProxy::parse(&list)).unwrap_or_default(),
        })
    }

    /// Returns the proxy for a server. This machine is reached without one, and so are the hosts of `NO_PROXY`.
    pub fn for_url(&self, url: &BaseUrl) -> Option<&Proxy> {
        let proxy = if url.is_secure() { &self.https } else { &self.http };
        proxy.as_ref().filter(|_| !self.without.matches(url.host(), url.port()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Proxies::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn chosen(variables: &[(&str, &str)], url: &str) -> Option<String> {
        proxies(variables).unwrap().for_url(&BaseUrl::parse(url).unwrap()).map(Proxy::name)
    }

    #[test]
    fn scheme_chooses_the_proxy() {
        let variables = [("HTTP_PROXY", "http://plain:3128"), ("HTTPS_PROXY", "tunnel:3129"), ("ALL_PROXY", "all:1")];
        assert_eq!(chosen(&variables, "http://a.example").as_deref(), Some("plain:3128"));
        assert_eq!(chosen(&variables, "https://a.example").as_deref(), Some("tunnel:3129"));
        let variables = [("https_proxy", "https://tunnel"), ("all_proxy", "http://all/")];
        assert_eq!(chosen(&variables, "http://a.example").as_deref(), Some("all:80"));
        assert_eq!(chosen(&variables, "https://a.example").as_deref(), Some("tunnel:443"));
        assert_eq!(chosen(&[], "https://a.example"), None);
    }

    #[test]
    fn lower_case_precedes_upper_case() {
        assert_eq!(
            chosen(&[("https_proxy", "lower:1"), ("HTTPS_PROXY", "upper:1")], "https://a").as_deref(),
            Some("lower:1")
        );
        assert_eq!(chosen(&[("https_proxy", ""), ("HTTPS_PROXY", "upper:1")], "https://a").as_deref(), Some("upper:1"));
    }

    #[test]
    fn cgi_requests_set_no_proxy() {
        assert_eq!(chosen(&[("HTTP_PROXY", "evil:1"), ("REQUEST_METHOD", "GET")], "http://a"), None);
        let variables = [("HTTP_PROXY", "evil:1"), ("http_proxy", "good:1"), ("REQUEST_METHOD", "GET")];
        assert_eq!(chosen(&variables, "http://a").as_deref(), Some("good:1"));
    }

    #[test]
    fn this_machine_is_reached_directly() {
        for url in ["http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]", "http://a.localhost"] {
            assert_eq!(chosen(&[("ALL_PROXY", "all:1")], url), None, "{url}");
        }
    }

    #[test]
    fn no_proxy_lists_direct_hosts() {
        let variables = [("ALL_PROXY", "all:1"), ("no_proxy", "inner.example,10.0.0.0/8")];
        assert_eq!(chosen(&variables, "http://llm.inner.example"), None);
        assert_eq!(chosen(&variables, "https://10.1.2.3"), None);
        assert_eq!(chosen(&variables, "https://outer.example").as_deref(), Some("all:1"));
    }

    #[test]
    fn proxy_errors_name_the_variable() {
        let error = proxies(&[("all_proxy", "socks5://ada:secret@p:1080")]).unwrap_err();
        assert_eq!(error.variable, "all_proxy");
        assert!(error.to_string().contains("all_proxy") && !error.to_string().contains("secret"), "{error}");
        let error = proxies(&[("HTTPS_PROXY", "p:port")]).unwrap_err();
        assert_eq!(error, ProxyError { variable: "HTTPS_PROXY", error: UrlError::Port });
        assert!(proxies(&[("HTTPS_PROXY", "http://p/path")]).is_err());
    }

    #[test]
    fn debug_hides_proxy_credentials() {
        let proxies = proxies(&[("https_proxy", "http://ada:secret@p:1")]).unwrap();
        assert!(proxies.https.as_ref().unwrap().authorization().unwrap().is_sensitive());
        assert!(!format!("{proxies:?}").contains("secret"));
    }
}
