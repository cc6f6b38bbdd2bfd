//! Attacks by telephones over SIP that may call: calls in a flood, probes, messages that are none, and sound faster than
//! time.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::victim::Victim;
use crate::random::Random;

/// Interval of the calls: a thousand in a minute.
const CALL_EVERY: Duration = Duration::from_millis(60);
/// Longest wait for the first response.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest datagram, in bytes.
const LARGEST: usize = 65_000;

/// A telephone: its sockets and the server's address.
struct Phone {
    signalling: UdpSocket,
    sound: UdpSocket,
    server: SocketAddr,
}

impl Phone {
    fn new(server: SocketAddr) -> Result<Self> {
        Ok(Self { signalling: UdpSocket::bind("127.0.0.1:0")?, sound: UdpSocket::bind("127.0.0.1:0")?, server })
    }

    /// Writes a request of the call `id`.
    fn request(&self, method: &str, id: &str, to: &str, body: &str) -> Result<String> {
        let (own, server) = (self.signalling.local_addr()?, self.server);
        Ok(format!(
            "{method} sip:voice@{server} SIP/2.0\r\nVia: SIP/2.0/UDP {own};rport;branch=z9hG4bK{method}{id}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:flood@127.0.0.1>;tag=a7\r\nTo: {to}\r\nCall-ID: {id}\r\nCSeq: 1 {method}\r\n\
             Contact: <sip:flood@{own}>\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn invite(&self, id: &str) -> Result<String> {
        let port = self.sound.local_addr()?.port();
        let offer = format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 0 101\r\n\
             a=rtpmap:101 telephone-event/8000\r\n"
        );
        self.request("INVITE", id, "<sip:voice@127.0.0.1>", &offer)
    }

    /// Sends a datagram. A full buffer drops it, as a network does.
    fn send(&self, datagram: &[u8]) {
        let _ = self.signalling.send_to(datagram, self.server);
    }

    /// Receives a response within `wait`.
    fn receive(&self, wait: Duration) -> Result<String> {
        self.signalling.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let mut buffer = vec![0; LARGEST];
        let length = self.signalling.recv(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }
}

/// Value of a header.
fn header<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Port of the server's sound in a response.
fn sound_port(response: &str) -> Option<u16> {
    response.lines().find_map(|line| line.strip_prefix("m=audio ")?.split(' ').next()?.parse().ok())
}

/// All of it at once, from this machine, which may call.
pub fn sip_flood(victim: &Victim) -> Result<()> {
    let phone = Phone::new(victim.sip.context("the server takes no calls over SIP")?)?;
    // An attack that nobody hears would hold for nothing.
    phone.send(phone.request("OPTIONS", "probe", "<sip:voice@127.0.0.1>", "")?.as_bytes());
    phone.receive(PATIENCE).context("no response to a probe")?;
    let ports = Mutex::new(Vec::new());
    victim.repeat(4, |victim, number| match number {
        0 => calls(victim, &phone, &ports),
        1 => malformed(victim, phone.server),
        2 => probes(victim, phone.server),
        _ => sound(victim, &phone.sound, &ports),
    });
    Ok(())
}

/// Calls of one peer. Every second one that is accepted is confirmed; nobody ends them.
fn calls(victim: &Victim, phone: &Phone, ports: &Mutex<Vec<u16>>) -> Result<()> {
    let mut next = Instant::now();
    for number in 0_u64.. {
        if victim.is_over() {
            break;
        }
        phone.send(phone.invite(&format!("flood{number}"))?.as_bytes());
        next += CALL_EVERY;
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                break;
            }
            let Ok(response) = phone.receive(wait) else { continue };
            let (Some(id), Some(port)) = (header(&response, "Call-ID"), sound_port(&response)) else { continue };
            let to = header(&response, "To").unwrap_or_default();
            if id.bytes().last().is_some_and(|digit| digit % 2 == 0) {
                phone.send(phone.request("ACK", id, to, "")?.as_bytes());
            }
            let mut ports = ports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            ports.push(port);
        }
    }
    Ok(())
}

/// Probes without a pause.
fn probes(victim: &Victim, server: SocketAddr) -> Result<()> {
    let phone = Phone::new(server)?;
    for number in 0_u64.. {
        if victim.is_over() {
            break;
        }
        phone.send(phone.request("OPTIONS", &format!("probe{number}"), "<sip:voice@127.0.0.1>", "")?.as_bytes());
    }
    Ok(())
}

/// Messages that are none, or too much.
fn malformed(victim: &Victim, server: SocketAddr) -> Result<()> {
    let phone = Phone::new(server)?;
    let mut random = Random::new(1);
    let whole = phone.invite("malformed")?;
    let with = |lines: String| whole.replacen("Max-Forwards", &format!("{lines}Max-Forwards"), 1);
    let mut datagrams: Vec<Vec<u8>> = vec![
        with("Via: SIP/2.0/UDP a;branch=b\r\n".repeat(LARGEST / 40)).into_bytes(),
        with("X: y\r\n".repeat(LARGEST / 10)).into_bytes(),
        with(format!("X: {}\r\n", "\u{fc}".repeat(LARGEST / 4))).into_bytes(),
        whole.replace("<sip:flood@127.0.0.1>", &format!("<sip:{}@127.0.0.1>", ";a=b".repeat(LARGEST / 8))).into_bytes(),
        format!("{whole}{}", "m=audio 9 RTP/AVP 0\r\n".repeat(LARGEST / 40)).into_bytes(),
        whole.replace("Content-Length: ", "Content-Length: 9").into_bytes(),
        vec![b'\n'; LARGEST],
        vec![0; LARGEST],
    ];
    for _ in 0..200 {
        let mut datagram = whole.clone().into_bytes();
        for _ in 0..8 {
            let place = (random.unit() * datagram.len() as f64) as usize;
            if let Some(byte) = datagram.get_mut(place) {
                *byte = (random.unit() * 256.0) as u8;
            }
        }
        datagrams.push(datagram);
    }
    while !victim.is_over() {
        datagrams.iter().for_each(|datagram| phone.send(datagram));
    }
    Ok(())
}

/// Sound faster than time, from the address of the calls and from another one, to every call's port.
fn sound(victim: &Victim, of_calls: &UdpSocket, ports: &Mutex<Vec<u16>>) -> Result<()> {
    let stranger = UdpSocket::bind("127.0.0.1:0")?;
    let mut packet = vec![0x80, 0];
    packet.resize(12 + 160, 0x55);
    for number in 0_u32.. {
        if victim.is_over() {
            break;
        }
        packet[2..4].copy_from_slice(&(number as u16).to_be_bytes());
        packet[4..8].copy_from_slice(&number.wrapping_mul(160).to_be_bytes());
        let known = ports.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        for port in known.iter().rev().take(16) {
            for socket in [of_calls, &stranger] {
                let _ = socket.send_to(&packet, ("127.0.0.1", *port));
            }
        }
        if known.is_empty() {
            std::thread::park_timeout(CALL_EVERY);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_name_the_call_and_its_port() {
        let response =
            "SIP/2.0 200 OK\r\nTo: <sip:a@b>;tag=1\r\nCall-ID: flood7\r\n\r\nv=0\r\nm=audio 7000 RTP/AVP 0\r\n";
        assert_eq!((header(response, "Call-ID"), sound_port(response)), (Some("flood7"), Some(7_000)));
        assert_eq!(sound_port("SIP/2.0 486 Busy Here\r\n\r\n"), None);
    }
}
