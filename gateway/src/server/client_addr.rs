//! Address, scheme and host of a client: of the connection, or as a trusted proxy forwards them.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HOST, HeaderName};
use axum::http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

/// Peer of a connection, as an extension of every request on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub address: SocketAddr,
    /// True if the connection is TLS.
    pub tls: bool,
}

/// Address, scheme and host of a request's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientAddr {
    /// Client's IP address.
    pub address: IpAddr,
    /// `http` or `https`; `None` if a trusted proxy does not say.
    pub scheme: Option<&'static str>,
    /// Host, and port if given, that the request names.
    pub host: Option<String>,
}

pub(super) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

impl ClientAddr {
    /// Reads them from `peer` and the headers. `X-Forwarded-*` counts only if `peer` is in a trusted network.
    pub fn new(peer: Peer, headers: &HeaderMap, trusted: &[IpNet]) -> Self {
        let own = if peer.tls { Some("https") } else { None };
        let address = peer.address.ip().to_canonical();
        let host = text(headers.get(HOST));
        if !trusts(trusted, address) {
            return Self { address, scheme: own.or(Some("http")), host };
        }
        let scheme = match text(headers.get(FORWARDED_PROTO)).as_deref().map(first) {
            Some("https" | "wss") => Some("https"),
            Some("http" | "ws") => Some("http"),
            _ => own,
        };
        let host = text(headers.get(FORWARDED_HOST)).map(|hosts| first(&hosts).to_owned()).or(host);
        Self { address: forwarded(headers, address, trusted), scheme, host }
    }
}

/// True if one of the networks contains the address.
pub(super) fn trusts(trusted: &[IpNet], address: IpAddr) -> bool {
    trusted.iter().any(|network| network.contains(&address.to_canonical()))
}

/// Finds the client's address in `X-Forwarded-For`. Each proxy appends its peer: from the right, the first address that
/// is not a trusted proxy is the client. Addresses left of it are the client's claim.
fn forwarded(headers: &HeaderMap, peer: IpAddr, trusted: &[IpNet]) -> IpAddr {
    let registry: Vec<String> = headers.get_all(FORWARDED_FOR).iter().filter_map(|list| text(Some(list))).collect();
    let mut client = peer;
    for entry in registry.iter().rev().flat_map(|list| list.rsplit(',')) {
        let Some(address) = parse_address(entry.trim()) else { break };
        client = address;
        if !trusts(trusted, address) {
            break;
        }
    }
    client
}

/// Parses an address with or without a port.
pub(super) fn parse_address(entry: &str) -> Option<IpAddr> {
    let bare = entry.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse().ok().or_else(|| entry.parse::<SocketAddr>().ok().map(|address| address.ip()))?;
    Some(IpAddr::to_canonical(&address))
}

fn text(value: Option<&HeaderValue>) -> Option<String> {
    value.and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn first(list: &str) -> &str {
    list.split(',').next().unwrap_or(list).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_addr(peer: &str, tls: bool, headers: &[(&'static str, &'static str)]) -> ClientAddr {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let trusted = ["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        ClientAddr::new(Peer { address: peer.parse().unwrap(), tls }, &map, &trusted)
    }

    fn address(peer: &str, forwarded: &'static str) -> String {
        client_addr(peer, false, &[("x-forwarded-for", forwarded)]).address.to_string()
    }

    #[test]
    fn only_trusted_proxies_set_the_client_address() {
        assert_eq!(address("203.0.113.9:5", "198.51.100.1"), "203.0.113.9");
        assert_eq!(address("127.0.0.1:5", "198.51.100.1"), "198.51.100.1");
        assert_eq!(address("[::ffff:127.0.0.1]:5", "198.51.100.1"), "198.51.100.1");
    }

    #[test]
    fn addresses_left_of_the_proxys_are_ignored() {
        assert_eq!(address("127.0.0.1:5", "6.6.6.6, 198.51.100.1"), "198.51.100.1");
        assert_eq!(address("127.0.0.1:5", "6.6.6.6, 198.51.100.1, 10.1.2.3"), "198.51.100.1");
        let registry = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "198.51.100.1:99, 10.0.0.1")];
        assert_eq!(client_addr("127.0.0.1:5", false, &registry).address.to_string(), "198.51.100.1");
        assert_eq!(address("127.0.0.1:5", "198.51.100.1, nonsense"), "127.0.0.1");
        assert_eq!(address("127.0.0.1:5", "[2001:db8::1]:443"), "2001:db8::1");
    }

    #[test]
    fn scheme_and_host_come_from_trusted_proxies() {
        let proxied =
            [("x-forwarded-proto", "https"), ("x-forwarded-host", "voice.example"), ("host", "127.0.0.1:8080")];
        let from = client_addr("127.0.0.1:5", false, &proxied);
        assert_eq!((from.scheme, from.host.as_deref()), (Some("https"), Some("voice.example")));
        let from = client_addr("203.0.113.9:5", false, &proxied);
        assert_eq!((from.scheme, from.host.as_deref()), (Some("http"), Some("127.0.0.1:8080")));
        assert_eq!(client_addr("203.0.113.9:5", true, &[]).scheme, Some("https"));
        assert_eq!(client_addr("127.0.0.1:5", false, &[]).scheme, None);
    }
}
