//! Progress of a call's connection, for the log of one that fails.

use std::net::SocketAddr;

/// Steps of a call's connection that have succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ConnectivityReport {
    /// Number of connectivity checks that named this call but were not signed as its answer says.
    pub refused_checks: u64,
    /// Addresses from which the caller's checks have come.
    pub checked: Vec<SocketAddr>,
    /// True once the caller has answered a check of ours.
    pub is_validated: bool,
    /// True once the caller has nominated one of the pairs.
    pub is_nominated: bool,
    /// True once anything of a DTLS handshake has come.
    pub has_dtls: bool,
}

impl ConnectivityReport {
    /// Returns the first step that is missing, with a remedy.
    pub fn missing(&self) -> &'static str {
        match self {
            Self { checked, refused_checks: 0, .. } if checked.is_empty() => {
                "no check of the caller has arrived: none of our candidates is within its reach. See webrtc.udp, \
                 webrtc.advertised, webrtc.turn and the firewall"
            }
            Self { checked, .. } if checked.is_empty() => {
                "checks of the caller have arrived, none signed by the credentials of its answer: it has used the \
                 answer of another call"
            }
            Self { is_nominated: false, is_validated: false, .. } => {
                "checks of the caller have arrived, but it has nominated no pair and answered none of our checks: it \
                 does not receive what we send"
            }
            Self { is_nominated: false, .. } => "checks of the caller have succeeded, but it has nominated no pair",
            Self { has_dtls: false, .. } => "the caller has nominated a pair, but begun no DTLS handshake",
            _ => "the caller has begun a DTLS handshake that did not end",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_step_is_named() {
        let checked = vec![SocketAddr::from(([192, 0, 2, 1], 5_000))];
        let mut report = ConnectivityReport::default();
        assert!(report.missing().contains("webrtc.udp"));
        report.refused_checks = 1;
        assert!(report.missing().contains("another call"));
        report.checked = checked;
        assert!(report.missing().contains("does not receive"));
        report.is_validated = true;
        assert!(report.missing().ends_with("nominated no pair"));
        report.is_nominated = true;
        assert!(report.missing().contains("begun no DTLS"));
        report.has_dtls = true;
        assert!(report.missing().contains("did not end"));
    }
}
