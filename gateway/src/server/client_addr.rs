//! Where a request comes from: the peer, or what a trusted proxy says of it.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HOST, HeaderName};
use axum::http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

/// The other end of a connection, as an extension of every request on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub address: SocketAddr,
    /// Whether the connection is encrypted to here.
    pub tls: bool,
}

/// Where a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Via {
    /// The caller's address.
    pub address: IpAddr,
    /// `http` or `https`, if that is known: a proxy may have said nothing.
    pub scheme: Option<&'static str>,
    /// Host and port that the caller asked for.
    pub host: Option<String>,
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

impl Via {
    /// Where a request with these headers comes from. What they say of forwarding counts only if `peer` is trusted.
    pub fn of(peer: Peer, headers: &HeaderMap, trusted: &[IpNet]) -> Self {
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

/// Whether one of the networks holds the address.
pub(super) fn trusts(trusted: &[IpNet], address: IpAddr) -> bool {
    trusted.iter().any(|network| network.contains(&address.to_canonical()))
}

/// Each proxy adds whom it heard at the right end: the first from there that is no proxy of ours is the caller. What stands
/// left of it is the caller's own claim.
fn forwarded(headers: &HeaderMap, peer: IpAddr, trusted: &[IpNet]) -> IpAddr {
    let lists: Vec<String> = headers.get_all(FORWARDED_FOR).iter().filter_map(|list| text(Some(list))).collect();
    let mut caller = peer;
    for entry in lists.iter().rev().flat_map(|list| list.rsplit(',')) {
        let Some(address) = read(entry.trim()) else { break };
        caller = address;
        if !trusts(trusted, address) {
            break;
        }
    }
    caller
}

/// An address with or without a port.
fn read(entry: &str) -> Option<IpAddr> {
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

    fn via(peer: &str, tls: bool, headers: &[(&'static str, &'static str)]) -> Via {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let trusted = ["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        Via::of(Peer { address: peer.parse().unwrap(), tls }, &map, &trusted)
    }

    fn address(peer: &str, forwarded: &'static str) -> String {
        via(peer, false, &[("x-forwarded-for", forwarded)]).address.to_string()
    }

    #[test]
    fn only_a_trusted_proxy_says_who_calls() {
        assert_eq!(address("203.0.113.9:5", "198.51.100.1"), "203.0.113.9");
        assert_eq!(address("127.0.0.1:5", "198.51.100.1"), "198.51.100.1");
        assert_eq!(address("[::ffff:127.0.0.1]:5", "198.51.100.1"), "198.51.100.1");
    }

    #[test]
    fn what_the_caller_claims_of_itself_does_not_count() {
        assert_eq!(address("127.0.0.1:5", "6.6.6.6, 198.51.100.1"), "198.51.100.1");
        assert_eq!(address("127.0.0.1:5", "6.6.6.6, 198.51.100.1, 10.1.2.3"), "198.51.100.1");
        let lists = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "198.51.100.1:99, 10.0.0.1")];
        assert_eq!(via("127.0.0.1:5", false, &lists).address.to_string(), "198.51.100.1");
        assert_eq!(address("127.0.0.1:5", "198.51.100.1, nonsense"), "127.0.0.1");
        assert_eq!(address("127.0.0.1:5", "[2001:db8::1]:443"), "2001:db8::1");
    }

    #[test]
    fn scheme_and_host_are_the_ones_that_the_caller_used() {
        let proxied =
            [("x-forwarded-proto", "https"), ("x-forwarded-host", "voice.example"), ("host", "127.0.0.1:8080")];
        let from = via("127.0.0.1:5", false, &proxied);
        assert_eq!((from.scheme, from.host.as_deref()), (Some("https"), Some("voice.example")));
        let from = via("203.0.113.9:5", false, &proxied);
        assert_eq!((from.scheme, from.host.as_deref()), (Some("http"), Some("127.0.0.1:8080")));
        assert_eq!(via("203.0.113.9:5", true, &[]).scheme, Some("https"));
        assert_eq!(via("127.0.0.1:5", false, &[]).scheme, None);
    }
}
