//! Callers that may not call or call too often, a full server, and datagrams that are no messages.

use repartee_gateway_testkit::question;
use repartee_testkit::random::Random;
use repartee_testkit::scripted::Script;

use super::calls::sideband;
use super::telephone::{Law, Telephone, serve, serve_with};

#[tokio::test(flavor = "multi_thread")]
async fn unnamed_addresses_may_not_call() {
    let server = serve_with(Script::default(), |config| config.sip.peers.clear()).await;
    let mut phone = Telephone::new(&server, "stranger", Law::Mu).await;
    phone.invite("").await;
    let refused = phone.final_response().await;
    assert!(refused.starts_with("SIP/2.0 403 ") && refused.contains("sip.peers"), "{refused}");
    phone.acknowledge(&refused).await;
    server.sessions(0).await;
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_refused_total{reason=\"sip_peer\"} 1\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_server_refuses_sip_calls() {
    let server = serve(Script { slots: 1, ..Script::default() }).await;
    let _first = Telephone::call(&server, "first", Law::Mu).await;
    server.sessions(1).await;
    let mut second = Telephone::new(&server, "second", Law::Mu).await;
    second.invite("").await;
    let refused = second.final_response().await;
    assert!(refused.starts_with("SIP/2.0 503 ") && refused.contains("\r\nRetry-After: 5\r\n"), "{refused}");
    second.acknowledge(&refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_does_not_disturb_a_sip_call() {
    let server = serve(Script { frames: 10, ..Script::default() }).await;
    let mut phone = Telephone::call(&server, "neighbour", Law::Mu).await;
    let mut controller = sideband(&server).await;
    let attacker = Telephone::new(&server, "attacker", Law::Mu).await;
    let mut random = Random::new(7);
    for length in 0..2_000 {
        let garbage: Vec<u8> = (0..length % 1_400).map(|_| random.below(256) as u8).collect();
        attacker.send_raw(&garbage).await;
        if let Some(remote) = phone.remote {
            // From the same machine, but no sound of this call.
            attacker.sound.send_to(&garbage, remote).await.unwrap();
        }
    }
    phone.speak(&question()).await;
    phone.hear(700).await;
    controller.until("output_audio_buffer.stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_calls_leave_room_for_a_neighbour() {
    let server = serve(Script { frames: 10, slots: 4, ..Script::default() }).await;
    let mut phone = Telephone::call(&server, "neighbour", Law::Mu).await;
    let mut controller = sideband(&server).await;
    let mut flooding = Telephone::new(&server, "flood", Law::Mu).await;
    let flood = tokio::spawn(async move {
        for number in 0..1_000 {
            flooding.id = format!("flood{number}");
            flooding.invite("").await;
            if number % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
        flooding
    });
    phone.speak(&question()).await;
    phone.hear(700).await;
    controller.until("output_audio_buffer.stopped").await;
    drop(flood.await.unwrap());
    phone.request("BYE").await;
    assert!(phone.final_response().await.starts_with("SIP/2.0 200 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_sip_call_leaves_nothing() {
    let server = serve(Script { slots: 20, ..Script::default() }).await;
    for number in 0..20 {
        let mut phone = Telephone::new(&server, &format!("cancelled{number}"), Law::Mu).await;
        phone.invite("").await;
        phone.cancel().await;
        // The server answers the cancellation, and the request.
        let response = loop {
            let response = phone.final_response().await;
            if response.contains(" INVITE\r\n") {
                break response;
            }
        };
        assert!(response.starts_with("SIP/2.0 200 ") || response.starts_with("SIP/2.0 487 "), "{response}");
        phone.acknowledge(&response).await;
        if response.starts_with("SIP/2.0 200 ") {
            phone.request("BYE").await;
        }
    }
    server.sessions(0).await;
}
