//! IP addresses of this machine's interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use rtc::shared::ifaces::ifaces;

/// Returns the machine's own addresses, loopback last.
pub(super) fn local_addresses(v6_too: bool) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = ifaces()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|interface| interface.addr)
        .map(|address| address.ip())
        .filter(|address| match address {
            IpAddr::V4(address) => !address.is_unspecified(),
            // Link-local addresses need the name of an interface, which a candidate cannot give.
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

/// Returns our address on the route to `caller`; `None` if the system knows no route, or if the caller is this machine.
pub(super) fn local_addr_towards(caller: IpAddr) -> Option<IpAddr> {
    let caller = caller.to_canonical();
    if caller.is_loopback() {
        return None;
    }
    let any = if caller.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a UDP socket sends nothing: it looks up the route. The port does not matter.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((caller, 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    Some(address).filter(|address| !address.is_unspecified() && !address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_met_at_one_address() {
        assert_eq!(local_addr_towards([127, 0, 0, 1].into()), None);
        for own in local_addresses(false).into_iter().filter(|address| !address.is_loopback()) {
            assert_eq!(local_addr_towards(own), Some(own));
        }
    }

    #[test]
    fn loopback_addresses_come_last() {
        for v6_too in [false, true] {
            let addresses = local_addresses(v6_too);
            assert!(addresses.iter().all(|address| !address.is_unspecified() && (v6_too || address.is_ipv4())));
            assert!(!addresses.is_empty());
            let first_loopback = addresses.iter().position(IpAddr::is_loopback).unwrap_or(addresses.len());
            assert!(addresses[first_loopback..].iter().all(IpAddr::is_loopback), "{addresses:?}");
        }
    }
}
