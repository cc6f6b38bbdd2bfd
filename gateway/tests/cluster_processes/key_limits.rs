//! One key on several nodes.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::processes::{KEY, Launch, World, fresh};
use super::row;

/// Most calls of a key.
const MOST: usize = 12;
/// Time in which all nodes hear of a call.
const HEARD: Duration = Duration::from_millis(1_500);

async fn three_nodes() -> World {
    let mut world = World::start(1, &[]).await;
    let launch = Launch { keys: Some((KEY, MOST)), ..Launch::new(3 * MOST) };
    for _ in 0..3 {
        world.add(&launch).await;
    }
    for index in 0..3 {
        world.wait_for(index, |list| fresh(list) == 3).await;
    }
    world
}

/// Number of calls that one offer to each of these nodes opens; the others are refused for the key's limit.
async fn placed(world: &World, nodes: impl Iterator<Item = usize>) -> usize {
    let replies = join_all(nodes.map(|index| world.keyed_offer(index, KEY))).await;
    let refused = replies.iter().filter(|reply| reply.status != 201);
    for reply in refused {
        assert_eq!((reply.status, &*reply.code()), (429, "call_limit_reached"), "{reply:?}");
    }
    replies.iter().filter(|reply| reply.status == 201).count()
}

#[tokio::test]
async fn one_key_is_limited_on_all_nodes() {
    let world = three_nodes().await;
    let mut slowly = 0;
    for call in 0..MOST + 6 {
        slowly += placed(&world, std::iter::once(call % 3)).await;
        sleep(Duration::from_millis(250)).await;
    }
    drop(world);
    let world = three_nodes().await;
    let at_once = placed(&world, (0..90).map(|call| call % 3)).await;
    sleep(HEARD).await;
    let later = placed(&world, (0..30).map(|call| call % 3)).await;
    // Most are told before the next one comes; on a slow machine a message may take as long as a beat.
    assert!((MOST..=MOST + 5).contains(&slowly), "{slowly}");
    assert!((MOST..=3 * MOST).contains(&at_once) && later == 0, "{at_once}, then {later}");
    row(
        &format!("one key on three nodes, `limits.calls_per_key` = {MOST}"),
        &format!("at most {MOST} calls, and those that begin on other nodes within 150 ms and the way"),
        &format!("a call each 250 ms: {slowly}; 90 at once: {at_once}, then {later} of 30 more"),
    );
}
