//! Hosts that are reached without a proxy: the list of `NO_PROXY`.

use std::net::IpAddr;

use ipnet::IpNet;

/// Maximum entries of the list; the rest is ignored.
const MAX_RULES: usize = 1_024;

/// One entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NoProxyRule {
    /// `*`.
    All,
    /// An address or a network, with a port or for all ports.
    Network(IpNet, Option<u16>),
    /// A host and all below it, with a port or for all ports.
    Domain(String, Option<u16>),
}

impl NoProxyRule {
    fn parse(text: &str) -> Self {
        if text == "*" {
            return Self::All;
        }
        if let Some(network) = parse_network(text) {
            return Self::Network(network, None);
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => (text, None),
            },
            None => (text, None),
        };
        if let Some(network) = parse_network(host) {
            return Self::Network(network, port);
        }
        let domain = host.trim_start_matches("*.").trim_matches('.').to_ascii_lowercase();
        Self::Domain(domain, port)
    }

    fn matches(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Network(network, only) => {
                address.is_some_and(|address| network.contains(&address)) && only.is_none_or(|only| only == port)
            }
            Self::Domain(domain, only) => {
                let below = host.strip_suffix(domain.as_str());
                !domain.is_empty()
                    && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
                    && only.is_none_or(|only| only == port)
            }
        }
    }
}

/// Parses an address, in brackets or not, or a network.
fn parse_network(text: &str) -> Option<IpNet> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().map(IpNet::from).or_else(|_| bare.parse()).ok()
}

/// List of hosts that are reached without a proxy. This machine always is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NoProxy(Vec<NoProxyRule>);

impl NoProxy {
    /// Parses names, addresses and networks between commas or spaces. A name stands for itself and all hosts below it, with
    /// or without a leading dot.
    pub fn parse(list: &str) -> Self {
        let entries = list.split(|sign: char| sign == ',' || sign.is_whitespace()).filter(|entry| !entry.is_empty());
        Self(entries.take(MAX_RULES).map(NoProxyRule::parse).collect())
    }

    /// True for a host of the list, and for this machine.
    pub fn matches(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.');
        let address = host.parse::<IpAddr>().ok();
        let here = host == "localhost" || host.ends_with(".localhost") || address.is_some_and(|it| it.is_loopback());
        here || self.0.iter().any(|rule| rule.matches(host, address, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_themselves_and_below() {
        for list in ["example.com", ".example.com", "*.example.com", "a, Example.COM ,b", "x example.com"] {
            let rules = NoProxy::parse(list);
            assert!(rules.matches("example.com", 443), "{list}");
            assert!(rules.matches("llm.example.com", 443), "{list}");
            assert!(rules.matches("llm.example.com.", 443), "{list}");
            assert!(!rules.matches("badexample.com", 443), "{list}");
            assert!(!rules.matches("example.com.evil.org", 443), "{list}");
        }
    }

    #[test]
    fn addresses_and_networks_match() {
        let rules = NoProxy::parse("10.0.0.0/8,192.0.2.7,fd00::/8,[2001:db8::1]");
        for host in ["10.200.3.4", "192.0.2.7", "fd12::1", "2001:db8::1"] {
            assert!(rules.matches(host, 80), "{host}");
        }
        for host in ["11.0.0.1", "192.0.2.8", "fe80::1", "2001:db8::2", "10.0.0.0.example.com"] {
            assert!(!rules.matches(host, 80), "{host}");
        }
    }

    #[test]
    fn port_limits_an_entry() {
        let rules = NoProxy::parse("a.example:8080,192.0.2.7:81,[::2]:82");
        assert!(rules.matches("a.example", 8080) && !rules.matches("a.example", 443));
        assert!(rules.matches("192.0.2.7", 81) && !rules.matches("192.0.2.7", 80));
        assert!(rules.matches("::2", 82) && !rules.matches("::2", 80));
    }

    #[test]
    fn star_matches_all_and_dots_none() {
        assert!(NoProxy::parse("*").matches("any.example", 1));
        assert!(!NoProxy::parse(". , :80 ,*.").matches("any.example", 80));
        assert!(!NoProxy::parse("").matches("any.example", 80));
    }
}
