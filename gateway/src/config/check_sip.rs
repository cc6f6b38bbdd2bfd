//! Checks of the settings of telephone calls over SIP.

use repartee_chat_client::BaseUrl;

use super::check::ConfigError;
use super::sip::SipConfig;

impl SipConfig {
    /// Checks the settings.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
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
        let Some(listen) = self.listen else { return Ok(()) };
        if cfg!(not(feature = "phone")) {
            let problem =
                "this binary has no calls over SIP: build it with the feature `phone`, or leave the setting out";
            return refuse("sip.listen", problem);
        }
        let Some(announced) = self.announced() else {
            return refuse("sip.advertised", "name the address that telephones reach, because sip.listen names none");
        };
        if announced.is_unspecified() || announced.is_ipv4() != listen.is_ipv4() {
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
        let listen = |text: &str| Some(text.parse().unwrap());
        let config = SipConfig { listen: listen("0.0.0.0:5060"), ..SipConfig::default() };
        assert!(config.check().unwrap_err().to_string().starts_with("sip.advertised: name the address"));
        let named = SipConfig { advertised: Some([192, 0, 2, 1].into()), ..config.clone() };
        assert_eq!((named.check(), named.announced()), (Ok(()), Some([192, 0, 2, 1].into())));
        let other = SipConfig { advertised: Some("::1".parse().unwrap()), ..config };
        assert!(other.check().is_err());
        let own = SipConfig { listen: listen("192.0.2.1:5060"), ..SipConfig::default() };
        assert_eq!(own.announced(), Some([192, 0, 2, 1].into()));
        let ports = SipConfig { first_port: 9, last_port: 8, ..own };
        assert!(ports.check().unwrap_err().to_string().starts_with("sip.last_port"));
    }
}
