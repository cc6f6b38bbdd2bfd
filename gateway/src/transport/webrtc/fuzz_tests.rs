//! Fuzz tests of offers and datagrams from anybody.

use std::net::SocketAddr;
use std::time::Instant;

use repartee_sdp::Offer;
use repartee_testkit::fuzz::{fuzz, mutation};
use repartee_testkit::random::Random;
use repartee_testkit::session_description::faults;
use tokio::net::UdpSocket;

use super::ice::Route;
use super::*;
use crate::testdata::offers;

/// Reads every mutated offer; answers every `full`-th readable one. The library takes whatever could be read.
fn fuzz_offers(count: usize, full: usize, seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let udp_mux = runtime.block_on(async { UdpMux::bind(WebRtcSettings::default()).unwrap() });
    let mut read = 0;
    fuzz(&offers(), count, seed, |input| {
        let text = String::from_utf8_lossy(input);
        let Ok(readable) = Offer::read(&text) else { return };
        assert!(!readable.library_offer().contains("candidate"), "an address gets through");
        read += 1;
        if read % full == 0 {
            runtime.block_on(answer_and_close(&text, &udp_mux));
        }
    });
    assert!(read > count / 8, "{read} of {count} could be read: nothing behind the reader is tested");
    assert_eq!((udp_mux.calls(), udp_mux.routes()), (0, (0, 0)));
}

/// Answers the offer and closes the call.
async fn answer_and_close(offer: &str, udp_mux: &UdpMux) {
    let (answer, call) = answer(offer, udp_mux, None).await.unwrap();
    assert_eq!(faults(offer, &answer), [""; 0], "{offer}\n{answer}");
    call.close().await;
}

#[test]
fn mutated_offers_neither_panic_nor_grow() {
    fuzz_offers(10_000, 20, 0x5eed);
}

#[test]
#[ignore = "takes minutes: for the long suite"]
fn a_million_offers_neither_panic_nor_grow() {
    fuzz_offers(1_000_000, 100, 0xfeed);
}

/// Datagrams as they come to the mux: requests with our ufrag, answers, DTLS, RTP, RTCP.
fn datagrams(ours: &str) -> Vec<Vec<u8>> {
    let crypto = rtc::crypto::default_provider().unwrap();
    let crypto = crypto.crypto();
    let caller: SocketAddr = "192.0.2.1:5000".parse().unwrap();
    vec![
        stun::request([1; 12], format!("{ours}:theirs"), "not-the-password-of-it", crypto).unwrap(),
        stun::request([2; 12], "nobody:theirs".into(), "not-the-password-of-it", crypto).unwrap(),
        stun::success([3; 12], caller, "not-the-password-of-it", crypto).unwrap(),
        vec![22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0],
        [&[0x80, 111, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7][..], &[0x55; 60]].concat(),
        [&[0x81, 201, 0, 7, 0, 0, 0, 7][..], &[0x55; 40]].concat(),
        vec![0],
    ]
}

fn fuzz_datagrams(count: usize, seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let udp_mux = UdpMux::bind(WebRtcSettings::default()).unwrap();
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        let (sdp, mut server) = answer(&sdp, &udp_mux, None).await.unwrap();
        let ours = sdp.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap().to_owned();
        let caller = dialing.accept(&sdp).await.unwrap();
        while server.events.recv().await.unwrap() != PeerEvent::ChannelOpen {}
        let before = udp_mux.routes();
        let mut elsewhere = 0;
        fuzz(&datagrams(&ours), count, seed, |input| {
            elsewhere += 1;
            let remote = SocketAddr::from(([192, 0, 2, 1], elsewhere as u16));
            udp_mux.receive(Route { remote, local: None }, input, Instant::now());
        });
        assert_eq!(udp_mux.routes(), before, "nothing of it belongs to the call");
        // The same datagrams from a real socket, during a call.
        let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut random = Random::new(seed);
        let corpus = datagrams(&ours);
        for _ in 0..500 {
            let input = mutation(&corpus, &mut random);
            stranger.send_to(&input, udp_mux.address()).await.unwrap();
        }
        caller.send_message("still here").await.unwrap();
        loop {
            match server.events.recv().await.unwrap() {
                PeerEvent::Message(text) => break assert_eq!(text, "still here"),
                PeerEvent::Closed => panic!("the call did not survive"),
                _ => {}
            }
        }
    });
}

#[test]
fn mutated_datagrams_leave_a_call_alone() {
    fuzz_datagrams(10_000, 0x5eed);
}

#[test]
#[ignore = "takes minutes: for the long suite"]
fn a_million_datagrams_leave_a_call_alone() {
    fuzz_datagrams(1_000_000, 0xfeed);
}
