//! Addresses of telephone calls' signalling, with their transport: `192.0.2.1:5060`, `tcp:192.0.2.1:5060`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

/// Transport of the signalling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SipScheme {
    /// UDP, the transport of an address without a prefix.
    Udp,
    /// TCP: `tcp:` before the address.
    Tcp,
    /// TLS over TCP: `tls:` before the address.
    Tls,
}

impl SipScheme {
    const ALL: [Self; 3] = [Self::Udp, Self::Tcp, Self::Tls];

    fn prefix(self) -> &'static str {
        match self {
            Self::Udp => "udp:",
            Self::Tcp => "tcp:",
            Self::Tls => "tls:",
        }
    }
}

/// Address of the signalling by one transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SipAddress {
    /// Transport, the prefix of the text.
    pub scheme: SipScheme,
    /// IP address and port.
    pub address: SocketAddr,
}

impl SipAddress {
    /// Address by UDP.
    pub fn udp(address: impl Into<SocketAddr>) -> Self {
        Self { scheme: SipScheme::Udp, address: address.into() }
    }
}

impl FromStr for SipAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = SipScheme::ALL.into_iter().find_map(|scheme| Some((scheme, text.strip_prefix(scheme.prefix())?)));
        let (scheme, address) = found.unwrap_or((SipScheme::Udp, text));
        let address = address.parse();
        let problem =
            |_| format!("`{text}` is no address: write 192.0.2.1:5060, tcp:192.0.2.1:5060 or tls:192.0.2.1:5061");
        Ok(Self { scheme, address: address.map_err(problem)? })
    }
}

impl TryFrom<String> for SipAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for SipAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.scheme == SipScheme::Udp { "" } else { self.scheme.prefix() };
        write!(f, "{prefix}{}", self.address)
    }
}

impl From<SipAddress> for String {
    fn from(address: SipAddress) -> Self {
        address.to_string()
    }
}

/// Reads one address, or a list of them.
pub(super) fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SipAddress>, D::Error> {
    struct Visitor;

    impl<'de> de::Visitor<'de> for Visitor {
        type Value = Vec<SipAddress>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an address or a list of addresses")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            text.parse().map(|address| vec![address]).map_err(E::custom)
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut found = Vec::new();
            while let Some(address) = list.next_element()? {
                found.push(address);
            }
            Ok(found)
        }
    }

    deserializer.deserialize_any(Visitor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_their_transport() {
        let read = |text: &str| text.parse::<SipAddress>().map(|address| (address.scheme, address.to_string()));
        assert_eq!(read("192.0.2.1:5060"), Ok((SipScheme::Udp, "192.0.2.1:5060".to_owned())));
        assert_eq!(read("udp:192.0.2.1:5060"), Ok((SipScheme::Udp, "192.0.2.1:5060".to_owned())));
        assert_eq!(read("tls:[::1]:5061"), Ok((SipScheme::Tls, "tls:[::1]:5061".to_owned())));
        for refused in ["", "tcp:", "ws:192.0.2.1:5060", "tcp:pbx.example:5060", "tcp:192.0.2.1", "tls:tcp:192.0.2.1:1"]
        {
            assert!(read(refused).unwrap_err().contains("is no address"), "{refused}");
        }
    }

    #[test]
    fn one_address_is_a_list_too() {
        #[derive(Deserialize)]
        struct Setting {
            #[serde(deserialize_with = "one_or_more")]
            listen: Vec<SipAddress>,
        }
        let read = |text: &str| toml::from_str::<Setting>(text).map(|setting| setting.listen.len());
        assert_eq!(read("listen = \"192.0.2.1:5060\"").unwrap(), 1);
        assert_eq!(read("listen = [\"192.0.2.1:5060\", \"tcp:192.0.2.1:5060\"]").unwrap(), 2);
        assert!(read("listen = 5060").is_err());
    }
}
