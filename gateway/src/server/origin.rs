//! Allowed origins: the server's own, loopback ones, and those in the settings. Programs that are not browsers send no
//! `Origin` and are not checked.

use std::net::IpAddr;

use super::client_addr::ClientAddr;
use crate::config::BrowserConfig;

/// Rules of allowed origins.
#[derive(Debug)]
pub(super) struct OriginPolicy {
    allowed: Vec<String>,
    /// Host names of this server, in lower case.
    hosts: Vec<String>,
    /// True if the server has API keys.
    keyed: bool,
}

impl OriginPolicy {
    /// Creates the rules from the settings; `keyed` is true for a server with keys.
    pub fn new(BrowserConfig { origins, hosts }: &BrowserConfig, keyed: bool) -> Self {
        let lower = |list: &[String]| list.iter().map(|text| text.to_ascii_lowercase()).collect();
        Self { allowed: lower(origins), hosts: lower(hosts), keyed }
    }

    /// True if a page of `origin` may make a request to the address in `client_addr`.
    pub fn allow(&self, origin: &str, client_addr: &ClientAddr) -> bool {
        let origin = origin.to_ascii_lowercase();
        if self.allowed.iter().any(|registration| registration == "*" || *registration == origin) {
            return true;
        }
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        is_loopback(authority) || self.is_own(scheme, authority, client_addr)
    }

    /// True if the origin is this server's own. Without keys a matching host name proves nothing, because anybody can
    /// own a name that resolves to this machine (DNS rebinding).
    fn is_own(&self, scheme: &str, authority: &str, client_addr: &ClientAddr) -> bool {
        let same_host = client_addr.host.as_ref().is_some_and(|host| host.eq_ignore_ascii_case(authority));
        let same_scheme = client_addr.scheme.is_none_or(|own| own == scheme);
        let name = host_name(authority);
        let trusted = self.keyed || name.parse::<IpAddr>().is_ok() || self.hosts.iter().any(|host| host == name);
        same_host && same_scheme && trusted
    }
}

/// True if the host of `authority`, in lower case, is loopback for every client.
pub(super) fn is_loopback(authority: &str) -> bool {
    let name = host_name(authority);
    // Resolvers never ask the network for a name below `localhost` (RFC 6761, 6.3).
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the host without its port.
pub(super) fn host_name(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or(authority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(listed: &[&str], keyed: bool) -> OriginPolicy {
        let origins = listed.iter().map(|origin| (*origin).to_owned()).collect();
        OriginPolicy::new(&BrowserConfig { origins, hosts: vec!["Voice.internal".into()] }, keyed)
    }

    fn client_addr(scheme: Option<&'static str>, host: &str) -> ClientAddr {
        ClientAddr { address: IpAddr::from([203, 0, 113, 7]), scheme, host: Some(host.into()) }
    }

    #[test]
    fn the_servers_own_origin_may_call() {
        let origins = listing(&[], true);
        assert!(origins.allow("https://voice.example", &client_addr(Some("https"), "voice.example")));
        assert!(origins.allow("https://Voice.example", &client_addr(None, "voice.example")));
        assert!(origins.allow("http://192.168.1.5:8080", &client_addr(Some("http"), "192.168.1.5:8080")));
        assert!(!origins.allow("http://voice.example", &client_addr(Some("https"), "voice.example")));
        assert!(!origins.allow("https://voice.example:444", &client_addr(Some("https"), "voice.example")));
        assert!(!origins.allow("https://evil.example", &client_addr(Some("https"), "voice.example")));
        assert!(!origins.allow("null", &client_addr(None, "voice.example")));
    }

    #[test]
    fn loopback_origins_may_call() {
        let origins = listing(&[], false);
        for page in ["http://localhost:3000", "http://127.0.0.1:9090", "https://[::1]:8443", "http://localhost"] {
            assert!(origins.allow(page, &client_addr(Some("http"), "127.0.0.1:8080")), "{page}");
        }
        for page in ["http://localhost.evil.example", "http://127.0.0.1.evil.example", "http://evil.example:80"] {
            assert!(!origins.allow(page, &client_addr(Some("http"), "127.0.0.1:8080")), "{page}");
        }
    }

    #[test]
    fn dns_rebinding_is_refused_without_keys() {
        let rebound = client_addr(None, "evil.example:8080");
        assert!(!listing(&[], false).allow("http://evil.example:8080", &rebound));
        assert!(listing(&[], true).allow("http://evil.example:8080", &rebound));
        let named = client_addr(None, "voice.internal:8080");
        assert!(listing(&[], false).allow("http://voice.internal:8080", &named), "listed under browser.hosts");
        assert!(listing(&["http://evil.example:8080"], false).allow("http://evil.example:8080", &rebound));
    }

    #[test]
    fn listed_origins_may_call() {
        let origins = listing(&["https://app.example"], false);
        assert!(origins.allow("https://app.example", &client_addr(None, "voice.example")));
        assert!(!origins.allow("http://app.example", &client_addr(None, "voice.example")));
        assert!(listing(&["*"], true).allow("null", &client_addr(None, "voice.example")));
    }
}
