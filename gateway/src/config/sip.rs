//! Settings of telephone calls over SIP.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::seconds;
use super::secret::Secret;

/// Settings of telephone calls over SIP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SipConfig {
    /// UDP address of the calls' signalling; `None` for no calls over SIP.
    pub listen: Option<SocketAddr>,
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
    pub registrar: Option<SocketAddr>,
    /// Domain of the account at the exchange; `None` for its address.
    pub domain: Option<String>,
    /// Name of the account.
    pub user: Option<String>,
    /// Password of the account.
    pub password: Option<Secret>,
    /// Address of the trunk that calls out go to; `None` for no calls out.
    pub trunk: Option<SocketAddr>,
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
            listen: None,
            peers: Vec::new(),
            advertised: None,
            first_port: 0,
            last_port: 0,
            webhook: None,
            webhook_secret: None,
            decide_within: Duration::from_secs(30),
            registrar: None,
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
        self.advertised.or_else(|| self.listen.map(|listen| listen.ip()).filter(|ip| !ip.is_unspecified()))
    }
}
