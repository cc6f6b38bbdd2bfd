//! `make bench-cluster`: the time that the directory takes of a call and of a beat, with 200 nodes. Median of many batches.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use repartee_cluster::{
    BeatCodec, BeatMessage, ClusterSecrets, KeyGrant, KeySession, KeySigner, MessageKind, NodeLoad, NodePhase,
    NodeRecord, Table, TableInput,
};
use repartee_report::{Report, ReportRow, print};

const NODES: u32 = 200;
const BATCHES: usize = 200;
const BATCH: u32 = 500;
const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Aim of a choice among 200 nodes.
const CHOICE_US: f64 = 5.0;
/// Share of one core, in percent, that beats may take: with each beat 200 times a second.
const CORE_PERCENT: f64 = 1.0;

fn record(number: u32) -> Result<NodeRecord, Box<dyn Error>> {
    Ok(NodeRecord {
        tag: format!("{number:08x}").parse()?,
        name: format!("node-{number}"),
        incarnation: 1_790_000_000_000,
        address: format!("10.0.{}.{}:8080", number / 200, number % 200 + 1),
        zone: format!("zone-{}", number % 3),
        model: "qwen3-omni-30b-a3b".to_owned(),
        version: "0.1.0".to_owned(),
        phase: NodePhase::Serving,
        load: NodeLoad { slots: 90, free: if number == 0 { 1 } else { number % 91 }, first_packet_p95_ms: Some(410) },
        keys: Vec::new(),
        voices: 0,
    })
}

/// Median time of one run, in µs.
fn median(mut run: impl FnMut(u64)) -> f64 {
    let mut batch = |from: u64| {
        let begun = Instant::now();
        (0..u64::from(BATCH)).for_each(|index| run(from + index));
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH)
    };
    let mut times: Vec<f64> = (0..BATCHES).map(|index| batch((index as u64 + 1) * 1_000_003)).collect();
    times.sort_unstable_by(f64::total_cmp);
    times[BATCHES / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let secrets = ClusterSecrets::new(SECRET, None)?;
    let codec = BeatCodec::new(&secrets, "bench");
    let now = Instant::now();
    let mut table = Table::new(record(0)?, codec.clone(), Duration::from_secs(3_600), now);
    let mut beats = Vec::new();
    for number in 1..NODES {
        beats.push(codec.encode(&BeatMessage::new(MessageKind::Beat, 1, record(number)?)));
    }
    for bytes in &beats {
        table.handle(TableInput::Message(bytes), now);
    }
    let random = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let choice = median(|index| {
        black_box(table.choose(Some("gpt-realtime"), &[], random(index), now));
    });
    let mut seq = 1;
    let encoded = median(|_| {
        seq += 1;
        if let Ok(record) = record(1) {
            black_box(codec.encode(&BeatMessage::new(MessageKind::Beat, seq, record)));
        }
    });
    let numbered: Vec<Vec<u8>> = (0..BATCHES as u64 * u64::from(BATCH))
        .filter_map(|seq| Some(codec.encode(&BeatMessage::new(MessageKind::Beat, seq + 2, record(1).ok()?))))
        .collect();
    let mut next = numbered.iter();
    let taken = median(|_| {
        if let Some(bytes) = next.next() {
            black_box(table.handle(TableInput::Message(bytes), now));
        }
    });
    let signer = KeySigner::new(&secrets);
    let session = serde_json::json!({"instructions": "You are a helpful voice. ".repeat(20)});
    let grant = KeyGrant {
        until: 1_790_000_600,
        owner: Some(7),
        issuer: record(1)?.tag,
        nonce: [7; 16],
        session: KeySession::Inside(session),
    };
    let key = signer.issue(&grant)?;
    let checked = median(|_| {
        black_box(signer.check(&key, 1_790_000_000)).ok();
    });
    let largest = beats.iter().map(Vec::len).max().unwrap_or_default() as f64;
    let percent = taken * f64::from(NODES) / 1e6 * 100.0;
    let lower = |measure: &str, ours, aim, unit, note| ReportRow::lower_is_better(measure, ours, aim, unit, note);
    let rows = vec![
        lower("choice of a node among 200", choice, CHOICE_US, "µs", "the peer is the aim"),
        lower("a beat of another node taken, among 200", taken, CHOICE_US, "µs", "the peer is the aim of a choice"),
        lower("beats of 200 nodes, share of a core", percent, CORE_PERCENT, "%", "the peer is the aim"),
        lower("a beat written", encoded, CHOICE_US, "µs", "the peer is the aim of a choice"),
        lower("an ephemeral key of 500 characters checked", checked, 50.0, "µs", "the peer is the aim"),
        lower("largest beat of the 200", largest, 400.0, "bytes", "the peer is the aim"),
    ];
    print(&rows);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Report::new("cluster", rows).write(&root.join("target/report/cluster.json"))?;
    Ok(())
}
