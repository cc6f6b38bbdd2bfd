//! IP addresses of this machine's interfaces.

use std::net::{IpAddr, Ipv4Addr};

use rtc::shared::ifaces::ifaces;

/// The machine's own addresses, loopback last.
pub(super) fn interfaces(v6_too: bool) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = ifaces()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|interface| interface.addr)
        .map(|address| address.ip())
        .filter(|address| match address {
            IpAddr::V4(address) => !address.is_unspecified(),
            // Link-local addresses mean nothing without the name of an interface.
            IpAddr::V6(address) => v6_too && !address.is_unspecified() && !address.is_unicast_link_local(),
        })
        .collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses.dedup();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::LOCALHOST.into());
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_come_last() {
        for v6_too in [false, true] {
            let addresses = interfaces(v6_too);
            assert!(addresses.iter().all(|address| !address.is_unspecified() && (v6_too || address.is_ipv4())));
            assert!(!addresses.is_empty());
            let first_loopback = addresses.iter().position(IpAddr::is_loopback).unwrap_or(addresses.len());
            assert!(addresses[first_loopback..].iter().all(IpAddr::is_loopback), "{addresses:?}");
        }
    }
}
