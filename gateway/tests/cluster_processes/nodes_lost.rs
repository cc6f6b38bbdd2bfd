//! A node that is killed, stopped, or drained.

use std::time::Instant;

use futures_util::StreamExt as _;
use repartee_gateway_testkit::{PATIENCE, find};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::processes::{Launch, World, call_id, fresh, phase, state, tag_of};
use super::{aim, ms, row};

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
    aim("a killed node is out of the table", "3 s", &ms(out));
    aim("a call after a kill is placed", "on the first try", &format!("by one POST, in {}", ms(placed_in)));
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
    let mut world = World::start(1, &[8, 8]).await;
    // One waits for its calls, the other for its turns alone.
    let patient = world.add(&Launch { drains_calls: true, ..Launch::new(8) }).await;
    for index in 0..3 {
        world.wait_for(index, |list| fresh(list) == 3).await;
    }
    let (mut kept, kept_id) = world.connect(patient).await.unwrap();
    let (mut ended, ended_id) = world.connect(1).await.unwrap();
    let tags = [world.tag(patient).await, world.tag(1).await];
    assert_eq!([tag_of(&kept_id), tag_of(&ended_id)], [&*tags[0], &*tags[1]]);
    // It goes on, so only a message of its own tells the others.
    let told = Instant::now();
    world.nodes[patient].process.signal("TERM");
    let is_draining = |list: &Value| (phase(list, &tags[0]), state(list, &tags[0])) == ("draining", "fresh");
    world.wait_for(0, is_draining).await;
    let seen = told.elapsed();
    ended.send(json!({"type": "response.create", "response": {"instructions": "Count to three."}})).await;
    let mut events = ended.until("response.created").await;
    world.nodes[1].process.signal("TERM");
    events.extend(ended.until("response.done").await);
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    drop(ended);
    assert_eq!(world.nodes[1].process.ended().await, Some(0));
    world.wait_for(0, |list| state(list, &tags[1]) == "ended").await;
    let (mut placed, first) = (0, world.tag(0).await);
    for index in [0, patient, 0, patient] {
        assert_eq!(tag_of(&call_id(&world.offer(index).await)), first, "through node {index}");
        placed += 1;
    }
    let events = kept.ask("Hello?").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    drop(kept);
    assert_eq!(world.nodes[patient].process.ended().await, Some(0));
    world.wait_for(0, |list| state(list, &tags[0]) == "ended").await;
    row(
        "drain (SIGTERM)",
        "seen at once; the running turn ends, or with `drain_calls` the call; no POST is refused",
        &format!(
            "seen in {}; both turns completed; {placed} of 4 POSTs placed, two of them through the draining node; exit code 0",
            ms(seen)
        ),
    );
    aim("a drain is seen", "50 ms", &ms(seen));
}
