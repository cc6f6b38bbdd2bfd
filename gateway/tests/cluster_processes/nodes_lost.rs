//! A node that is killed, stopped, drained, or replaced.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use repartee_gateway_testkit::{PATIENCE, find};
use serde_json::json;
use tokio::time::timeout;

use super::processes::{SECRET, World, call_id, fresh, phase, state, tag_of};
use super::{ms, row};

#[tokio::test]
async fn a_killed_node_is_routed_round() {
    let world = World::start(1, &[1, 2, 4]).await;
    let (_own, _) = world.connect(0).await.unwrap();
    // The freer one of the two others.
    let (mut proxied, id) = world.connect(0).await.unwrap();
    let call = call_id(&world.offer(0).await);
    let tag = world.tag(2).await;
    assert_eq!([tag_of(&id), tag_of(&call)], [tag.as_str(); 2]);
    world.nodes[2].process.signal("KILL");
    let killed = Instant::now();
    let ended = async { while let Some(Ok(_)) = proxied.socket.next().await {} };
    timeout(PATIENCE, ended).await.expect("its call ends");
    let call_ended = killed.elapsed();
    let again = Instant::now();
    let placed = call_id(&world.offer(0).await);
    let placed_in = again.elapsed();
    assert_eq!(tag_of(&placed), world.tag(1).await);
    let asked = Instant::now();
    let owner = world.hang_up(0, &call).await;
    let answered_in = asked.elapsed();
    assert_eq!((owner.status, &*owner.code()), (503, "call_node_unreachable"));
    world.wait_for(0, |list| state(list, &tag) == "silent").await;
    let out = killed.elapsed();
    world.wait_for(0, |list| state(list, &tag) == "gone").await;
    let gone = killed.elapsed();
    assert_eq!(world.hang_up(0, &call).await.status, 404);
    row(
        "node kill -9",
        "its calls end at once; a new call is placed on the first try; no new calls after 2.5 s; its ids 503, then 404",
        &format!(
            "call over a proxied websocket ended after {}; POST placed in {}; silent after {}; id 503 in {}, 404 after {}",
            ms(call_ended),
            ms(placed_in),
            ms(out),
            ms(answered_in),
            ms(gone)
        ),
    );
}

#[tokio::test]
async fn a_frozen_node_gets_no_calls() {
    let world = World::start(1, &[1, 2, 4]).await;
    let (_own, _) = world.connect(0).await.unwrap();
    let (frozen, other) = (world.tag(2).await, world.tag(1).await);
    world.nodes[2].process.signal("STOP");
    let stopped = Instant::now();
    let placed = call_id(&world.offer(0).await);
    let placed_in = stopped.elapsed();
    assert_eq!(tag_of(&placed), other);
    world.wait_for(0, |list| state(list, &frozen) == "silent").await;
    let silent = stopped.elapsed();
    world.nodes[2].process.signal("CONT");
    let woken = Instant::now();
    world.wait_for(0, |list| state(list, &frozen) == "fresh").await;
    row(
        "node frozen (SIGSTOP)",
        "a forward gives up in 300 ms; no new calls after 2.5 s; it may wake",
        &format!(
            "POST placed elsewhere in {}; silent after {}; back {} after SIGCONT",
            ms(placed_in),
            ms(silent),
            ms(woken.elapsed())
        ),
    );
}

#[tokio::test]
async fn a_drained_node_loses_nothing() {
    let mut world = World::start(1, &[4, 4]).await;
    let (mut call, id) = world.connect(1).await.unwrap();
    let tag = world.tag(1).await;
    assert_eq!(tag_of(&id), tag);
    call.send(json!({"type": "response.create", "response": {"instructions": "Count to three."}})).await;
    let mut events = call.until("response.created").await;
    world.nodes[1].process.signal("TERM");
    let told = Instant::now();
    world.wait_for(0, |list| phase(list, &tag) == "draining").await;
    let seen = told.elapsed();
    events.extend(call.until("response.done").await);
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    let mut placed = 0;
    for _ in 0..4 {
        let id = call_id(&world.offer(0).await);
        assert_ne!(tag_of(&id), tag);
        placed += 1;
    }
    drop(call);
    assert_eq!(world.nodes[1].process.ended().await, Some(0));
    world.wait_for(0, |list| state(list, &tag) == "ended").await;
    row(
        "drain (SIGTERM)",
        "seen at once; the running turn ends; no POST is refused",
        &format!("seen in {}; the turn completed; {placed} of 4 POSTs placed, none there; exit code 0", ms(seen)),
    );
}

#[tokio::test]
async fn rolling_all_nodes_refuses_nobody() {
    let mut world = World::start(1, &[8, 8, 8]).await;
    let (mut placed, mut refused) = (0, 0);
    for old in 0..3 {
        let new = world.add(8, SECRET).await;
        world.wait_for(new, |list| fresh(list) == 4).await;
        world.nodes[old].process.signal("TERM");
        // A balancer asks the next node where nobody listens; here the list begins with those that stay.
        let asked = [new, (old + 1) % 3, old];
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            for index in asked {
                if std::net::TcpStream::connect(world.nodes[index].address).is_err() {
                    continue;
                }
                let reply = world.offer(index).await;
                if reply.status == 201 {
                    placed += 1;
                    let id = call_id(&reply);
                    assert_eq!(world.hang_up(index, &id).await.status, 200);
                } else {
                    refused += 1;
                }
            }
        }
        assert_eq!(world.nodes[old].process.ended().await, Some(0));
        world.wait_for(new, |list| fresh(list) == 3).await;
    }
    assert_eq!(refused, 0, "{placed} were placed");
    row("all three nodes replaced", "no POST is refused", &format!("{placed} POSTs placed, {refused} refused"));
}
