//! Settings of telephone calls over SIP.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::seconds;
use super::secret::Secret;
use super::sip_address::{SipAddress, one_or_more};

/// Settings of telephone calls over SIP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SipConfig {
    /// Addresses of the calls' signalling, at most one by each transport; empty for no calls over SIP.
    #[serde(deserialize_with = "one_or_more")]
    pub listen: Vec<SipAddress>,
    /// Networks of the exchanges and telephones that may call; empty for none.
    pub peers: Vec<IpNet>,
    /// Address to announce in place of that of `listen`.
    pub advertised: Option<IpAddr>,
    /// First UDP port of the calls' sound; 0 for any free port.
    pub first_port: u16,
    /// Last UDP port of the calls' sound; each call takes two.
    pub last_port: u16,
    /// URL of the program that decides on calls; `None` to answer every call at once.
    pub webhook: Option<String>,
    /// Secret of the webhooks' signature.
    pub webhook_secret: Option<Secret>,
    /// Time for the decision; then the call is refused.
    #[serde(rename = "decide_within_s", with = "seconds")]
    pub decide_within: Duration,
    /// Address of an exchange to register at; `None` for none.
    pub registrar: Option<SipAddress>,
    /// PEM file of certificates to trust beside the system's, of an exchange or a trunk that is reached over TLS.
    pub certificates: Option<PathBuf>,
    /// Domain of the account at the exchange, and name in its certificate; `None` for its address.
    pub domain: Option<String>,
    /// Name of the account.
    pub user: Option<String>,
    /// Password of the account.
    pub password: Option<Secret>,
    /// Address of the trunk that calls out go to; `None` for no calls out.
    pub trunk: Option<SipAddress>,
    /// Beginnings of the numbers that may be called; empty for none.
    pub destinations: Vec<String>,
    /// Number that calls out come from; `None` for `user`.
    pub caller: Option<String>,
    /// True to offer encrypted sound alone.
    pub trunk_srtp: bool,
    /// Maximum number of calls out at once.
    pub trunk_calls: u32,
    /// Longest time until a call out is answered.
    #[serde(rename = "ring_s", with = "seconds")]
    pub ring: Duration,
}

impl Default for SipConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            peers: Vec::new(),
            advertised: None,
            first_port: 0,
            last_port: 0,
            webhook: None,
            webhook_secret: None,
            decide_within: Duration::from_secs(30),
            registrar: None,
            certificates: None,
            domain: None,
            user: None,
            password: None,
            trunk: None,
            destinations: Vec::new(),
            caller: None,
            trunk_srtp: false,
            trunk_calls: 4,
            ring: Duration::from_secs(60),
        }
    }
}

impl SipConfig {
    /// Address that is announced; `None` if it is not known.
    pub fn announced(&self) -> Option<IpAddr> {
        let listen = self.listen.first().map(|listen| listen.address.ip());
        self.advertised.or_else(|| listen.filter(|ip| !ip.is_unspecified()))
    }
}
