//! Offers that would be much work: refused by their counts, before the WebRTC library sees them.

use repartee_testkit::scripted::Script;

use repartee_gateway_testkit::Running;
use repartee_gateway_testkit::http::send;

const CHROMIUM: &str = include_str!("../../testdata/fuzz/offers/chromium.sdp");

#[tokio::test]
async fn offers_with_too_many_parts_are_refused() {
    let server = Running::start(Script::default()).await;
    let formats = CHROMIUM.replacen("SAVPF ", &format!("SAVPF {}", "111 ".repeat(15_000)), 1);
    let with_lines = |line: &str, count: usize| format!("{CHROMIUM}{}", format!("{line}\r\n").repeat(count));
    // Over two sections, so that neither has too many attributes.
    let half = "a=candidate:1 1 udp 1 192.0.2.1 5 typ host\r\n".repeat(550);
    let candidates = format!("{CHROMIUM}{half}m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n{half}");
    for (offer, part) in [
        (formats, "formats in a section"),
        (candidates, "candidates"),
        (with_lines("a=x", 1_100), "attributes in a section"),
        (with_lines("m=audio 9 UDP/TLS/RTP/SAVPF 111", 20), "media sections"),
        (with_lines("b=AS:1", 4_100), "lines"),
    ] {
        let kind = [("content-type", "application/sdp")];
        let reply = send(server.address, "POST", "/v1/realtime/calls", &kind, offer.as_bytes()).await;
        let refused = format!("too many {part}");
        assert!(reply.status == 400 && reply.body.contains(&refused), "{part}, {} bytes: {reply:?}", offer.len());
        assert_eq!(reply.code(), "invalid_offer");
    }
    server.sessions(0).await;
}
