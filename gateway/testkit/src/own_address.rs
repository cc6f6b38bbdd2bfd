//! Addresses for programs that are started on a given one.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports that the system gives to no socket that asks for any: those are 32768 and more.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

/// Returns an address of 127.0.0.1 that is free over UDP and TCP, as its next port is, and that no other test uses.
///
/// A port that the system names, and that is given back, would not do: tests beside this one are given it again.
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another process begins elsewhere.
    let begin = std::process::id().wrapping_mul(16) % u32::from(COUNT);
    let next = || (begin + u32::from(NEXT.fetch_add(2, Ordering::Relaxed))) % u32::from(COUNT);
    let is_free = |port: u16| {
        let address = (Ipv4Addr::LOCALHOST, port);
        UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
    };
    let port = (0..100).map(|_| FIRST + next() as u16).find(|port| is_free(*port) && is_free(port + 1));
    (Ipv4Addr::LOCALHOST, port.expect("a port of this machine is free")).into()
}
