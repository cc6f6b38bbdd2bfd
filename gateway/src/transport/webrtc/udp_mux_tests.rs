//! The UDP mux: candidates, unknown datagrams, and callers whose address changes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_media::opus::FRAME;

use super::nat::Nat;
use super::tests::{PATIENCE, bind_mux, next, open, until_open};
use super::*;

/// The addresses in a description.
fn candidates(sdp: &str) -> Vec<&str> {
    sdp.lines().filter_map(|line| line.strip_prefix("a=candidate:")).collect()
}

#[tokio::test]
async fn every_answer_lists_the_port_and_ice_lite() {
    let udp_mux = bind_mux();
    let mut calls = Vec::new();
    for _ in 0..3 {
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        let (sdp, server) = answer(&sdp, &udp_mux).await.unwrap();
        let expected = format!("127.0.0.1 {} typ host", udp_mux.address().port());
        assert!(candidates(&sdp).iter().all(|line| line.ends_with(&expected)), "{sdp}");
        assert!(!candidates(&sdp).is_empty() && sdp.contains("a=ice-lite\r\n"), "{sdp}");
        calls.push((dialing.accept(&sdp).await.unwrap(), server));
    }
    for (caller, server) in &mut calls {
        tokio::join!(until_open(caller), until_open(server));
    }
    assert_eq!(udp_mux.calls(), 3);
    // Each receives from its own caller only.
    for (number, (caller, _)) in calls.iter().enumerate() {
        caller.send_message(&number.to_string()).await.unwrap();
    }
    for (number, (_, server)) in calls.iter_mut().enumerate() {
        assert_eq!(next(server).await, PeerEvent::Message(number.to_string()));
    }
}

#[tokio::test]
async fn advertised_addresses_replace_the_bound_ones() {
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    // One of TEST-NET-3, which leads nowhere, and loopback by another name, which must connect.
    let advertised = vec!["203.0.113.7".parse().unwrap(), "127.0.0.2".parse().unwrap()];
    let udp = "0.0.0.0:0".parse().unwrap();
    let udp_mux = UdpMux::bind(WebRtcSettings { udp, advertised, ..WebRtcSettings::default() }).unwrap();
    let (sdp, mut server) = answer(&sdp, &udp_mux).await.unwrap();
    let candidates = candidates(&sdp);
    assert!(candidates.iter().any(|line| line.contains("203.0.113.7")), "{candidates:?}");
    assert!(candidates.iter().any(|line| line.contains("127.0.0.2")), "{candidates:?}");
    assert!(!sdp.contains("127.0.0.1 "), "the bound address is not told");
    let _caller = dialing.accept(&sdp).await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::Connected);
}

#[tokio::test]
async fn an_unspecified_address_lists_all_interfaces() {
    let udp = "0.0.0.0:0".parse().unwrap();
    let udp_mux = UdpMux::bind(WebRtcSettings { udp, ..WebRtcSettings::default() }).unwrap();
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (sdp, mut server) = answer(&sdp, &udp_mux).await.unwrap();
    assert!(candidates(&sdp).iter().any(|line| line.contains(" 127.0.0.1 ")), "{sdp}");
    assert!(!sdp.contains(" 0.0.0.0 ") || !candidates(&sdp).iter().any(|line| line.contains("0.0.0.0")), "{sdp}");
    let _caller = dialing.accept(&sdp).await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::Connected);
}

#[tokio::test]
async fn unknown_datagrams_are_counted_and_dropped() {
    let (caller, mut server, udp_mux) = open().await;
    let stranger = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut sent = 0;
    for datagram in [&b""[..], b"\0", b"hello", &[0x80; 200], &[22; 64], &[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42]] {
        stranger.send_to(datagram, udp_mux.address()).await.unwrap();
        sent += u64::from(!datagram.is_empty());
    }
    caller.send_message("still here").await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::Message("still here".into()));
    let counted = async {
        while udp_mux.dropped().strangers < sent {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("all are counted");
}

#[tokio::test]
async fn audio_survives_address_changes() {
    let udp_mux = bind_mux();
    let nat = Nat::new(udp_mux.address()).await;
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (sdp, mut server) = answer(&sdp, &udp_mux).await.unwrap();
    let mut caller = dialing.accept(&nat.rewrite(&sdp)).await.unwrap();
    tokio::join!(until_open(&mut caller), until_open(&mut server));
    for round in 1..=3 {
        nat.remap().await;
        let moved = Instant::now();
        let mut clock = tokio::time::interval(FRAME);
        let (mut received, mut returned) = (None, None);
        while received.is_none() || returned.is_none() {
            assert!(moved.elapsed() < PATIENCE, "received: {received:?}, returned: {returned:?}");
            tokio::select! {
                _ = clock.tick() => {
                    // Both sides speak; each packet says since which move.
                    let packet = Bytes::from(vec![0x08, round, round]);
                    caller.send_audio(packet.clone(), FRAME).await.unwrap();
                    server.send_audio(packet, FRAME).await.unwrap();
                }
                event = next(&mut server) => if matches!(&event, PeerEvent::Audio { payload, .. } if payload[1] == round) {
                    received.get_or_insert(moved.elapsed());
                },
                event = next(&mut caller) => if matches!(&event, PeerEvent::Audio { payload, .. } if payload[1] == round) {
                    returned.get_or_insert(moved.elapsed());
                },
            }
        }
        println!("move {round}: audio from the caller after {received:?}, to the caller after {returned:?}");
        assert!(
            received.max(returned) < Some(Duration::from_secs(2)),
            "received: {received:?}, returned: {returned:?}"
        );
        assert_eq!(server.address_changes(), u64::from(round));
    }
    // The data channel has moved along.
    server.send_message("still here").await.unwrap();
    while next(&mut caller).await != PeerEvent::Message("still here".into()) {}
}
