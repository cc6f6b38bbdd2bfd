//! Nodes that are replaced one after another.

use std::time::{Duration, Instant};

use repartee_gateway_testkit::{Client, find};

use super::processes::{Launch, World, call_id, fresh, tag_of};
use super::{aim, row};

/// Calls on each node.
const CALLS: usize = 4;

/// Takes a turn in each call; returns how many of them completed.
async fn turns(calls: &mut [Client]) -> usize {
    let mut completed = 0;
    for call in calls {
        let events = call.ask("Hello?").await;
        completed += usize::from(find(&events, "response.done")["response"]["status"] == "completed");
    }
    completed
}

/// Offers calls to these nodes for a while, and hangs them up; returns how many were placed and refused. A balancer asks the
/// next node where nobody listens.
async fn offers(world: &World, asked: &[usize]) -> (u32, u32) {
    let (mut placed, mut refused) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        for index in asked {
            if std::net::TcpStream::connect(world.nodes[*index].address).is_err() {
                continue;
            }
            let reply = world.offer(*index).await;
            if reply.status == 201 {
                placed += 1;
                assert_eq!(world.hang_up(*index, &call_id(&reply)).await.status, 200);
            } else {
                refused += 1;
            }
        }
    }
    (placed, refused)
}

/// Replaces three nodes one after another by new ones; returns what was seen.
async fn roll(old_nodes: &Launch<'_>, new_nodes: &Launch<'_>) -> String {
    let mut world = World::start(1, &[]).await;
    for index in 0..3 {
        world.add(old_nodes).await;
        world.wait_for(index, |list| fresh(list) == index + 1).await;
    }
    let (mut placed, mut refused, mut asked, mut completed) = (0, 0, 0, 0);
    for old in 0..3 {
        let new = world.add(new_nodes).await;
        world.wait_for(new, |list| fresh(list) == 4).await;
        let tag = world.tag(old).await;
        let mut calls = Vec::new();
        while calls.len() < CALLS {
            let (call, id) = world.connect(old).await.unwrap();
            // Some through the old node are on others, and have to live on, too.
            calls.push(call);
            assert!(calls.len() > 1 || tag_of(&id) == tag, "the first one stays where it arrives");
        }
        world.nodes[old].process.signal("TERM");
        let (more, none) = offers(&world, &[new, (old + 1) % 3, old]).await;
        (placed, refused) = (placed + more, refused + none);
        for _ in 0..2 {
            asked += calls.len();
            completed += turns(&mut calls).await;
        }
        drop(calls);
        assert_eq!(world.nodes[old].process.ended().await, Some(0));
        world.wait_for(new, |list| fresh(list) == 3).await;
    }
    assert_eq!((refused, completed), (0, asked), "{placed} were placed");
    format!("{placed} POSTs placed, {refused} refused; {completed} of {asked} turns during the drains completed")
}

/// Node that waits for its calls.
fn patient() -> Launch<'static> {
    Launch { drains_calls: true, ..Launch::new(3 * CALLS) }
}

#[tokio::test]
async fn rolling_all_nodes_loses_nothing() {
    let seen = roll(&patient(), &patient()).await;
    let event = format!("all three nodes replaced, {CALLS} calls on each, with `drain_calls`");
    row(&event, "no POST is refused, no call is lost", &seen);
    aim("a roll of three nodes", "0 calls lost, 0 POSTs refused", &seen);
}

#[tokio::test]
async fn rolling_from_the_version_before_loses_nothing() {
    let previous = Launch { has_previous_beats: true, ..patient() };
    let seen = roll(&previous, &patient()).await;
    let event = format!("the same from messages of the version before to this one's, {CALLS} calls on each");
    row(&event, "both understand each other: no POST is refused, no call is lost", &seen);
}

#[tokio::test]
async fn rolling_back_loses_nothing() {
    let previous = Launch { has_previous_beats: true, ..patient() };
    let seen = roll(&patient(), &previous).await;
    let event = format!("back from messages of this version to the one before, {CALLS} calls on each");
    row(&event, "both understand each other: no POST is refused, no call is lost", &seen);
}
