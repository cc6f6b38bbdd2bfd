//! Origins that may call: the server's own, loopback ones, and those in the settings. Programs that are not browsers send no
//! `Origin` and are not checked.

use std::net::IpAddr;

use super::client_addr::ClientAddr;

/// The origins that may call.
#[derive(Debug)]
pub(super) struct Origins {
    registration: Vec<String>,
    /// Whether the server has API keys.
    keyed: bool,
}

impl Origins {
    pub fn new(registration: &[String], keyed: bool) -> Self {
        Self { registration: registration.iter().map(|origin| origin.to_ascii_lowercase()).collect(), keyed }
    }

    /// Whether a page of `origin` may make a request of this client.
    pub fn allow(&self, origin: &str, client_addr: &ClientAddr) -> bool {
        let origin = origin.to_ascii_lowercase();
        if self.registration.iter().any(|registration| registration == "*" || *registration == origin) {
            return true;
        }
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        is_loopback(authority) || self.is_own(scheme, authority, client_addr)
    }

    /// Whether the origin is this server's own. Without keys a host name proves nothing: anybody can have a name that resolves
    /// to this machine (DNS rebinding).
    fn is_own(&self, scheme: &str, authority: &str, client_addr: &ClientAddr) -> bool {
        let same_host = client_addr.host.as_ref().is_some_and(|host| host.eq_ignore_ascii_case(authority));
        let same_scheme = client_addr.scheme.is_none_or(|own| own == scheme);
        let trusted = self.keyed || host_name(authority).parse::<IpAddr>().is_ok();
        same_host && same_scheme && trusted
    }
}

fn is_loopback(authority: &str) -> bool {
    let name = host_name(authority);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The host without its port.
fn host_name(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or(authority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_addr(scheme: Option<&'static str>, host: &str) -> ClientAddr {
        ClientAddr { address: IpAddr::from([203, 0, 113, 7]), scheme, host: Some(host.into()) }
    }

    #[test]
    fn the_servers_own_origin_may_call() {
        let origins = Origins::new(&[], true);
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
        let origins = Origins::new(&[], false);
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
        assert!(!Origins::new(&[], false).allow("http://evil.example:8080", &rebound));
        assert!(Origins::new(&[], true).allow("http://evil.example:8080", &rebound));
        assert!(Origins::new(&["http://evil.example:8080".into()], false).allow("http://evil.example:8080", &rebound));
    }

    #[test]
    fn listed_origins_may_call() {
        let origins = Origins::new(&["https://app.example".into()], false);
        assert!(origins.allow("https://app.example", &client_addr(None, "voice.example")));
        assert!(!origins.allow("http://app.example", &client_addr(None, "voice.example")));
        assert!(Origins::new(&["*".into()], true).allow("null", &client_addr(None, "voice.example")));
    }
}
