//! Many calls at once, the time of a choice, and the time that a forward takes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use repartee_cluster::{BeatCodec, BeatMessage, ClusterSecrets, MessageKind, NodeLoad, NodeRecord, Table, TableInput};
use serde_json::json;
use tokio::net::TcpStream;

use super::forged::record;
use super::processes::{CELL, SECRET, World, call_id, tag_of};
use super::{aim, row};

/// Measured requests of each kind.
const SAMPLES: usize = 300;

#[tokio::test]
async fn a_hundred_offers_fill_ten_slots() {
    let world = World::start(1, &[4, 3, 3]).await;
    let replies = join_all((0..100).map(|at| world.offer(at % 3))).await;
    let placed = replies.iter().filter(|reply| reply.status == 201).count();
    let refused = replies.iter().filter(|reply| reply.status == 503 && reply.code() == "session_limit_reached").count();
    assert_eq!((placed, refused), (10, 90));
    aim("100 POSTs on 10 slots over three nodes", "over-admission 0", &format!("{} over", placed - 10));
    row("100 POSTs on 10 slots", "exactly 10", &format!("{placed} placed, {refused} refused"));
}

#[tokio::test]
async fn forwards_take_little_longer() {
    let world = World::start(1, &[1, 64]).await;
    let (_full, _) = world.connect(0).await.unwrap();
    let owner = world.tag(1).await;
    let (mut local, mut forwarded) = (Vec::new(), Vec::new());
    // In turns, so that both meet the same machine.
    for _ in 0..SAMPLES {
        for (index, times) in [(1, &mut local), (0, &mut forwarded)] {
            let begun = Instant::now();
            let id = call_id(&world.offer(index).await);
            times.push(begun.elapsed());
            assert_eq!(tag_of(&id), owner);
            assert_eq!(world.hang_up(1, &id).await.status, 200);
        }
    }
    let [local, forwarded] = [local, forwarded].map(percentiles);
    aim("a forwarded POST of an offer, p50 and p99", "+1 ms, +3 ms", &differences(forwarded, local));
    row(
        &format!("POST of an offer, {SAMPLES} each: p50, p95, p99"),
        "forwarded: +1 ms p50, +3 ms p99",
        &format!("local {}; forwarded {}", figures(local), figures(forwarded)),
    );
}

#[tokio::test]
async fn sideband_events_take_little_longer() {
    let world = World::start(1, &[1, 64]).await;
    let call = call_id(&world.offer(1).await);
    let mut times = [Vec::new(), Vec::new()];
    // In turns, so that both meet the same machine.
    for _ in 0..6 {
        for (times, index) in times.iter_mut().zip([1, 0]) {
            let mut sideband = world.attach(index, &call).await;
            for _ in 0..SAMPLES / 6 {
                let begun = Instant::now();
                sideband.update(json!({"type": "realtime", "instructions": "Be brief."})).await;
                times.push(begun.elapsed());
            }
        }
    }
    let [direct, forwarded] = times.map(percentiles);
    aim("a forwarded event of a sideband and its answer, p50 and p99", "+0.3 ms", &differences(forwarded, direct));
    row(
        &format!("event of a sideband and its answer, {SAMPLES} each: p50, p95, p99"),
        "forwarded: +0.3 ms",
        &format!("direct {}; forwarded {}", figures(direct), figures(forwarded)),
    );
}

#[tokio::test]
async fn forwards_are_many_a_second() {
    let world = World::start(1, &[1, 64]).await;
    // A call that its owner does not know: the cheapest answer.
    let call = format!("rtc_{}_{:032x}", world.tag(1).await, 7);
    let hang_up = format!("/v1/realtime/calls/{call}/hangup");
    let mut rates = Vec::new();
    for (index, path, status) in
        [(1, hang_up.as_str(), 404), (0, hang_up.as_str(), 404), (0, "/v1/realtime/client_secrets", 200)]
    {
        rates.push(rate(world.nodes[index].address, path, status).await);
    }
    aim(
        "POSTs a second: forwarded; for client secrets, which every node checks and none forwards",
        "2000",
        &format!("{:.0}; {:.0}", rates[1], rates[2]),
    );
    row(
        "POSTs a second over 16 connections: to the owner, forwarded, ephemeral keys (never forwarded)",
        "2000 forwarded",
        &format!("{:.0}, {:.0}, {:.0}", rates[0], rates[1], rates[2]),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_offers_are_a_share_of_local_ones() {
    let world = World::start(1, &[1, 64]).await;
    let (_full, _) = world.connect(0).await.unwrap();
    let mut rates = [0.0, 0.0];
    // In turns, so that both meet the same machine.
    for _ in 0..4 {
        for (rate, index) in rates.iter_mut().zip([1, 0]) {
            let begun = Instant::now();
            let caller = async || {
                for _ in 0..25 {
                    let id = call_id(&world.offer(index).await);
                    assert_eq!(world.hang_up(1, &id).await.status, 200);
                }
            };
            join_all((0..8).map(|_| caller())).await;
            *rate += 25.0 * 8.0 / begun.elapsed().as_secs_f64() / 4.0;
        }
    }
    let [local, forwarded] = rates;
    aim(
        "offers a second, each with its hang-up, by 8 callers: forwarded, as a share of local ones",
        "printed",
        &format!("{forwarded:.0} of {local:.0}, {:.0} %", 100.0 * forwarded / local),
    );
}

#[test]
fn a_choice_takes_little_time() {
    const BATCH: u64 = 1_000;
    let secrets = ClusterSecrets::new(SECRET, None).unwrap();
    let codec = BeatCodec::new(&secrets, CELL);
    let now = Instant::now();
    let mut table = Table::new(numbered(0), codec.clone(), Duration::from_secs(3_600), now);
    for number in 1..200 {
        let beat = BeatMessage::new(MessageKind::Beat, 1, numbered(number));
        table.handle(TableInput::Message(&codec.encode(&beat)), now);
    }
    assert_eq!(table.nodes(now).count(), 199);
    let batch = |batch: u64| {
        let begun = Instant::now();
        let bits = (batch * BATCH..(batch + 1) * BATCH).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let chosen = bits.filter(|bits| table.choose(None, &[], *bits, now).is_some()).count();
        assert_eq!(chosen as u64, BATCH);
        begun.elapsed() / BATCH as u32
    };
    // In ms, of one choice.
    let [median, ..] = percentiles((0..100).map(batch).collect());
    aim("a choice among 200 nodes, median of 100 batches", "5 µs", &format!("{:.1} µs", median * 1e3));
}

/// Node with free slots, and this number; the first one is full.
fn numbered(number: u32) -> NodeRecord {
    let tag = format!("{number:08x}").parse().unwrap();
    let load = NodeLoad { slots: 90, free: number % 91, first_packet_p95_ms: None };
    NodeRecord { tag, name: format!("node-{number}"), load, ..record("stranger") }
}

/// POSTs a second that get this status.
async fn rate(address: SocketAddr, path: &str, status: u16) -> f64 {
    const EACH: usize = 250;
    const CONNECTIONS: usize = 16;
    let begun = Instant::now();
    let client = async || {
        let socket = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut requests, connection) = http1::handshake(socket).await.unwrap();
        let connection = tokio::spawn(connection);
        for _ in 0..EACH {
            let request = Request::post(path).header("host", "localhost").body(Full::new(Bytes::new())).unwrap();
            requests.ready().await.unwrap();
            let reply = requests.send_request(request).await.unwrap();
            assert_eq!(reply.status(), status);
            reply.into_body().collect().await.unwrap();
        }
        drop(requests);
        connection.await.unwrap().unwrap();
    };
    join_all((0..CONNECTIONS).map(|_| client())).await;
    (EACH * CONNECTIONS) as f64 / begun.elapsed().as_secs_f64()
}

/// Three durations in ms.
fn figures([p50, p95, p99]: [f64; 3]) -> String {
    format!("{p50:.2}, {p95:.2}, {p99:.2} ms")
}

/// Difference of the first and the third of three durations in ms.
fn differences(slow: [f64; 3], quick: [f64; 3]) -> String {
    format!("{:+.2}, {:+.2} ms", slow[0] - quick[0], slow[2] - quick[2])
}

fn percentiles(mut times: Vec<Duration>) -> [f64; 3] {
    times.sort();
    [50, 95, 99].map(|percent| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3)
}
