//! Servers of NATS that are killed.

use std::time::{Duration, Instant};

use repartee_gateway_testkit::find;
use repartee_gateway_testkit::http::send;

use super::processes::{World, call_id, fresh, tag_of};
use super::{aim, ms, row};

/// Seconds without NATS, in each of which a call takes a turn.
const LOST: usize = 60;

/// Offers calls to all nodes for a while, and hangs them up through others; returns how many were placed and refused.
async fn offers(world: &World, time: Duration) -> (u32, u32) {
    let (mut placed, mut refused) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < time {
        for index in 0..world.nodes.len() {
            let reply = world.offer(index).await;
            if reply.status == 201 {
                placed += 1;
                let through = (index + 1) % world.nodes.len();
                assert_eq!(world.hang_up(through, &call_id(&reply)).await.status, 200);
            } else {
                refused += 1;
            }
        }
    }
    (placed, refused)
}

#[tokio::test]
async fn one_lost_server_changes_nothing() {
    let mut world = World::start(3, &[4, 4, 4]).await;
    let (mut call, _) = world.connect(0).await.unwrap();
    // The nodes choose their servers at random.
    world.kill_nats(1);
    let (placed, refused) = offers(&world, Duration::from_secs(4)).await;
    assert_eq!(refused, 0, "{placed} were placed");
    for index in 0..3 {
        let list = world.list(index).await;
        assert_eq!((fresh(&list), &list["feed"]), (3, &"live".into()), "{list}");
    }
    let events = call.ask("Hello?").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    row(
        "1 of 3 NATS dies",
        "nothing visible",
        &format!("{placed} POSTs placed, {refused} refused in 4 s; all nodes fresh"),
    );
}

#[tokio::test]
async fn calls_go_on_without_nats() {
    let mut world = World::start(3, &[4, 4, 4]).await;
    let (mut call, _) = world.connect(0).await.unwrap();
    for index in 0..3 {
        world.kill_nats(index);
    }
    let (mut placed, mut refused, mut turns) = (0, 0, 0);
    for _ in 0..LOST {
        let (more, none) = offers(&world, Duration::from_secs(1)).await;
        (placed, refused) = (placed + more, refused + none);
        let events = call.ask("Hello?").await;
        turns += usize::from(find(&events, "response.done")["response"]["status"] == "completed");
    }
    assert_eq!((refused, turns), (0, LOST), "{placed} were placed");
    // One is full: its calls go to the others all the same.
    let tag = world.tag(0).await;
    let mut ids = Vec::new();
    for _ in 0..11 {
        ids.push(call_id(&world.offer(0).await));
    }
    assert!(ids.iter().any(|id| tag_of(id) != tag));
    for index in 0..3 {
        assert_eq!(send(world.nodes[index].address, "GET", "/readyz", &[], b"").await.status, 200);
        let list = world.list(index).await;
        assert_eq!((fresh(&list), &list["feed"]), (3, &"stale".into()), "{list}");
    }
    for index in 0..3 {
        world.start_nats(index).await;
    }
    let begun = Instant::now();
    for index in 0..3 {
        let healed = |list: &serde_json::Value| {
            let free = list["data"].as_array().unwrap().iter().map(|node| node["free"].as_u64().unwrap()).sum::<u64>();
            (fresh(list), &list["feed"], free) == (3, &"live".into(), 0)
        };
        world.wait_for(index, healed).await;
    }
    aim(
        "a minute without NATS",
        "0 calls lost, 0 POSTs refused",
        &format!("{placed} POSTs placed, {refused} refused; {turns} of {LOST} turns of a call completed"),
    );
    row(
        "all NATS die",
        "calls, ids and new calls go on with the last table; /readyz stays 200; healed in 2 beats",
        &format!(
            "{LOST} s: {placed} POSTs placed, {refused} refused, {turns} turns of a call completed; then 11 of 11 slots filled through one node; healed {} after NATS was back",
            ms(begun.elapsed())
        ),
    );
}
