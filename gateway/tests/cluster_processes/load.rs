//! Many calls at once, and the time that a forward takes.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::processes::{World, call_id, tag_of};
use super::row;

/// Measured requests of each kind.
const SAMPLES: usize = 300;

#[tokio::test]
async fn a_hundred_offers_fill_ten_slots() {
    let world = World::start(1, &[4, 3, 3]).await;
    let replies = join_all((0..100).map(|at| world.offer(at % 3))).await;
    let placed = replies.iter().filter(|reply| reply.status == 201).count();
    let refused = replies.iter().filter(|reply| reply.status == 503 && reply.code() == "session_limit_reached").count();
    assert_eq!((placed, refused), (10, 90));
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
    let figures = |[p50, p95, p99]: [f64; 3]| format!("{p50:.2}, {p95:.2}, {p99:.2} ms");
    row(
        &format!("POST of an offer, {SAMPLES} each: p50, p95, p99"),
        "forwarded: +1 ms p50, +3 ms p99",
        &format!("local {}; forwarded {}", figures(local), figures(forwarded)),
    );
}

fn percentiles(mut times: Vec<Duration>) -> [f64; 3] {
    times.sort();
    [50, 95, 99].map(|percent| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3)
}
