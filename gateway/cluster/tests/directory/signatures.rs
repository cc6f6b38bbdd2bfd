//! Signatures of nodes for each other: forwarded requests, ephemeral keys.

use repartee_cluster::{
    ClusterSecrets, HOP_LIFETIME, Hop, HopError, HopSigner, KeyGrant, KeySession, KeySigner, MAX_SESSION_IN_KEY,
    MIN_SECRET, SealError, SecretError, SignedKeyError,
};
use serde_json::{Value, json};

use super::support::{Random, SECRET, secrets, tag};

const NEXT: &str = "fedcba9876543210fedcba9876543210";
const NOW: u64 = 1_790_000_000;

fn grant(session: Value) -> KeyGrant {
    KeyGrant {
        until: NOW + 600,
        owner: Some(u64::MAX - 1),
        issuer: tag(42),
        nonce: [7; 16],
        session: KeySession::Inside(session),
    }
}

/// Key as the first version issued it. It never changes: a later version has to read it.
const FIRST_KEY: &str = "ek_NtWe80uF.eyJlIjoxNzkwMDAwNjAwLCJvIjoiZmZmZmZmZmZmZmZmZmZmZSIsImkiOiIwMDAwMDAyYSIsIm4iOiJCd2NIQndjSEJ3Y0hCd2NIQndjSEJ3IiwicyI6eyJpbnN0cnVjdGlvbnMiOiJCZSBicmllZi4ifX0.7zz0e9WofPIZ6LTs3FVdYsFpCAPQd1dzcK76OcSP_b4";

#[test]
fn weak_and_equal_secrets_are_refused() {
    assert_eq!(ClusterSecrets::new(&SECRET[1..], None).unwrap_err(), SecretError::Short);
    assert_eq!(ClusterSecrets::new(SECRET, Some("short")).unwrap_err(), SecretError::Short);
    assert_eq!(ClusterSecrets::new(SECRET, Some(SECRET)).unwrap_err(), SecretError::Same);
    assert_eq!(SECRET.len(), MIN_SECRET);
    let secrets = secrets();
    assert!(!format!("{secrets:?} {:?}", secrets.sealer("hop")).contains(&SECRET[..8]));
}

#[test]
fn secrets_are_replaced_without_a_gap() {
    let both = |signs, accepted| KeySigner::new(&ClusterSecrets::new(signs, accepted).unwrap());
    let order = [both(SECRET, None), both(SECRET, Some(NEXT)), both(NEXT, Some(SECRET)), both(NEXT, None)];
    let keys: Vec<String> = order.iter().map(|signer| signer.issue(&grant(json!({}))).unwrap()).collect();
    for (at, signer) in order.iter().enumerate() {
        for (near, key) in keys.iter().enumerate().filter(|(near, _)| near.abs_diff(at) <= 1) {
            assert!(signer.check(key, NOW).is_ok(), "{at} of {near}");
        }
    }
    assert_eq!(order[3].check(&keys[0], NOW), Err(SignedKeyError::Seal(SealError::UnknownSecret)));
}

#[test]
fn a_key_is_checked_by_every_node() {
    let session = json!({"instructions": "Be brief. é", "n": [1, 2.5, null]});
    let key = KeySigner::new(&secrets()).issue(&grant(session.clone())).unwrap();
    let other = KeySigner::new(&secrets());
    assert_eq!(other.check(&key, NOW), Ok(grant(session)));
    assert_eq!(other.check(&key, NOW + 604), other.check(&key, NOW), "clocks differ");
    assert_eq!(other.check(&key, NOW + 605), Err(SignedKeyError::Expired));
    // It stands in a header, and in a websocket's subprotocol.
    assert!(key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{key}");
}

#[test]
fn the_first_versions_key_is_read() {
    let first = grant(json!({"instructions": "Be brief."}));
    assert_eq!(KeySigner::new(&secrets()).check(FIRST_KEY, NOW), Ok(first.clone()));
    assert_eq!(KeySigner::new(&secrets()).issue(&first).unwrap(), FIRST_KEY);
}

#[test]
fn large_sessions_stay_with_their_issuer() {
    let signer = KeySigner::new(&secrets());
    let text = |bytes: usize| json!("x".repeat(bytes - 2));
    let largest = signer.issue(&grant(text(MAX_SESSION_IN_KEY))).unwrap();
    assert!(signer.check(&largest, NOW).is_ok(), "{} bytes", largest.len());
    assert_eq!(signer.issue(&grant(text(MAX_SESSION_IN_KEY + 1))), Err(SignedKeyError::TooLong));
    let apart = KeyGrant { session: KeySession::AtIssuer, owner: None, ..grant(json!({})) };
    assert_eq!(signer.check(&signer.issue(&apart).unwrap(), NOW), Ok(apart));
}

#[test]
fn changed_keys_are_refused() {
    let signer = KeySigner::new(&secrets());
    let key = signer.issue(&grant(json!({"instructions": "Be brief."}))).unwrap();
    for seed in 0..20_000 {
        let (mut random, mut bytes) = (Random::new(seed), key.clone().into_bytes());
        let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
        bytes[at] = b"abcXYZ012-_."[usize::try_from(random.below(12)).unwrap()];
        let changed = String::from_utf8(bytes).unwrap();
        assert!(changed == key || signer.check(&changed, NOW).is_err(), "{changed}");
    }
    for none in ["", "ek_", "ek_0a1b_0123", "ek_a.b", "sk-anything", "ek_..", &format!("ek_a.{}.c", "x".repeat(9_000))]
    {
        assert!(signer.check(none, NOW).is_err(), "{none}");
    }
    assert_eq!(signer.check("ek_0a1b2c3d_0123456789abcdef", NOW), Err(SignedKeyError::NotSigned));
}

#[test]
fn a_hop_counts_for_its_request_alone() {
    let signer = HopSigner::new(&secrets());
    let hop = Hop { from: tag(42), client: "2001:db8::7".parse().unwrap() };
    let header = signer.sign(&hop, "POST", "/v1/realtime/calls?model=a", NOW);
    let verify = |method, path, unix| signer.verify(&header, method, path, unix);
    let path = "/v1/realtime/calls?model=a";
    assert_eq!(verify("POST", path, NOW + HOP_LIFETIME), Ok(hop));
    assert_eq!(verify("POST", path, NOW - HOP_LIFETIME), Ok(hop));
    assert_eq!(verify("POST", path, NOW + HOP_LIFETIME + 1), Err(HopError::Time));
    assert_eq!(verify("GET", path, NOW), Err(HopError::Seal(SealError::Signature)));
    assert_eq!(verify("POST", "/v1/realtime/calls", NOW), Err(HopError::Seal(SealError::Signature)));
    let other = HopSigner::new(&ClusterSecrets::new(NEXT, None).unwrap());
    assert_eq!(other.verify(&header, "POST", path, NOW), Err(HopError::Seal(SealError::UnknownSecret)));
    for forged in ["", " ", "1", "a b c d", &header[1..], &header.replace("2001", "2002"), &"x".repeat(9_000)] {
        assert!(signer.verify(forged, "POST", path, NOW).is_err(), "{forged}");
    }
}

#[test]
fn a_signature_has_one_purpose() {
    let hop = Hop { from: tag(42), client: "10.0.0.1".parse().unwrap() };
    let header = HopSigner::new(&secrets()).sign(&hop, "GET", "/", NOW);
    let (content, seal) = header.rsplit_once(' ').unwrap();
    let (id, signature) = seal.split_once('.').unwrap();
    let content = format!("{content} GET /");
    assert_eq!(secrets().sealer("hop").verify(id, signature, content.as_bytes()), Ok(()));
    let others = ["ephemeral key", "beat of test"].map(|purpose| secrets().sealer(purpose));
    assert!(others.iter().all(|sealer| sealer.verify(id, signature, content.as_bytes()).is_err()));
}
