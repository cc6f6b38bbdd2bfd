//! Offers of clients, and changed ones: each gets a valid answer, or an error that names a line.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod cases;
mod limits;
mod mutations;

use std::net::SocketAddr;
use std::path::Path;

use repartee_sdp::{IceCredentials, LocalTransport, Offer, OfferError};
use repartee_testkit::memory::CountingAllocator;
use repartee_testkit::session_description::faults;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Reads all saved offers, by name.
fn saved() -> Vec<(String, String)> {
    let mut offers = Vec::new();
    for folder in ["recorded", "rebuilt"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/offers").join(folder);
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            offers.push((name, std::fs::read_to_string(path).unwrap()));
        }
    }
    offers.sort();
    assert!(offers.len() >= 20, "{}", offers.len());
    offers
}

/// Reads the saved offer of this name.
fn saved_offer(name: &str) -> String {
    saved().into_iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("no offer {name}")).1
}

/// Writes the answer to an offer.
fn answer(offer: &str) -> Result<String, OfferError> {
    let candidates: [SocketAddr; 2] = ["192.0.2.1:7000".parse().unwrap(), "[2001:db8::1]:7000".parse().unwrap()];
    let credentials = IceCredentials { ufrag: "ourUfrag".into(), password: "our-password/of+22chars".replace('-', "") };
    let fingerprint = format!("sha-256 {}", ["5A"; 32].join(":"));
    Ok(Offer::read(offer)?.answer(&LocalTransport {
        session_id: 42,
        credentials: &credentials,
        fingerprint: &fingerprint,
        candidates: &candidates,
        ssrc: 7,
        max_message_size: 262_144,
    }))
}

/// Writes the answer, and asserts that it keeps all rules.
fn valid_answer(offer: &str) -> String {
    let answer = answer(offer).unwrap_or_else(|error| panic!("{error}\n{offer}"));
    assert_eq!(faults(offer, &answer), [""; 0], "{offer}\n{answer}");
    answer
}

/// Lines `m=` of a description, without their formats.
fn media(description: &str) -> Vec<String> {
    let lines = description.lines().filter_map(|line| line.strip_prefix("m="));
    lines.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}
