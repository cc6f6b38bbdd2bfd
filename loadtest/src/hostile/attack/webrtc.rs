//! Attacks on calls over WebRTC: offers, and datagrams of strangers.

use std::net::{SocketAddr, UdpSocket};
use std::thread;

use anyhow::{Result, bail};

use super::victim::{REFUSED, Victim};
use crate::random::Random;

/// Largest offer, in bytes.
const OFFER: usize = 64_000;
const SDP: &str = "application/sdp";

/// Offer of a browser, with more formats, attributes and candidates where an attack wants them.
fn offer(formats: &str, attributes: &str, sections: &str) -> String {
    let digest = ["AA"; 32].join(":");
    let transport = format!(
        "a=ice-ufrag:1ioj\r\na=ice-pwd:DhIXjpD7XdpeDXBllBIM6fXn\r\na=fingerprint:sha-256 {digest}\r\na=setup:actpass\r\n"
    );
    format!(
        "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n\
         m=audio 9 UDP/TLS/RTP/SAVPF {formats}111\r\nc=IN IP4 0.0.0.0\r\n{transport}a=mid:0\r\na=sendrecv\r\n\
         a=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\na=fmtp:111 minptime=10;useinbandfec=1\r\n{attributes}\
         m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n{transport}a=mid:1\r\n\
         a=sctp-port:5000\r\na=max-message-size:262144\r\n{sections}"
    )
}

fn call(victim: &Victim, offer: &str) -> Result<String> {
    victim.post("/v1/realtime/calls", SDP, offer.as_bytes())
}

/// Offers of 64 KB: one format thousands of times, and as many attributes, candidates and sections.
pub fn sdp_bombs(victim: &Victim) -> Result<()> {
    let victim = victim.with_ephemeral_key()?;
    let lines = |line: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for number in 0.. {
            let line = line(number);
            if text.len() + line.len() > OFFER - 2_000 {
                break;
            }
            text.push_str(&line);
        }
        text
    };
    let section = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=mid:2\r\na=rtpmap:111 opus/48000/2\r\n";
    let offers = [
        offer(&"111 ".repeat((OFFER - 2_000) / 4), "", ""),
        offer("", &lines(&|number| format!("a=rtpmap:{} opus/48000/2\r\n", number % 128)), ""),
        offer("", &lines(&|number| format!("a=extmap:{number} urn:x\r\n")), ""),
        offer(
            "",
            &lines(&|number| format!("a=candidate:{number} 1 udp 1 10.0.0.{} 53 typ host\r\n", number % 250)),
            "",
        ),
        offer("", "", &lines(&|_| section.to_owned())),
    ];
    victim.repeat(8, |victim, number| call(victim, &offers[number % offers.len()]).map(drop));
    Ok(())
}

/// Right offers in a flood, which nobody connects.
pub fn offer_flood(victim: &Victim) -> Result<()> {
    let victim = victim.with_ephemeral_key()?;
    let offer = offer("", "", "");
    victim.repeat(16, |victim, _| call(victim, &offer).map(drop));
    Ok(())
}

/// Address of the calls, in the candidate of an answer.
fn media_address(answer: &str) -> Option<SocketAddr> {
    let candidate = answer.lines().find(|line| line.starts_with("a=candidate:") && line.contains(" typ host"))?;
    let fields: Vec<&str> = candidate.split(' ').collect();
    Some(SocketAddr::new(fields.get(4)?.parse().ok()?, fields.get(5)?.parse().ok()?))
}

/// Datagrams of strangers: RTP, STUN, DTLS and noise.
pub fn rtp_flood(victim: &Victim) -> Result<()> {
    let address = loop {
        // Beside other attacks of the same tenant there may be no place for a call at first.
        match call(victim, &offer("", "", "")).map(|answer| media_address(&answer)) {
            Ok(Some(address)) => break address,
            _ if victim.is_over() => bail!("no answer has a candidate"),
            _ => thread::park_timeout(REFUSED),
        }
    };
    let mut random = Random::new(1);
    // Kinds by first byte: RTP, RTCP, STUN, DTLS, noise.
    let starts: [&[u8]; 5] =
        [&[0x80, 111], &[0x80, 200], &[0, 1, 0, 8, 0x21, 0x12, 0xa4, 0x42], &[22, 0xfe, 0xfd], &[]];
    let datagrams: Vec<Vec<u8>> = (0..500)
        .map(|number| {
            let mut datagram = starts[number % starts.len()].to_vec();
            datagram.extend((0..100).map(|_| (random.unit() * 256.0) as u8));
            datagram
        })
        .collect();
    victim.repeat(2, |victim, _| {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        while !victim.is_over() {
            for datagram in &datagrams {
                // A full buffer drops it, as a network does.
                let _ = socket.send_to(datagram, address);
            }
        }
        Ok(())
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_calls_is_in_the_candidate() {
        let answer = "v=0\r\na=candidate:1 1 udp 2130706431 127.0.0.1 7000 typ host\r\n";
        assert_eq!(media_address(answer), Some(([127, 0, 0, 1], 7_000).into()));
        assert_eq!(media_address("v=0\r\n"), None);
    }
}
