//! Messages: frozen bytes of each version, and everything that is none.

use std::time::Instant;

use repartee_cluster::{
    BeatCodec, BeatError, BeatMessage, ClusterSecrets, KeyUse, MAX_BEAT, MAX_KEYS, MessageKind, NodePhase, TableInput,
};

use super::support::{Random, SECRET, beat, codec, load, record, secrets, table};

/// Beat as the first version writes it. It never changes: every later version has to read it.
const FIRST: &str = concat!(
    "repartee1.",
    "NtWe80uF.FOWxQ4pCOvMUK4DaxI5wEWCSmXJvKuJF0V4sOVL7zgM",
    r#".{"v":1,"min":1,"kind":"beat","seq":7,"tag":"0000002a","name":"node-42","run":1790000000000,"http":"10.0.0.43:8080","#,
    r#""zone":"eu-1","model":"demo","version":"0.1.0","phase":"serving","slots":90,"free":12,"p95_ms":410}"#,
);

/// Beat as the second version writes it: the first one read it, too.
const SECOND: &str = concat!(
    "repartee1.",
    "NtWe80uF.k4He8xAu9qT-92TWNHr-b0ThS2FNVJ03zh3seIGB-1Q",
    r#".{"v":2,"min":1,"kind":"beat","seq":7,"tag":"0000002a","name":"node-42","run":1790000000000,"http":"10.0.0.43:8080","#,
    r#""zone":"eu-1","model":"demo","version":"0.1.0","phase":"serving","slots":90,"free":12,"p95_ms":410,"#,
    r#""keys":[{"k":"1f2e3d4c5b6a7988","s":3,"p":5120,"d":640,"a":30500},{"k":"0000000000000000","s":1}],"voices":2}"#,
);

fn first() -> BeatMessage {
    let mut record = record(42);
    record.zone = "eu-1".to_owned();
    record.load = load(90, 12);
    record.load.first_packet_p95_ms = Some(410);
    BeatMessage::previous(MessageKind::Beat, 7, record)
}

/// The same beat as the second version writes it.
fn second() -> BeatMessage {
    let mut record = first().record;
    let busy = KeyUse { key: 0x1f2e_3d4c_5b6a_7988, calls: 3, prefill: 5_120, decode: 640, sound_ms: 30_500 };
    record.keys = vec![busy, KeyUse { calls: 1, ..KeyUse::default() }];
    record.voices = 2;
    BeatMessage::new(MessageKind::Beat, 7, record)
}

/// Signs any text as a message.
fn signed(json: &str) -> Vec<u8> {
    format!("repartee1.{}.{json}", secrets().sealer("beat of test").sign(json.as_bytes())).into_bytes()
}

#[test]
fn the_first_versions_beat_is_read() {
    assert_eq!(codec().decode(FIRST.as_bytes()), Ok(first()));
    assert!(FIRST.len() < 400, "{} bytes", FIRST.len());
}

#[test]
fn each_version_writes_its_bytes() {
    for (message, bytes) in [(first(), FIRST), (second(), SECOND)] {
        assert_eq!(String::from_utf8(codec().encode(&message)).unwrap(), bytes);
        assert_eq!(codec().decode(bytes.as_bytes()), Ok(message));
    }
    // Without keys and voices it is as small as before.
    let record = first().record;
    let bytes = codec().encode(&BeatMessage::new(MessageKind::Beat, 7, record));
    assert_eq!(bytes.len(), FIRST.len());
}

#[test]
fn the_largest_beat_is_read() {
    let mut record = first().record;
    let most = |key: u64| KeyUse {
        key: u64::MAX - key,
        calls: u32::MAX,
        prefill: u32::MAX,
        decode: u32::MAX,
        sound_ms: u32::MAX,
    };
    record.keys = (0..MAX_KEYS as u64).map(most).collect();
    record.voices = u32::MAX;
    (record.name, record.zone, record.version) = ("n".repeat(64), "z".repeat(64), "v".repeat(64));
    (record.model, record.address) = ("\"".repeat(128), format!("{}:65535", "a".repeat(122)));
    (record.load.slots, record.load.free, record.incarnation) = (u32::MAX, u32::MAX, u64::MAX);
    let largest = BeatMessage::new(MessageKind::Hello, u64::MAX, record);
    let bytes = codec().encode(&largest);
    assert!(bytes.len() <= MAX_BEAT, "{} bytes", bytes.len());
    assert_eq!(codec().decode(&bytes), Ok(largest));
}

#[test]
fn added_fields_and_phases_are_read() {
    let later = r#"{"v":3,"min":1,"kind":"beat","seq":7,"tag":"0000002a","name":"node-42","run":1,"http":"a:1","model":"demo",
        "phase":"cooling","slots":9,"free":1,"gpu":{"kind":"h200","count":8},"busy":[1,2]}"#;
    let message = codec().decode(&signed(later)).unwrap();
    assert_eq!((message.record.phase, message.record.load), (NodePhase::Draining, load(9, 1)));
}

#[test]
fn beats_for_later_readers_are_named() {
    let later = signed(r#"{"v":9,"min":4,"kind":"beat","what":"a form that nobody knows"}"#);
    assert_eq!(codec().decode(&later), Err(BeatError::Version(4)));
}

#[test]
fn wrong_records_name_their_field() {
    let json = String::from_utf8(codec().encode(&first())).unwrap().splitn(4, '.').last().unwrap().to_owned();
    for (from, to, field) in [
        (r#""name":"node-42""#, r#""name":"""#.to_owned(), "name"),
        (r#""name":"node-42""#, format!(r#""name":"{}""#, "n".repeat(65)), "name"),
        ("10.0.0.43:8080", "10.0.0.43".to_owned(), "http"),
        ("10.0.0.43:8080", "10.0.0.43:0".to_owned(), "http"),
        ("10.0.0.43:8080", r"a\r\nb:80".to_owned(), "http"),
        (r#""zone":"eu-1""#, r#""zone":"eu 1""#.to_owned(), "zone"),
        (r#""model":"demo""#, r#""model":"de\u0000mo""#.to_owned(), "model"),
        (r#""free":12"#, r#""free":91"#.to_owned(), "free"),
    ] {
        let wrong = json.replace(from, &to);
        assert_ne!(wrong, json, "{from}");
        match codec().decode(&signed(&wrong)) {
            Err(BeatError::Record(error)) => assert_eq!(error.field, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[test]
fn large_foreign_and_unsigned_beats_are_refused() {
    let codec = codec();
    assert_eq!(codec.decode(&vec![b'x'; 1 << 20]), Err(BeatError::TooLarge));
    assert_eq!(codec.decode(&vec![b'x'; MAX_BEAT]), Err(BeatError::Form));
    assert_eq!(codec.decode(b"\xff\xfe"), Err(BeatError::Form));
    assert_eq!(codec.decode(&signed("[[[[")), Err(BeatError::Json));
    assert_eq!(codec.decode(&signed("{}")), Err(BeatError::Json));
    let label = |bytes: &[u8]| codec.decode(bytes).unwrap_err().label();
    let forged = FIRST.replace(r#""free":12"#, r#""free":90"#);
    assert_eq!(label(forged.as_bytes()), "signature");
    let other_cell = BeatCodec::new(&secrets(), "other").encode(&first());
    assert_eq!(label(&other_cell), "signature");
    let stranger = ClusterSecrets::new(&SECRET.replace('0', "z"), None).unwrap();
    assert_eq!(label(&BeatCodec::new(&stranger, "test").encode(&first())), "unknown_secret");
}

#[test]
fn refusals_are_counted_by_label() {
    let now = Instant::now();
    let mut table = table(now);
    for bytes in [&vec![b'x'; 1 << 20][..], b"", b"garbage", &signed("{}"), &beat(1, record(2))] {
        table.handle(TableInput::Message(bytes), now);
    }
    let counts: Vec<_> = table.counts().refused().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counts, [("too_large", 1), ("form", 2), ("json", 1)]);
    assert_eq!((table.counts().taken, table.nodes(now).count()), (1, 1));
}

#[test]
fn changed_bytes_never_become_a_node() {
    let (codec, right) = (codec(), codec().encode(&first()));
    for seed in 0..20_000 {
        let (mut random, mut bytes) = (Random::new(seed), right.clone());
        for _ in 0..=random.below(3) {
            let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
            match random.below(3) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, random.below(256) as u8),
            }
        }
        if bytes != right {
            assert!(codec.decode(&bytes).is_err(), "seed {seed}");
        }
    }
}
