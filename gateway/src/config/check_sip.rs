//! Checks of the settings of telephone calls over SIP.

use repartee_chat_client::BaseUrl;

use super::check::ConfigError;
use super::sip::SipConfig;
use super::sip_address::{SipAddress, SipScheme};

impl SipConfig {
    /// Checks the settings; `has_certificate` is true for a server with HTTPS.
    pub(super) fn check(&self, has_certificate: bool) -> Result<(), ConfigError> {
        let refuse = |path, problem: &str| Err(ConfigError::Value { path, problem: problem.to_owned() });
        if (self.first_port == 0) != (self.last_port == 0) || self.last_port < self.first_port {
            return refuse("sip.last_port", "set first_port and last_port, the larger one, or neither");
        }
        if self.decide_within.is_zero() {
            return refuse("sip.decide_within_s", "has to be more than 0 seconds");
        }
        if self.webhook.as_deref().is_some_and(|url| BaseUrl::parse(url).is_err()) {
            return refuse("sip.webhook", "is no URL: write https://host/path");
        }
        if self.webhook_secret.is_some() && self.webhook.is_none() {
            return refuse("sip.webhook_secret", "there is no sip.webhook to sign for");
        }
        let (has_user, is_asked) = (self.user.is_some(), self.registrar.is_some() || self.trunk.is_some());
        if (self.registrar.is_some() && !has_user) || (has_user && !is_asked) {
            return refuse("sip.user", "set registrar or trunk with it; a registrar wants a user");
        }
        if self.ring.is_zero() {
            return refuse("sip.ring_s", "has to be more than 0 seconds");
        }
        let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'*' | b'#');
        let is_number =
            |text: &String| !text.is_empty() && text.strip_prefix('+').unwrap_or(text).bytes().all(is_digit);
        if !self.destinations.iter().all(is_number) {
            return refuse(
                "sip.destinations",
                "write beginnings of numbers, such as \"+4930\"; \"+\" is every country's",
            );
        }
        let is_plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"\\@".contains(&byte));
        if !self.user.iter().chain(&self.domain).chain(&self.caller).all(is_plain) {
            return refuse("sip.user", "user, domain and caller are ASCII, without blanks, quotes and @");
        }
        for (path, address) in [("sip.registrar", self.registrar), ("sip.trunk", self.trunk)] {
            let has_own = |of: SipAddress| self.listen.iter().any(|listen| listen.scheme == of.scheme);
            if address.is_some_and(|address| !self.listen.is_empty() && !has_own(address)) {
                return refuse(
                    path,
                    "its transport has no address of ours: add one to sip.listen, such as tcp:0.0.0.0:5060",
                );
            }
        }
        let Some(listen) = self.listen.first() else { return Ok(()) };
        for (index, one) in self.listen.iter().enumerate() {
            if self.listen.iter().take(index).any(|other| other.scheme == one.scheme) {
                return refuse("sip.listen", "name one address by each transport");
            }
            if one.address.ip() != listen.address.ip() {
                return refuse("sip.listen", "name the same IP address for each transport");
            }
            if one.scheme == SipScheme::Tls && !has_certificate {
                return refuse("sip.listen", "tls: wants the server's certificate: set tls.certificate and tls.key");
            }
        }
        if cfg!(not(feature = "phone")) {
            let problem =
                "this binary has no calls over SIP: build it with the feature `phone`, or leave the setting out";
            return refuse("sip.listen", problem);
        }
        let Some(announced) = self.announced() else {
            return refuse("sip.advertised", "name the address that telephones reach, because sip.listen names none");
        };
        if announced.is_unspecified() || announced.is_ipv4() != listen.address.is_ipv4() {
            return refuse("sip.advertised", "name an address of one machine, of the kind of sip.listen");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_addresses_are_of_one_machine() {
        let listen = |text: &str| text.split(',').map(|one| one.parse().unwrap()).collect();
        let config = SipConfig { listen: listen("0.0.0.0:5060"), ..SipConfig::default() };
        assert!(config.check(false).unwrap_err().to_string().starts_with("sip.advertised: name the address"));
        let named = SipConfig { advertised: Some([192, 0, 2, 1].into()), ..config.clone() };
        assert_eq!((named.check(false), named.announced()), (Ok(()), Some([192, 0, 2, 1].into())));
        let other = SipConfig { advertised: Some("::1".parse().unwrap()), ..config };
        assert!(other.check(false).is_err());
        let own = SipConfig { listen: listen("192.0.2.1:5060"), ..SipConfig::default() };
        assert_eq!(own.announced(), Some([192, 0, 2, 1].into()));
        for (refused, problem) in [
            ("192.0.2.1:5060,udp:192.0.2.1:5062", "one address by each transport"),
            ("192.0.2.1:5060,tcp:192.0.2.2:5060", "the same IP address"),
            ("tls:192.0.2.1:5061", "tls.certificate"),
        ] {
            let error = SipConfig { listen: listen(refused), ..SipConfig::default() }.check(false).unwrap_err();
            assert!(error.to_string().contains(problem), "{refused}: {error}");
        }
        let all = listen("192.0.2.1:5060,tcp:192.0.2.1:5060,tls:192.0.2.1:5061");
        assert_eq!(SipConfig { listen: all, ..SipConfig::default() }.check(true), Ok(()));
        let trunk = SipConfig { trunk: "tcp:192.0.2.9:5060".parse().ok(), ..own.clone() };
        assert!(trunk.check(false).unwrap_err().to_string().starts_with("sip.trunk"));
        let ports = SipConfig { first_port: 9, last_port: 8, ..own };
        assert!(ports.check(false).unwrap_err().to_string().starts_with("sip.last_port"));
    }
}
