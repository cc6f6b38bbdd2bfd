//! Middleware of a server without keys, which serves its own machine only. It refuses clients from elsewhere, also
//! through a tunnel or a proxy on this machine, and requests for a host name that anybody could own (DNS rebinding).

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ipnet::IpNet;
use repartee_protocol::{ErrorBody, ErrorKind};

use super::api_error::ApiError;
use super::client_addr::{ClientAddr, FORWARDED_FOR, FORWARDED_HOST, Peer, parse_address, trusts};
use super::origin::{host_name, is_loopback};
use crate::config::Config;
use crate::metrics::RequestMetrics;

/// Headers of the client's address, besides `X-Forwarded-For`.
const ADDRESS_HEADERS: [&str; 2] = ["x-real-ip", "x-client-ip"];
/// Headers that a proxy adds beside `X-Forwarded-For`. Without it they come from a proxy that hides its clients.
const COMPANIONS: [&str; 5] =
    ["x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-server", "x-forwarded-scheme"];
/// Beginnings of the names of headers that proxies and tunnels add.
const PROXY_HEADERS: [&str; 24] = [
    "via",
    "forwarded",
    "x-forwarded",
    "x-original-forwarded",
    "x-original-host",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-proxy",
    "proxy-",
    "x-envoy-",
    "x-azure-",
    "x-arr-",
    "x-amzn-",
    "x-amz-cf-",
    "x-appengine-",
    "x-cloud-trace-context",
    "x-vercel-",
    "cf-",
    "cdn-loop",
    "true-client-ip",
    "fly-",
    "fastly-",
    "tailscale-",
];

/// Rules of service without keys.
#[derive(Debug)]
pub(super) struct LocalOnlyPolicy {
    /// True if there are keys. A reload may replace them, but not add the first or remove the last.
    has_keys: bool,
    trusted: Vec<IpNet>,
    hosts: Vec<String>,
    metrics: RequestMetrics,
}

impl LocalOnlyPolicy {
    /// Creates the rules from the settings.
    pub fn new(config: &Config, metrics: RequestMetrics) -> Arc<Self> {
        let (trusted, hosts) = (config.proxy.trusted.clone(), config.browser.hosts.clone());
        Arc::new(Self { has_keys: !config.api_keys.is_empty(), trusted, hosts, metrics })
    }
}

/// Passes on requests of this machine, and all requests on a server with keys.
pub(super) async fn require_local(
    State(keyless): State<Arc<LocalOnlyPolicy>>,
    request: Request,
    next: Next,
) -> Response {
    if keyless.has_keys {
        return next.run(request).await;
    }
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return ApiError::internal("a request has no peer address").into_response();
    };
    let headers = request.headers();
    let error = if !is_local(peer, headers, &keyless.trusted) {
        let message =
            "this server has no keys, so it serves its own machine only: set keys.file or REPARTEE_API_KEYS on it";
        ErrorBody::invalid(ErrorKind::RemoteWithoutKeys, message)
    } else if !names_this_machine(request.uri(), headers, &keyless.hosts) {
        let message = "this server has no keys, so it accepts requests to localhost or an IP address only: list other host \
                       names of this machine under browser.hosts, or set keys";
        ErrorBody::invalid(ErrorKind::HostNotAllowed, message)
    } else {
        return next.run(request).await;
    };
    keyless.metrics.refused.with_label_values(&["not_local"]).inc();
    ApiError::new(StatusCode::FORBIDDEN, error).into_response()
}

/// True if the client runs on this machine, as far as the connection and all proxies in between tell. A proxy's header
/// makes it remote, unless it names nothing but loopback addresses and trusted proxies.
fn is_local(peer: Peer, headers: &HeaderMap, trusted: &[IpNet]) -> bool {
    let loopback = |text: &str| parse_address(text.trim()).is_some_and(|address| address.is_loopback());
    let known = |text: &str| loopback(text) || parse_address(text.trim()).is_some_and(|proxy| trusts(trusted, proxy));
    let names_clients = headers.contains_key(FORWARDED_FOR);
    let is_plain = |(name, value): (&HeaderName, &HeaderValue)| match name.as_str() {
        name if !PROXY_HEADERS.iter().any(|beginning| name.starts_with(beginning)) => true,
        name if name == FORWARDED_FOR.as_str() => {
            value.to_str().is_ok_and(|list| !list.is_empty() && list.split(',').all(known))
        }
        name if ADDRESS_HEADERS.contains(&name) => value.to_str().is_ok_and(loopback),
        name => names_clients && COMPANIONS.contains(&name),
    };
    headers.iter().all(is_plain) && ClientAddr::new(peer, headers, trusted).address.is_loopback()
}

/// True if every host in the request is loopback, an IP address or one of `hosts`. A browser sends the host of the
/// asking page in `Host`; an `X-Forwarded-Host`, which such a page could add, does not replace it.
pub(super) fn names_this_machine(uri: &Uri, headers: &HeaderMap, hosts: &[String]) -> bool {
    let known = |authority: &str| {
        let authority = authority.trim().to_ascii_lowercase();
        let name = host_name(&authority);
        is_loopback(&authority)
            || name.parse::<IpAddr>().is_ok()
            || hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
    };
    let named = [HOST, FORWARDED_HOST];
    let mut values = named.iter().flat_map(|name| headers.get_all(name));
    values.all(|value| value.to_str().is_ok_and(|list| list.split(',').all(known)))
        && uri.authority().is_none_or(|authority| known(authority.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn local(peer: &str, pairs: &[(&'static str, &'static str)]) -> bool {
        let trusted = ["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        is_local(Peer { address: peer.parse().unwrap(), tls: false }, &headers(pairs), &trusted)
    }

    #[test]
    fn only_this_machine_is_local() {
        for peer in ["127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert!(local(peer, &[]), "{peer}");
            let proxied = [("x-forwarded-for", "127.0.0.1"), ("x-real-ip", "::1"), ("x-forwarded-proto", "http")];
            assert!(local(peer, &proxied), "{peer}");
        }
        for peer in ["203.0.113.9:5", "192.168.1.5:5", "[2001:db8::1]:5", "10.1.2.3:5"] {
            assert!(!local(peer, &[]), "{peer}");
        }
    }

    #[test]
    fn tunnels_make_a_client_remote() {
        for header in [
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-for", "127.0.0.1, 203.0.113.7"),
            ("x-forwarded-for", "203.0.113.7, 127.0.0.1"),
            ("x-forwarded-for", "unknown"),
            ("x-forwarded-for", ""),
            ("x-real-ip", "203.0.113.7"),
            ("cf-connecting-ip", "203.0.113.7"),
            ("forwarded", "for=203.0.113.7"),
            ("forwarded", "for=127.0.0.1"),
            ("via", "1.1 proxy"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "localhost"),
            ("x-forwarded", "203.0.113.7"),
            ("x-original-forwarded-for", "203.0.113.7"),
            ("fly-client-ip", "203.0.113.7"),
            ("x-envoy-external-address", "203.0.113.7"),
            ("fastly-client-ip", "203.0.113.7"),
            ("x-azure-clientip", "203.0.113.7"),
            ("tailscale-user-login", "ada@example"),
            ("cf-ray", "8d1"),
            ("cdn-loop", "cloudflare"),
        ] {
            assert!(!local("127.0.0.1:5", &[header]), "{header:?}");
        }
        assert!(!local("127.0.0.1:5", &[("x-forwarded-for", "127.0.0.1"), ("x-forwarded-for", "203.0.113.7")]));
    }

    #[test]
    fn hosts_are_loopback_addresses_or_listed() {
        let hosts = ["Voice.internal".to_owned()];
        let known = |pairs: &[(&'static str, &'static str)], uri: &str| {
            names_this_machine(&uri.parse().unwrap(), &headers(pairs), &hosts)
        };
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "a.localhost",
            "127.0.0.1:8080",
            "[::1]:8080",
            "192.168.1.5",
            "voice.internal:1",
        ] {
            assert!(known(&[("host", host)], "/"), "{host}");
        }
        for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert!(!known(&[("host", host)], "/"), "{host}");
        }
        assert!(!known(&[("host", "evil.example"), ("x-forwarded-host", "localhost")], "/"));
        assert!(!known(&[("host", "localhost"), ("x-forwarded-host", "localhost, evil.example")], "/"));
        assert!(!known(&[("host", "localhost")], "http://evil.example/metrics"));
    }
}
