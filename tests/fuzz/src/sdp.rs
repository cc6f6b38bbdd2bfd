//! Offers: a valid answer, or an error that names a line.

use std::net::SocketAddr;

use repartee_sdp::{IceCredentials, LocalTransport, Offer};
use repartee_testkit::session_description::faults;

pub(crate) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let offer = match Offer::read(&text) {
        Ok(offer) => offer,
        Err(error) => {
            let lines = text.trim_end_matches(['\r', '\n']).split('\n').count();
            assert!((1..=lines).contains(&error.line), "{error}: {lines} lines");
            return;
        }
    };
    let candidates: [SocketAddr; 2] = [([192, 0, 2, 1], 7_000).into(), ([198, 51, 100, 7], 7_000).into()];
    let credentials = IceCredentials { ufrag: "ourUfrag".into(), password: "ourPasswordOf22Chars22".into() };
    let fingerprint = format!("sha-256 {}", ["5A"; 32].join(":"));
    let answer = offer.answer(&LocalTransport {
        session_id: 42,
        credentials: &credentials,
        fingerprint: &fingerprint,
        candidates: &candidates,
        ssrc: 7,
        max_message_size: 262_144,
    });
    let faults = faults(&text, &answer);
    assert!(faults.is_empty(), "{faults:?}\n{text}\n{answer}");
    let clean = offer.library_offer();
    let again = Offer::read(&clean).unwrap_or_else(|error| panic!("{error}: {clean}"));
    assert_eq!(again.rejected().count(), 0, "{clean}");
}
