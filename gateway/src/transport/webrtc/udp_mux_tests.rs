//! The one port of all calls: addresses, strangers, and callers who move.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_media::opus::FRAME;

use super::tests::{PATIENCE, next, open, port, until_open};
use super::*;

/// The addresses in a description.
fn candidates(sdp: &str) -> Vec<&str> {
    sdp.lines().filter_map(|line| line.strip_prefix("a=candidate:")).collect()
}

#[tokio::test]
async fn every_answer_names_the_one_port_and_says_that_we_are_lite() {
    let port = port();
    let mut calls = Vec::new();
    for _ in 0..3 {
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        let (sdp, server) = answer(&sdp, &port).await.unwrap();
        let expected = format!("127.0.0.1 {} typ host", port.address().port());
        assert!(candidates(&sdp).iter().all(|line| line.ends_with(&expected)), "{sdp}");
        assert!(!candidates(&sdp).is_empty() && sdp.contains("a=ice-lite\r\n"), "{sdp}");
        calls.push((dialing.accept(&sdp).await.unwrap(), server));
    }
    for (caller, server) in &mut calls {
        tokio::join!(until_open(caller), until_open(server));
    }
    assert_eq!(port.calls(), 3);
    // Each hears its own caller only.
    for (number, (caller, _)) in calls.iter().enumerate() {
        caller.send_message(&number.to_string()).await.unwrap();
    }
    for (number, (_, server)) in calls.iter_mut().enumerate() {
        assert_eq!(next(server).await, CallEvent::Message(number.to_string()));
    }
}

#[tokio::test]
async fn advertised_addresses_replace_the_bound_ones() {
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    // One of TEST-NET-3, which leads nowhere, and loopback by another name, which must connect.
    let advertised = vec!["203.0.113.7".parse().unwrap(), "127.0.0.2".parse().unwrap()];
    let udp = "0.0.0.0:0".parse().unwrap();
    let port = Port::bind(WebRtcSettings { udp, advertised, ..WebRtcSettings::default() }).unwrap();
    let (sdp, mut server) = answer(&sdp, &port).await.unwrap();
    let candidates = candidates(&sdp);
    assert!(candidates.iter().any(|line| line.contains("203.0.113.7")), "{candidates:?}");
    assert!(candidates.iter().any(|line| line.contains("127.0.0.2")), "{candidates:?}");
    assert!(!sdp.contains("127.0.0.1 "), "the bound address is not told");
    let _caller = dialing.accept(&sdp).await.unwrap();
    assert_eq!(next(&mut server).await, CallEvent::Connected);
}

#[tokio::test]
async fn a_port_on_every_interface_names_the_addresses_of_the_machine() {
    let udp = "0.0.0.0:0".parse().unwrap();
    let port = Port::bind(WebRtcSettings { udp, ..WebRtcSettings::default() }).unwrap();
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (sdp, mut server) = answer(&sdp, &port).await.unwrap();
    assert!(candidates(&sdp).iter().any(|line| line.contains(" 127.0.0.1 ")), "{sdp}");
    assert!(!sdp.contains(" 0.0.0.0 ") || !candidates(&sdp).iter().any(|line| line.contains("0.0.0.0")), "{sdp}");
    let _caller = dialing.accept(&sdp).await.unwrap();
    assert_eq!(next(&mut server).await, CallEvent::Connected);
}

#[tokio::test]
async fn strangers_are_counted_and_cost_nobody_anything() {
    let (caller, mut server, port) = open().await;
    let stranger = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut sent = 0;
    for datagram in [&b""[..], b"\0", b"hello", &[0x80; 200], &[22; 64], &[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42]] {
        stranger.send_to(datagram, port.address()).await.unwrap();
        sent += u64::from(!datagram.is_empty());
    }
    caller.send_message("still here").await.unwrap();
    assert_eq!(next(&mut server).await, CallEvent::Message("still here".into()));
    let counted = async {
        while port.dropped().strangers < sent {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("all are counted");
}

/// A router between a caller and a port, which may forget where the caller's packets go out: then they leave from another
/// port of the router, and what still comes to the old one is lost.
struct Nat {
    inside: std::net::SocketAddr,
    forget: tokio::sync::mpsc::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Nat {
    async fn new(server: std::net::SocketAddr) -> Self {
        use tokio::net::UdpSocket;
        let local = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let inside = local.local_addr().unwrap();
        let mut outside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (forget, mut forgotten) = tokio::sync::mpsc::channel(1);
        let task = tokio::spawn(async move {
            let (mut caller, mut up, mut down) = (None, [0; 2_000], [0; 2_000]);
            loop {
                tokio::select! {
                    Ok((length, from)) = local.recv_from(&mut up) => {
                        caller = Some(from);
                        outside.send_to(&up[..length], server).await.unwrap();
                    }
                    Ok((length, _)) = outside.recv_from(&mut down) => if let Some(caller) = caller {
                        local.send_to(&down[..length], caller).await.unwrap();
                    },
                    Some(()) = forgotten.recv() => outside = UdpSocket::bind("127.0.0.1:0").await.unwrap(),
                }
            }
        });
        Self { inside, forget, task }
    }

    /// The caller comes from another address from now on.
    async fn forget(&self) {
        self.forget.send(()).await.unwrap();
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_caller_whose_address_changes_is_heard_and_answered_again() {
    let port = port();
    let nat = Nat::new(port.address()).await;
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (sdp, mut server) = answer(&sdp, &port).await.unwrap();
    // To the caller the router is the server.
    let ours = format!("127.0.0.1 {} typ", port.address().port());
    let sdp = sdp.replace(&ours, &format!("127.0.0.1 {} typ", nat.inside.port()));
    let mut caller = dialing.accept(&sdp).await.unwrap();
    tokio::join!(until_open(&mut caller), until_open(&mut server));
    for round in 1..=3 {
        nat.forget().await;
        let moved = Instant::now();
        let mut clock = tokio::time::interval(FRAME);
        let (mut heard, mut answered) = (None, None);
        while heard.is_none() || answered.is_none() {
            assert!(moved.elapsed() < PATIENCE, "heard: {heard:?}, answered: {answered:?}");
            tokio::select! {
                _ = clock.tick() => {
                    // Both sides speak; each packet says since which move.
                    let packet = Bytes::from(vec![0x08, round, round]);
                    caller.send_audio(packet.clone(), FRAME).await.unwrap();
                    server.send_audio(packet, FRAME).await.unwrap();
                }
                event = next(&mut server) => if matches!(&event, CallEvent::Audio { payload, .. } if payload[1] == round) {
                    heard.get_or_insert(moved.elapsed());
                },
                event = next(&mut caller) => if matches!(&event, CallEvent::Audio { payload, .. } if payload[1] == round) {
                    answered.get_or_insert(moved.elapsed());
                },
            }
        }
        println!("move {round}: heard after {heard:?}, answered after {answered:?}");
        assert!(heard.max(answered) < Some(Duration::from_secs(2)), "heard: {heard:?}, answered: {answered:?}");
        assert_eq!(server.moves(), u64::from(round));
    }
    // The data channel has moved along.
    server.send_message("still here").await.unwrap();
    while next(&mut caller).await != CallEvent::Message("still here".into()) {}
}
