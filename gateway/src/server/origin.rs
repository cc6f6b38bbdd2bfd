//! Which web pages may call: the server's own, those of the caller's own machine, and those on the list. Programs that are
//! not browsers send no `Origin`, and are let in.

use std::net::IpAddr;

use super::via::Via;

/// The pages that may call.
#[derive(Debug)]
pub(super) struct Origins {
    listed: Vec<String>,
    /// Whether keys keep strangers out.
    keyed: bool,
}

impl Origins {
    pub fn new(listed: &[String], keyed: bool) -> Self {
        Self { listed: listed.iter().map(|origin| origin.to_ascii_lowercase()).collect(), keyed }
    }

    /// Whether a page of `origin` may make the request that came by `via`.
    pub fn allow(&self, origin: &str, via: &Via) -> bool {
        let origin = origin.to_ascii_lowercase();
        if self.listed.iter().any(|listed| listed == "*" || *listed == origin) {
            return true;
        }
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        is_loopback(authority) || self.is_own(scheme, authority, via)
    }

    /// Whether it is the page that this server itself delivered. Without keys a host's name proves nothing: anybody can have
    /// a name that resolves to this machine, and a page there would be as good as ours.
    fn is_own(&self, scheme: &str, authority: &str, via: &Via) -> bool {
        let same_host = via.host.as_ref().is_some_and(|host| host.eq_ignore_ascii_case(authority));
        let same_scheme = via.scheme.is_none_or(|own| own == scheme);
        let certain = self.keyed || host_name(authority).parse::<IpAddr>().is_ok();
        same_host && same_scheme && certain
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

    fn via(scheme: Option<&'static str>, host: &str) -> Via {
        Via { address: IpAddr::from([203, 0, 113, 7]), scheme, host: Some(host.into()) }
    }

    #[test]
    fn the_servers_own_page_may_call() {
        let origins = Origins::new(&[], true);
        assert!(origins.allow("https://voice.example", &via(Some("https"), "voice.example")));
        assert!(origins.allow("https://Voice.example", &via(None, "voice.example")));
        assert!(origins.allow("http://192.168.1.5:8080", &via(Some("http"), "192.168.1.5:8080")));
        assert!(!origins.allow("http://voice.example", &via(Some("https"), "voice.example")));
        assert!(!origins.allow("https://voice.example:444", &via(Some("https"), "voice.example")));
        assert!(!origins.allow("https://evil.example", &via(Some("https"), "voice.example")));
        assert!(!origins.allow("null", &via(None, "voice.example")));
    }

    #[test]
    fn pages_of_the_callers_own_machine_may_call() {
        let origins = Origins::new(&[], false);
        for page in ["http://localhost:3000", "http://127.0.0.1:9090", "https://[::1]:8443", "http://localhost"] {
            assert!(origins.allow(page, &via(Some("http"), "127.0.0.1:8080")), "{page}");
        }
        for page in ["http://localhost.evil.example", "http://127.0.0.1.evil.example", "http://evil.example:80"] {
            assert!(!origins.allow(page, &via(Some("http"), "127.0.0.1:8080")), "{page}");
        }
    }

    #[test]
    fn without_keys_a_name_that_resolves_to_this_machine_is_not_its_own() {
        let rebound = via(None, "evil.example:8080");
        assert!(!Origins::new(&[], false).allow("http://evil.example:8080", &rebound));
        assert!(Origins::new(&[], true).allow("http://evil.example:8080", &rebound));
        assert!(Origins::new(&["http://evil.example:8080".into()], false).allow("http://evil.example:8080", &rebound));
    }

    #[test]
    fn listed_pages_may_call() {
        let origins = Origins::new(&["https://app.example".into()], false);
        assert!(origins.allow("https://app.example", &via(None, "voice.example")));
        assert!(!origins.allow("http://app.example", &via(None, "voice.example")));
        assert!(Origins::new(&["*".into()], true).allow("null", &via(None, "voice.example")));
    }
}
