//! The UDP mux: candidates, unknown datagrams, and callers whose address changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_media::opus::FRAME;
use repartee_sdp::IceCredentials;

use super::negotiation::offer_with;
use super::peer_connection::LossRecovery;
use super::ssrcs::PacketKind;
use super::tests::{PATIENCE, bind_mux, next, open, until_open};
use super::*;

/// ICE credentials of a description.
fn credentials(sdp: &str) -> IceCredentials {
    let value = |name: &str| sdp.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    IceCredentials { ufrag: value("a=ice-ufrag:"), password: value("a=ice-pwd:") }
}

/// Addresses in a description's candidates.
fn candidates(sdp: &str) -> Vec<&str> {
    sdp.lines().filter_map(|line| line.strip_prefix("a=candidate:")).collect()
}

#[tokio::test]
async fn every_answer_lists_the_port_and_ice_lite() {
    let udp_mux = bind_mux();
    let mut calls = Vec::new();
    for _ in 0..3 {
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        let (sdp, server) = answer(&sdp, &udp_mux, None).await.unwrap();
        let expected = format!("127.0.0.1 {} typ host", udp_mux.address().port());
        assert!(candidates(&sdp).iter().all(|line| line.ends_with(&expected)), "{sdp}");
        assert!(!candidates(&sdp).is_empty() && sdp.contains("a=ice-lite\r\n"), "{sdp}");
        calls.push((dialing.accept(&sdp).await.unwrap(), server));
    }
    for (caller, server) in &mut calls {
        tokio::join!(until_open(caller), until_open(server));
    }
    assert_eq!(udp_mux.calls(), 3);
    // Each call receives only from its own caller.
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
    // An address of TEST-NET-3, which leads nowhere, and loopback by another name, which must connect.
    let advertised = vec!["203.0.113.7".parse().unwrap(), "127.0.0.2".parse().unwrap()];
    let udp = "0.0.0.0:0".parse().unwrap();
    let udp_mux = UdpMux::bind(WebRtcSettings { udp, advertised, ..WebRtcSettings::default() }).unwrap();
    let (sdp, mut server) = answer(&sdp, &udp_mux, None).await.unwrap();
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
    let (sdp, mut server) = answer(&sdp, &udp_mux, None).await.unwrap();
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
        while udp_mux.dropped().unmatched < sent {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("all are counted");
    assert_eq!(udp_mux.dropped(), DroppedDatagrams { unmatched: sent, ..DroppedDatagrams::default() });
}

/// NAT between a caller and the mux that may change its mapping: then the caller's packets leave from another port of
/// the router, and packets to the old port are lost.
struct Nat {
    inside: std::net::SocketAddr,
    remap: tokio::sync::mpsc::Sender<()>,
    /// Period of the loss of RTP packets to the caller; 0 for no loss.
    lose_one_of: Arc<AtomicUsize>,
    /// True if an attacker in between repeats each RTP packet of the caller, and adds one with another SSRC.
    replays: Arc<AtomicBool>,
    /// Holds back one RTP packet of the caller, from the set of the flag to the first packet after its unset.
    holds: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Nat {
    async fn new(server: std::net::SocketAddr) -> Self {
        use tokio::net::UdpSocket;
        let local = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let inside = local.local_addr().unwrap();
        let mut outside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (remap, mut remapped) = tokio::sync::mpsc::channel(1);
        let lose_one_of = Arc::new(AtomicUsize::new(0));
        let replays = Arc::new(AtomicBool::new(false));
        let holds = Arc::new(AtomicBool::new(false));
        let (one_of, again, hold, mut packets) = (lose_one_of.clone(), replays.clone(), holds.clone(), 0);
        let mut held: Option<Vec<u8>> = None;
        let task = tokio::spawn(async move {
            let (mut caller, mut up, mut down) = (None, [0; 2_000], [0; 2_000]);
            loop {
                tokio::select! {
                    Ok((length, from)) = local.recv_from(&mut up) => {
                        caller = Some(from);
                        let datagram = &mut up[..length];
                        let (holding, is_rtp) = (hold.load(Ordering::Relaxed), PacketKind::of(datagram).rtp().is_some());
                        if holding && is_rtp && held.is_none() {
                            held = Some(datagram.to_vec());
                            continue;
                        }
                        outside.send_to(datagram, server).await.unwrap();
                        if let Some(late) = held.take_if(|_| is_rtp && !holding) {
                            outside.send_to(&late, server).await.unwrap();
                        }
                        if again.load(Ordering::Relaxed) && PacketKind::of(datagram).rtp().is_some() {
                            outside.send_to(datagram, server).await.unwrap();
                            datagram[8] ^= 0xff;
                            outside.send_to(datagram, server).await.unwrap();
                        }
                    }
                    Ok((length, _)) = outside.recv_from(&mut down) => if let Some(caller) = caller {
                        let datagram = &down[..length];
                        packets += usize::from(PacketKind::of(datagram).rtp().is_some());
                        let one_of = one_of.load(Ordering::Relaxed);
                        let lost = PacketKind::of(datagram).rtp().is_some() && one_of > 0 && packets % one_of == 0;
                        if !lost {
                            local.send_to(datagram, caller).await.unwrap();
                        }
                    },
                    Some(()) = remapped.recv() => outside = UdpSocket::bind("127.0.0.1:0").await.unwrap(),
                }
            }
        });
        Self { inside, remap, lose_one_of, replays, holds, task }
    }

    /// Gives the caller another outside address.
    async fn remap(&self) {
        self.remap.send(()).await.unwrap();
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens a call through `nat`; returns the caller's and the server's end.
async fn open_through(nat: &Nat, udp_mux: &UdpMux) -> (WebRtcCall, WebRtcCall) {
    open_with(nat, udp_mux, LossRecovery::default()).await
}

/// As [`open_through`], with a caller that offers `repairs`.
async fn open_with(nat: &Nat, udp_mux: &UdpMux, repairs: LossRecovery) -> (WebRtcCall, WebRtcCall) {
    let (sdp, dialing) = offer_with(&WebRtcSettings::default(), repairs).await.unwrap();
    let (sdp, mut server) = answer(&sdp, udp_mux, None).await.unwrap();
    // The caller sees the router as the server.
    let ours = format!("127.0.0.1 {} typ", udp_mux.address().port());
    let sdp = sdp.replace(&ours, &format!("127.0.0.1 {} typ", nat.inside.port()));
    let mut caller = dialing.accept(&sdp).await.unwrap();
    tokio::join!(until_open(&mut caller), until_open(&mut server));
    (caller, server)
}

#[tokio::test]
async fn receiver_reports_give_the_injected_loss() {
    let udp_mux = bind_mux();
    let nat = Nat::new(udp_mux.address()).await;
    let (mut caller, server) = open_through(&nat, &udp_mux).await;
    nat.lose_one_of.store(4, Ordering::Relaxed);
    let mut clock = tokio::time::interval(FRAME);
    let reported = async {
        while server.quality().reports < 2 {
            clock.tick().await;
            server.send_audio(Bytes::from_static(&[0x08, 0, 0]), FRAME).await.unwrap();
        }
    };
    let received = async {
        loop {
            next(&mut caller).await;
        }
    };
    tokio::select! {
        done = tokio::time::timeout(PATIENCE, reported) => done.expect("two reports"),
        () = received => {}
    }
    let quality = server.quality();
    // A report covers some dozens of packets, so that one packet more or less counts for some percent.
    assert!(quality.loss.is_some_and(|loss| (0.18..0.32).contains(&loss)), "{quality:?}");
    assert!(quality.jitter.is_some_and(|jitter| jitter > Duration::ZERO), "{quality:?}");
}

#[tokio::test]
async fn lost_packets_are_sent_again_when_asked_for() {
    const SENT: u8 = 100;
    let udp_mux = bind_mux();
    for nack in [true, false] {
        let nat = Nat::new(udp_mux.address()).await;
        let (mut caller, server) = open_with(&nat, &udp_mux, LossRecovery { red: false, nack }).await;
        nat.lose_one_of.store(4, Ordering::Relaxed);
        let mut clock = tokio::time::interval(FRAME);
        let sending = async {
            for number in 0..SENT {
                clock.tick().await;
                server.send_audio(Bytes::from(vec![0x08, number, number]), FRAME).await.unwrap();
            }
            server.send_message("over").await.unwrap();
        };
        let mut received = std::collections::BTreeSet::new();
        let receiving = async {
            loop {
                match next(&mut caller).await {
                    PeerEvent::Audio { payload, .. } => assert!(received.insert(payload[1]), "once each"),
                    PeerEvent::Message(_) => break,
                    _ => {}
                }
            }
        };
        tokio::join!(sending, receiving);
        // The last packets may still be on their way.
        let missing = (0..SENT - 16).filter(|number| !received.contains(number)).count();
        if nack {
            assert!(missing <= 1, "{missing} missing");
        } else {
            assert!(missing > 10, "{missing} missing: nobody asks");
        }
    }
}

#[tokio::test]
async fn redundant_audio_goes_both_ways() {
    let udp_mux = bind_mux();
    let nat = Nat::new(udp_mux.address()).await;
    let (mut caller, mut server) = open_with(&nat, &udp_mux, LossRecovery { red: true, nack: true }).await;
    let types = server.payload_types();
    assert_eq!((types.red.is_some(), types), (true, caller.payload_types()));
    check_redundant(&caller, &mut server, types.red.unwrap()).await;
    check_redundant(&server, &mut caller, types.red.unwrap()).await;
}

/// Sends a redundant packet before and after a plain one.
async fn check_redundant(from: &WebRtcCall, to: &mut WebRtcCall, red: u8) {
    let plain = from.payload_types().opus;
    for (number, kind) in [red, plain, red].into_iter().enumerate() {
        let payload = Bytes::from(vec![0x80 | plain, 0, 0, number as u8]);
        from.send_rtp(kind, payload.clone(), FRAME).await.unwrap();
        loop {
            if let PeerEvent::Audio { payload_type, payload: received, .. } = next(to).await {
                assert_eq!((payload_type, received), (kind, payload));
                break;
            }
        }
    }
}

#[tokio::test]
async fn repairs_are_answered_as_offered() {
    let udp_mux = bind_mux();
    let chromium = include_str!("../../../testdata/fuzz/offers/chromium.sdp");
    let aiortc = include_str!("../../../testdata/fuzz/offers/aiortc.sdp");
    let with_nack = chromium.replace("a=rtcp-fb:111 transport-cc", "a=rtcp-fb:111 transport-cc\r\na=rtcp-fb:111 nack");
    for (offer, red, nack) in [(chromium, true, false), (with_nack.as_str(), true, true), (aiortc, false, false)] {
        let (sdp, server) = answer(offer, &udp_mux, None).await.unwrap();
        assert_eq!(server.payload_types().red.is_some(), red, "{sdp}");
        assert_eq!(sdp.contains("red/48000/2"), red, "{sdp}");
        assert_eq!(sdp.contains(" 63 111 110\r\n"), red, "what comes first is sent: {sdp}");
        assert_eq!(sdp.contains("a=rtcp-fb:111 nack"), nack, "{sdp}");
        assert!(!sdp.contains("transport-cc"), "{sdp}");
    }
}

#[tokio::test]
async fn audio_survives_address_changes() {
    let udp_mux = bind_mux();
    let nat = Nat::new(udp_mux.address()).await;
    let (mut caller, mut server) = open_through(&nat, &udp_mux).await;
    for round in 1..=3 {
        nat.remap().await;
        let moved = Instant::now();
        let mut clock = tokio::time::interval(FRAME);
        let (mut received, mut returned) = (None, None);
        while received.is_none() || returned.is_none() {
            assert!(moved.elapsed() < PATIENCE, "received: {received:?}, returned: {returned:?}");
            tokio::select! {
                _ = clock.tick() => {
                    // Both sides send; each packet holds the number of the move.
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
        assert_eq!(server.address_changes(), u64::from(round));
    }
    // The data channel has migrated too.
    server.send_message("still here").await.unwrap();
    while next(&mut caller).await != PeerEvent::Message("still here".into()) {}
}

#[tokio::test]
async fn replayed_and_foreign_packets_are_dropped_and_counted() {
    const SENT: u64 = 100;
    let udp_mux = bind_mux();
    let nat = Nat::new(udp_mux.address()).await;
    let (caller, mut server) = open_through(&nat, &udp_mux).await;
    let before = udp_mux.dropped();
    nat.replays.store(true, Ordering::Relaxed);
    for number in 0..SENT {
        caller.send_audio(Bytes::from(vec![0x08, number as u8]), FRAME).await.unwrap();
        // Each packet is read before the next: no queue of ours overflows.
        let PeerEvent::Audio { payload, .. } = next(&mut server).await else { panic!("audio") };
        assert_eq!(payload[1], number as u8, "once and in order");
    }
    let counted = async {
        loop {
            let DroppedDatagrams { refused, unknown_ssrcs, .. } = udp_mux.dropped();
            // A foreign SSRC is tried: SRTP refuses its packets.
            if refused + unknown_ssrcs - before.refused - before.unknown_ssrcs >= 2 * SENT {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.unwrap_or_else(|_| panic!("{:?}", udp_mux.dropped()));
    // The counts stay after the call's end.
    let dropped = udp_mux.dropped();
    server.close().await;
    assert_eq!(udp_mux.dropped().refused, dropped.refused);
}

#[tokio::test]
async fn late_packets_are_taken_within_the_srtp_window() {
    let udp_mux = bind_mux();
    for (behind, taken) in [(400_u32, true), (600, false)] {
        let nat = Nat::new(udp_mux.address()).await;
        let (caller, mut server) = open_through(&nat, &udp_mux).await;
        let send = async |mark: u8| caller.send_audio(Bytes::from(vec![0x08, mark]), FRAME).await.unwrap();
        let read = async |server: &mut WebRtcCall| loop {
            if let PeerEvent::Audio { payload, .. } = next(server).await {
                break payload[1];
            }
        };
        send(1).await;
        assert_eq!(read(&mut server).await, 1);
        nat.holds.store(true, Ordering::Relaxed);
        send(2).await;
        for _ in 1..behind {
            send(3).await;
            assert_eq!(read(&mut server).await, 3);
        }
        nat.holds.store(false, Ordering::Relaxed);
        send(4).await;
        assert_eq!(read(&mut server).await, 4);
        send(5).await;
        let next = read(&mut server).await;
        assert_eq!(next, if taken { 2 } else { 5 }, "{behind} packets behind");
    }
}

#[tokio::test]
async fn spoofed_addresses_get_little_stun() {
    let udp_mux = bind_mux();
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let remote = credentials(&sdp);
    let (sdp, _server) = answer(&sdp, &udp_mux, None).await.unwrap();
    let ours = credentials(&sdp);
    let crypto = rtc::crypto::default_provider().unwrap();
    // The caller itself signs them, and puts a foreign address on each, with another port.
    let now = Instant::now();
    for port in 1..=5_000_u16 {
        let (id, name) = ([port as u8; 12], format!("{}:{}", ours.ufrag, remote.ufrag));
        let request = stun::request(id, name, &ours.password, crypto.crypto()).unwrap();
        let route = ice::Route { remote: ([192, 0, 2, 9], port).into(), local: None };
        udp_mux.receive(route, &request, now);
    }
    // Each asks for an answer and a check: nearly all of them are not sent.
    let DroppedDatagrams { unvalidated, .. } = udp_mux.dropped();
    assert!(unvalidated >= 2 * 5_000 - 300, "{unvalidated}");
}

#[tokio::test]
async fn a_caller_is_told_one_address() {
    let udp = "0.0.0.0:0".parse().unwrap();
    let udp_mux = UdpMux::bind(WebRtcSettings { udp, ..WebRtcSettings::default() }).unwrap();
    let Some(own) = super::addresses::local_addresses(false).into_iter().find(|own| !own.is_loopback()) else {
        println!("SKIPPED: this machine has no IPv4 address but loopback");
        return assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "in CI nothing is skipped");
    };
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (sdp, _server) = answer(&sdp, &udp_mux, Some(own)).await.unwrap();
    let told = candidates(&sdp);
    assert!(!told.is_empty() && told.iter().all(|line| line.contains(&format!(" {own} "))), "{told:?}");
}
