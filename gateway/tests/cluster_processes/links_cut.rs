//! Links that are cut: of a node to NATS, and from one node to another.

use std::time::Instant;

use repartee_gateway_testkit::find;

use super::links::Link;
use super::processes::{Launch, World, call_id, free_ports, fresh, state, tag_of};
use super::{ms, row};

#[tokio::test]
async fn a_node_without_nats_serves_on() {
    let mut world = World::start(1, &[16]).await;
    let link = Link::to(world.nats_port()).await;
    let cut = world.add(&Launch { nats: Some(link.port), ..Launch::new(16) }).await;
    for index in 0..2 {
        world.wait_for(index, |list| fresh(list) == 2).await;
    }
    let tag = world.tag(cut).await;
    let (mut call, id) = world.connect(cut).await.unwrap();
    assert_eq!(tag_of(&id), tag);
    // Calls that it owns, whatever goes to the other node.
    let mut ids = Vec::new();
    while ids.len() < 3 {
        let id = call_id(&world.offer(cut).await);
        ids.extend(Some(id).filter(|id| tag_of(id) == tag));
    }
    link.cut();
    let began = Instant::now();
    world.wait_for(0, |list| state(list, &tag) == "silent").await;
    let silent = began.elapsed();
    world.wait_for(cut, |list| list["feed"] == "stale").await;
    // The others ask it directly for its calls, and it serves who comes to it.
    for id in &ids {
        assert_eq!(world.hang_up(0, id).await.status, 200);
    }
    for _ in 0..3 {
        assert_eq!(world.offer(cut).await.status, 201);
    }
    let events = call.ask("Hello?").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    for _ in 0..3 {
        assert_ne!(tag_of(&call_id(&world.offer(0).await)), tag, "it gets no new calls");
    }
    link.mend();
    let mended = Instant::now();
    world.wait_for(0, |list| state(list, &tag) == "fresh").await;
    row(
        "one node cut from NATS",
        "keeps its calls and its own callers; the others forward its ids to it, and give it no new calls",
        &format!(
            "silent after {}; its turn completed; 3 of 3 POSTs to it placed; {} of its calls hung up through another node; \
             back {} after the link",
            ms(silent),
            ids.len(),
            ms(mended.elapsed())
        ),
    );
}

#[tokio::test]
async fn a_node_out_of_reach_is_left() {
    let mut world = World::start(1, &[1, 2]).await;
    let port = free_ports(1)[0];
    let link = Link::to(port).await;
    let cut = world.add(&Launch { ports: Some((port, link.port)), ..Launch::new(8) }).await;
    for index in 0..3 {
        world.wait_for(index, |list| fresh(list) == 3).await;
    }
    let (tag, other) = (world.tag(cut).await, world.tag(1).await);
    let (_own, _) = world.connect(0).await.unwrap();
    let offered = call_id(&world.offer(0).await);
    assert_eq!(tag_of(&offered), tag, "the freer one");
    link.cut();
    let asked = Instant::now();
    let reply = world.hang_up(0, &offered).await;
    let refused_in = asked.elapsed();
    assert_eq!((reply.status, &*reply.code()), (503, "call_node_unreachable"));
    assert!(reply.header("retry-after").is_some());
    let asked = Instant::now();
    let placed = call_id(&world.offer(0).await);
    let placed_in = asked.elapsed();
    assert_eq!(tag_of(&placed), other);
    link.mend();
    let reply = world.hang_up(0, &offered).await;
    assert_eq!(reply.status, 200, "its ids are tried all the while");
    row(
        "one node cut from another",
        "503 with Retry-After in 300 ms for its ids; new calls go elsewhere",
        &format!(
            "503 in {}; POST placed elsewhere in {}; its id served once the link was back",
            ms(refused_in),
            ms(placed_in)
        ),
    );
}
