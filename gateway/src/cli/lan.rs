//! `--lan`: the machine's addresses, a new key and a QR code.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use qrcodegen::{QrCode, QrCodeEcc};

/// Addresses by which others may reach this machine: those of interfaces that are up, IPv4 first, without loopback and
/// link-local ones. Empty if the system does not list them.
pub fn addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    let up = interfaces.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP));
    let mut addresses: Vec<IpAddr> = up
        .filter_map(|interface| interface.address)
        .filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
        })
        .filter(|address| match address {
            IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
            IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Names for a development certificate: localhost and every address of this machine.
pub fn certificate_names() -> Vec<String> {
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    own.into_iter().chain(addresses().iter().map(IpAddr::to_string)).collect()
}

/// Addresses by which others reach a server that listens on `listen`.
pub fn reachable_addresses(listen: SocketAddr) -> Vec<SocketAddr> {
    if !listen.ip().is_unspecified() {
        return vec![listen];
    }
    let reachable = addresses().into_iter().filter(|address| address.is_ipv4() || listen.is_ipv6());
    reachable.map(|address| SocketAddr::new(address, listen.port())).collect()
}

/// Folder of the user's persistent state as in the XDG specification; `None` for a user without a home. `variable`
/// reads the environment.
pub fn state_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("repartee"))
}

/// Generates a random API key.
pub fn new_key() -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    Ok(format!("rp_{}", crate::ids::hex(&random)))
}

/// Draws `text` as a QR code for a terminal, two rows of modules a line; `None` if the text is too long.
pub fn qr_code(text: &str) -> Option<String> {
    /// Width of the quiet zone around the code in modules, as the standard requires.
    const QUIET: i32 = 4;
    let code = QrCode::encode_text(text, QrCodeEcc::Low).ok()?;
    let mut drawn = String::new();
    for y in (-QUIET..code.size() + QUIET).step_by(2) {
        for x in -QUIET..code.size() + QUIET {
            // Light modules are drawn, because most terminals are dark; the quiet zone is light.
            drawn.push(match (code.get_module(x, y), code.get_module(x, y + 1)) {
                (false, false) => '█',
                (false, true) => '▀',
                (true, false) => '▄',
                (true, true) => ' ',
            });
        }
        drawn.push('\n');
    }
    Some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qr_code_has_quiet_zone_and_finders() {
        let drawn = qr_code("https://192.168.1.5:8080/#key=rp_0123456789abcdef0123456789abcdef").unwrap();
        let lines: Vec<Vec<char>> = drawn.lines().map(|line| line.chars().collect()).collect();
        let width = lines[0].len();
        assert!(lines.iter().all(|line| line.len() == width));
        assert!(lines[0].iter().all(|module| *module == '█'), "the first two rows are quiet");
        // The finder in the corner: a dark frame of seven modules around a light one.
        assert_eq!(lines[2][4..11].iter().collect::<String>(), " ▄▄▄▄▄ ");
        assert_eq!(qr_code(&"x".repeat(3_000)), None);
    }

    #[test]
    fn a_listen_address_is_its_own_reachable_address() {
        let listen = SocketAddr::from(([192, 0, 2, 1], 80));
        assert_eq!(reachable_addresses(listen), [listen]);
        let ports: Vec<_> =
            reachable_addresses(SocketAddr::from(([0, 0, 0, 0], 81))).iter().map(SocketAddr::port).collect();
        assert!(ports.iter().all(|port| *port == 81));
    }

    #[test]
    fn state_is_kept_in_the_users_folder() {
        let folder = |state: &'static str, home: &'static str| {
            state_folder(|name| Some(if name == "HOME" { home } else { state }.into()))
        };
        assert_eq!(folder("/state", "/home/a"), Some("/state/repartee".into()));
        assert_eq!(folder("relative", "/home/a"), Some("/home/a/.local/state/repartee".into()));
        assert_eq!(folder("", ""), None);
    }

    #[test]
    fn new_keys_differ_and_are_valid() {
        let (a, b) = (new_key().unwrap(), new_key().unwrap());
        assert_ne!(a, b);
        assert_eq!(crate::auth::KeySet::parse(&a).unwrap().len(), 1);
    }
}
